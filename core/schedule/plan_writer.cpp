#include "core/schedule/plan_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/request/logit_changes.h"

namespace llmrt {
namespace {

RowSampling row_sampling(const Sequence& sequence) {
  RowSampling row = plain_sampling(sequence.request.sampling);
  if (sequence.request.sampling.has_penalties()) row.flags |= kRowPenalties;
  if (changes_logits(sequence.request)) row.flags |= kRowBias;
  row.penalty_slot = sequence.residency.penalty_slot;
  return row;
}

void append_update(IterationPlan* plan, RowUpdateKind kind, int32_t slot, uint32_t arg0, uint32_t arg1,
                   const void* words, size_t num_words) {
  const size_t first = plan->row_payload.size();
  plan->row_updates.push_back({.kind = kind,
                               .slot = static_cast<uint32_t>(slot),
                               .arg0 = arg0,
                               .arg1 = arg1,
                               .payload_first = static_cast<uint32_t>(first),
                               .payload_words = static_cast<uint32_t>(num_words)});
  plan->row_payload.resize(first + num_words);
  if (num_words > 0) std::memcpy(plan->row_payload.data() + first, words, num_words * 4);
}

}  // namespace

const IterationPlan* PlanWriter::write(uint64_t batch) {
  LLMRT_CHECK(plans_[num_plans_ % plans_.size()].is_complete(), "a plan behind one whose tail is not complete");
  IterationPlan* plan = &plans_[++num_plans_ % plans_.size()];
  plan->clear();
  plan->step = num_plans_;
  plan->batch = batch;
  for (const uint32_t slot : running_.slots_to_clear()) {
    append_update(plan, RowUpdateKind::kClear, static_cast<int32_t>(slot), 0, 0, nullptr, 0);
  }
  running_.forget_cleared();
  for (Sequence* sequence : running_.rows()) {
    if (sequence->take.tokens > 0) {
      write_row(*sequence, plan);
    } else {
      write_tables(*sequence, plan);  // entries that others' equal blocks have replaced
    }
  }
  write_moves(plan);
  return plan;
}

void PlanWriter::note_commit(const IterationPlan& plan) {
  LLMRT_CHECK(has_in_flight() && plan.step == num_commits_ + 1, "plans are committed once, in their order");
  LLMRT_CHECK(plan.is_complete(), "a plan has results when its tail is complete");
  ++num_commits_;
}

void PlanWriter::forget_in_flight() {
  num_commits_ = num_plans_;
  for (IterationPlan& plan : plans_) plan.late_rows.clear();
}

void PlanWriter::write_row(Sequence& sequence, IterationPlan* plan) {
  write_row_updates(sequence, plan);
  write_copy(sequence, plan);
  places_.clear();
  kv_.begin_states(sequence.residency.tables, sequence.progress.computed, &places_);
  const uint32_t num_drafts = sequence.take.drafts, count = sequence.take.tokens + num_drafts;
  const uint32_t end = sequence.progress.computed + count;
  const bool draws = sequence.draws(sequence.take.tokens);
  const bool is_late = draws && sequence.changes_come_late();
  PlanRow row = {.request_id = sequence.request.id,
                 .slot = static_cast<uint32_t>(sequence.residency.slot),
                 .start = sequence.progress.computed,
                 .num_tokens = count,
                 .token_first = static_cast<uint32_t>(plan->tokens.size()),
                 .sample_first = static_cast<uint32_t>(plan->samples.size()),
                 .num_samples = 0,
                 .adapter_slot = sequence.residency.adapter_slot,
                 .batch_invariant = sequence.request.batch_invariant,
                 .num_drafts = num_drafts,
                 .draft_origin = sequence.drafts.origin,
                 .lane = sequence.lane(),
                 .adapter_scale = sequence.request.adapter_scale,
                 .adapter_start = sequence.request.adapter_start.value_or(0),
                 .adapter_on_experts = sequence.request.adapter_on_experts};
  for (uint32_t position = sequence.progress.computed; position < end - num_drafts; ++position) {
    const bool known = position < sequence.tokens.size();
    plan->tokens.push_back(known ? sequence.tokens[position] : kLastSampled);
  }
  for (uint32_t i = 0; i < num_drafts; ++i) plan->tokens.push_back(sequence.drafts.tokens[i]);
  write_samples(sequence, plan);
  row.num_samples = static_cast<uint32_t>(plan->samples.size()) - row.sample_first;
  if (is_late) plan->late_rows.push_back(static_cast<uint32_t>(plan->rows.size()));
  if (draws && !is_late) write_changes(sequence, plan, row);
  plan->rows.push_back(row);
  if (count == 1 || num_drafts > 0)
    add_decoding(&plan->work, sequence.progress.computed, count, config_.decode_item_tokens);
  else
    add_chunk(&plan->work, sequence.progress.computed, count);

  sequence.progress.scored = std::max(sequence.progress.scored, std::min(end + 1, sequence.num_prompt));
  sequence.progress.computed = end;
  sequence.progress.undone -= std::min(sequence.progress.undone, count);
  sequence.take = {};
  prefixes_.keep_filled(sequence);
  write_saves(sequence, end - count, plan);
  // A late row may compute its last position again, and one with drafts theirs; they then read what lies in the window
  // there.
  kv_.advance(sequence.residency.tables, is_late ? end - 1 : end - num_drafts);
  plan->rows.back().root = sequence.origin.root;
  if (!draws) return;
  if (sequence.beam.search) {
    sequence.beam.is_asked = true;
  } else {
    sequence.progress.in_flight.add_draw(num_drafts);
    LLMRT_CHECK(sequence.num_output() <= sequence.request.max_tokens, "no more is drawn than an answer has room for");
  }
  if (sequence.state() == RequestState::kPrefilling) sequence.move_to(RequestState::kDecoding);
}

void PlanWriter::write_row_updates(Sequence& sequence, IterationPlan* plan) {
  if (!sequence.residency.row_is_set) {
    const RowSampling row = row_sampling(sequence);
    append_update(plan, RowUpdateKind::kSet, sequence.residency.slot, 0, 0, &row, sizeof(row) / 4);
    if (sequence.residency.penalty_slot >= 0) {
      append_update(plan, RowUpdateKind::kRecount, sequence.residency.slot,
                    static_cast<uint32_t>(sequence.residency.penalty_slot), sequence.num_prompt, sequence.tokens.data(),
                    sequence.tokens.size());
    }
    sequence.residency.row_is_set = true;
  } else if (const uint32_t uncounted = sequence.residency.uncounted; uncounted > 0) {
    append_update(plan, RowUpdateKind::kCount, sequence.residency.slot,
                  static_cast<uint32_t>(sequence.residency.penalty_slot), 0,
                  sequence.tokens.data() + sequence.tokens.size() - uncounted, uncounted);
  }
  sequence.residency.uncounted = 0;
  write_tables(sequence, plan);
}

void PlanWriter::write_tables(Sequence& sequence, IterationPlan* plan) {
  for (BlockTable& table : sequence.residency.tables) {
    const uint32_t num_blocks = static_cast<uint32_t>(table.blocks.size());
    if (table.num_sent == num_blocks) continue;
    const uint32_t group = static_cast<uint32_t>(&table - sequence.residency.tables.data());
    append_update(plan, RowUpdateKind::kPatchTable, sequence.residency.slot, table.num_sent, group,
                  table.blocks.data() + table.num_sent, num_blocks - table.num_sent);
    table.num_sent = num_blocks;
  }
}

// The block that begins with another text's tokens, the last of which stands before `computed`. The queue is in order:
// once the copy is in a plan, its source may be handed out by the next one.
void PlanWriter::write_copy(Sequence& sequence, IterationPlan* plan) {
  if (sequence.residency.copy_tokens == 0) return;
  const BlockId target = sequence.residency.tables[0].blocks[(sequence.progress.computed - 1) / kv_.block_tokens()];
  plan->block_copies.push_back({sequence.residency.copy_source, target, sequence.residency.copy_tokens});
  kv_.unpin(sequence.residency.copy_source);
  sequence.residency.copy_source = kNoBlock;
  sequence.residency.copy_tokens = 0;
}

// The states that the row, which begins at `begin` and is kept as far as it is known, reads and leaves.
void PlanWriter::write_saves(Sequence& sequence, uint32_t begin, IterationPlan* plan) {
  save_points_.find(sequence, begin, sequence.progress.computed, &points_);
  for (const SavePoints::Point& point : points_)
    kv_.save_states(sequence.residency.tables, point.position, point.kind, &places_);
  PlanRow& row = plan->rows.back();
  row.places_first = static_cast<uint32_t>(plan->state_places.size());
  row.num_places = static_cast<uint32_t>(places_.size());
  for (const RecordPlace& place : places_) plan->state_places.push_back({place.kv_group, place.record, place.position});
}

void PlanWriter::write_moves(IterationPlan* plan) {
  const auto append = [](std::span<const BlockMove> moves, std::vector<BlockCopy>* copies) {
    for (const BlockMove& move : moves) copies->push_back({move.source, move.target, move.num_tokens, move.kv_group});
  };
  kv_.save(kv_.has_disk() && !kv_.is_disk_lasting() ? kStepHandedMax : kStepSavesMax);
  append(kv_.stores(), &plan->block_stores);
  append(kv_.loads(), &plan->block_loads);
  append(kv_.copies(), &plan->block_copies);
  plan->work.stores = kv_.move_blocks(kv_.stores());
  plan->work.loads = kv_.move_blocks(kv_.loads());
  kv_.forget_moves();
}

void PlanWriter::write_samples(const Sequence& sequence, IterationPlan* plan) const {
  const uint32_t begin = sequence.progress.computed, end = begin + sequence.take.tokens;
  const uint32_t num_drafts = sequence.take.drafts;
  for (uint32_t scored = std::max(begin + 1, sequence.progress.scored); scored < std::min(end + 1, sequence.num_prompt);
       ++scored) {
    plan->samples.push_back({.token_offset = scored - 1 - begin,
                             .output_position = scored,
                             .kind = TailKind::kScore,
                             .forced_token = sequence.tokens[scored],
                             .logprobs = true});
  }
  if (end != sequence.wanted() || !sequence.may_sample()) return;
  const SamplingParams& sampling = sequence.request.sampling;
  for (uint32_t i = 0; i <= num_drafts; ++i) {
    plan->samples.push_back({.token_offset = end - 1 - begin + i,
                             .output_position = sequence.num_output() + i,
                             .logprobs = sampling.logprobs >= 0 || sampling.tell_draws || sequence.beam.search,
                             .processed = sampling.processed_logprobs,
                             .draft = i < num_drafts ? sequence.drafts.tokens[i] : -1,
                             .run_idx = i});
  }
}

// ---- the tail of a plan --------------------------------------------------------------------------------------------

uint32_t PlanWriter::write_tail(const IterationPlan& plan) {
  LLMRT_CHECK(plan.step == num_plans_ && num_plans_ == num_commits_ + 1, "a tail when the plan before is committed");
  LLMRT_CHECK(!plan.is_complete(), "a tail is completed once");
  IterationPlan* own = &plans_[plan.step % plans_.size()];
  uint32_t num_kept = 0, num_parked = 0;
  auto late = own->late_rows.begin();
  for (uint32_t i = 0; i < own->rows.size(); ++i) {
    PlanRow& row = own->rows[i];
    const uint32_t first = row.sample_first;
    if (late != own->late_rows.end() && *late == i) {
      ++late;
      if (!write_late_row(own, &row)) {
        row.num_samples = 0;
        ++num_parked;
      }
    }
    row.sample_first = num_kept;
    for (uint32_t k = 0; k < row.num_samples; ++k) own->samples[num_kept++] = own->samples[first + k];
  }
  own->samples.resize(num_kept);
  own->late_rows.clear();
  return num_parked;
}

// False: it is parked.
bool PlanWriter::write_late_row(IterationPlan* plan, PlanRow* row) const {
  Sequence* sequence = running_.at_slot(row->slot);
  if (sequence == nullptr || sequence->request.id != row->request_id) return true;  // it has ended
  if (sequence->changes_are_ready() &&
      sequence->logit_changes(config_.end_of_generation).size() <= bias_entries_max_ - plan->bias.size()) {
    write_changes(*sequence, plan, *row);
    kv_.settle(sequence->residency.tables, sequence->progress.computed);
    return true;
  }
  Progress& progress = sequence->progress;
  progress.in_flight.drop_draw();
  progress.set_computed(progress.computed - 1);
  return false;
}

void PlanWriter::write_changes(Sequence& sequence, IterationPlan* plan, const PlanRow& row) const {
  const auto drawn =
      std::span(plan->samples).subspan(row.sample_first, row.num_samples).last(1 + size_t{row.num_drafts});
  const auto add = [plan](std::span<const TokenBias> changes) {
    const auto first = static_cast<uint32_t>(plan->bias.size());
    for (const auto& [token, bias] : changes) plan->bias.push_back({token, bias});
    return LogitChanges{first, static_cast<uint32_t>(changes.size())};
  };
  drawn[0].changes = add(sequence.logit_changes(config_.end_of_generation));
  for (size_t i = 1; i < drawn.size(); ++i) {
    const auto& own = sequence.drafts.changes;
    drawn[i].changes = own.empty() ? drawn[0].changes : add(own[i - 1]);
  }
  if (!sequence.constraint) return;
  for (size_t i = 0; i < drawn.size(); ++i) {
    const TokenMaskPtr& mask = sequence.constraint->mask_behind(i);
    if (!mask) continue;
    const auto place = std::ranges::find(plan->masks, mask);
    drawn[i].changes.mask = static_cast<int32_t>(place - plan->masks.begin());
    if (place == plan->masks.end()) plan->masks.push_back(mask);
  }
}

DrawsInFlight PlanWriter::draws_in_flight() const {
  DrawsInFlight draws;
  for (uint64_t step = num_commits_ + 1; step <= num_plans_; ++step) {
    const IterationPlan& plan = plans_[step % plans_.size()];
    for (const PlanRow& row : plan.rows)
      for (uint32_t i = row.sample_first; i < row.sample_first + row.num_samples; ++i)
        if (plan.samples[i].kind == TailKind::kSample)
          (plan.samples[i].run_idx == 0 ? draws.certain : draws.behind_drafts).push_back(row.request_id);
  }
  std::ranges::sort(draws.certain);
  std::ranges::sort(draws.behind_drafts);
  return draws;
}

}  // namespace llmrt
