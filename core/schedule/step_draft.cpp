#include "core/schedule/step_draft.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/schedule/plan_limits.h"

namespace llmrt {

StepDraft::StepDraft(const SchedulerConfig& config)
    : config_(config),
      bias_entries_max_(plan_limits(config).bias_entries_max),
      has_states_(std::ranges::find(config.kv_pools, CacheKind::kState, &KvPoolSize::kind) != config.kv_pools.end()) {
  begin();
}

void StepDraft::begin() {
  tokens_ = config_.step_tokens_max;
  samples_ = config_.sample_rows_max;
  bias_entries_ = bias_entries_max_;
  chunk_tokens_ = 0;
  is_long_ = false;
  recount_tokens_ = config_.context_max;
  shared_blocks_ = shared_blocks_max(config_);
  loaded_blocks_ = loaded_blocks_max(config_);
}

uint32_t StepDraft::count_that_fits(Sequence& sequence, uint32_t count) const {
  const uint32_t taken = sequence.take.tokens;
  const uint32_t end = sequence.count_within(taken + count, sequence.samples_for(taken) + samples_);
  const bool waits = end > taken && sequence.draws(end) && !has_room_for_changes(sequence);
  return end - taken - (waits ? 1 : 0);
}

bool StepDraft::waits_for_changes(const Sequence& sequence) const {
  return sequence.changes_come_late() ? has_states_ : !sequence.changes_are_ready();
}

void StepDraft::take(Sequence& sequence, uint32_t count) {
  const uint32_t samples_before = sequence.samples_for(sequence.take.tokens);
  sequence.take.tokens += count;
  tokens_ -= count;
  samples_ -= sequence.samples_for(sequence.take.tokens) - samples_before;
  bias_entries_ -= bias_entries_of(sequence, sequence.take.tokens);
}

bool StepDraft::can_take_drafts(const Sequence& sequence, uint32_t count) const {
  return count <= tokens_ && count <= samples_ && bias_entries_of_drafts(sequence, count) <= bias_entries_;
}

void StepDraft::take_drafts(Sequence& sequence, uint32_t count) {
  sequence.take.drafts = count;
  tokens_ -= count;
  samples_ -= count;
  bias_entries_ -= bias_entries_of_drafts(sequence, count);
}

void StepDraft::give_up(Sequence& sequence) {
  LLMRT_CHECK(sequence.take.drafts == 0, "drafts are taken when no row yields any more");
  tokens_ += sequence.take.tokens;
  samples_ += sequence.samples_for(sequence.take.tokens);
  bias_entries_ += bias_entries_of(sequence, sequence.take.tokens);
  sequence.take.tokens = 0;
}

bool StepDraft::has_room_for_changes(Sequence& sequence) const {
  if (waits_for_changes(sequence)) return false;
  return sequence.changes_come_late() || sequence.logit_changes(config_.end_of_generation).size() <= bias_entries_;
}

uint64_t StepDraft::bias_entries_of(Sequence& sequence, uint32_t count) const {
  if (!sequence.draws(count) || sequence.changes_come_late()) return 0;
  return sequence.logit_changes(config_.end_of_generation).size();
}

uint64_t StepDraft::bias_entries_of_drafts(const Sequence& sequence, uint32_t count) {
  const std::vector<std::vector<TokenBias>>& changes = sequence.drafts.changes;
  uint64_t entries = 0;
  for (size_t i = 0; i < std::min<size_t>(count, changes.size()); ++i) entries += changes[i].size();
  return entries;
}

StepSoFar StepDraft::so_far(std::span<Sequence* const> running) const {
  StepSoFar step;
  for (const Sequence* sequence : running) {
    if (sequence->take.tokens > 0) {
      step.work.tokens += sequence->take.tokens;
      step.work.decode_keys += uint64_t{sequence->progress.computed} + sequence->take.tokens;
      step.others_decode |= sequence->gap() == 1;
    } else if (sequence->gap() == 1) {  // it is left out
      step.others_decode = true;
    } else if (step.depth == 0) {
      step.depth = sequence->progress.computed;
    }
  }
  return step;
}

void StepDraft::take_of_chunk(Sequence& sequence, uint32_t count) {
  is_long_ |= count > chunk_tokens_;
  chunk_tokens_ -= std::min(count, chunk_tokens_);
  take(sequence, count);
}

bool StepDraft::can_recount(const Sequence& sequence) const {
  return !sequence.request.sampling.has_penalties() || sequence.tokens.size() <= recount_tokens_;
}

void StepDraft::take_payload(const Sequence& sequence, const PrefixMatch& match) {
  shared_blocks_ -= match.num_full();
  loaded_blocks_ -= match.num_loads();
  if (sequence.request.sampling.has_penalties()) recount_tokens_ -= static_cast<uint32_t>(sequence.tokens.size());
}

}  // namespace llmrt
