#include "core/kv/checkpoints.h"

#include <algorithm>

#include "core/base/check.h"

namespace llmrt {
namespace {

constexpr uint32_t kUsesMax = 16;  // that count: else one that was used very often would hardly age
constexpr uint32_t kLearnSteps = 16;
constexpr uint32_t kNotLast = 16;  // one place in so many is the last of its answer

}  // namespace

uint32_t Checkpoints::spared_by(const Place& place) const {
  return place.position - (place.parent == kNoBlock ? 0 : worths_[place.parent].place.position);
}

// Its making counts as a use.
uint64_t Checkpoints::value(const Place& place, uint32_t spared_tokens, uint32_t num_hits, bool is_last) const {
  const uint64_t worth = uint64_t{spared_tokens} * std::min(place.num_turns + num_hits + 1, kUsesMax);
  if (place.kind != CheckpointKind::kAnswer || num_hits > 0) return worth;
  return worth * answer_weight_ / (is_last ? kWeightOne : kNotLast * kWeightOne);
}

void Checkpoints::rate(Worth& worth) const {
  const auto own = [&] { return value(worth.place, worth.spared_tokens, worth.num_hits, worth.is_last); };
  worth.goes_at = worth.age + (worth.is_passed ? 0 : own());
}

bool Checkpoints::stays(const Place& place, BlockId least) {
  const uint64_t own = age_ + value(place, spared_by(place), 0, /*is_last=*/false);
  if (own >= worths_[least].goes_at) return true;
  age_ = own;
  return false;
}

void Checkpoints::add(BlockId record, const Place& place) {
  worths_[record] = {.place = place, .age = age_, .spared_tokens = spared_by(place), .is_there = true};
  rate(worths_[record]);
  ++counts_.num_kept;
}

void Checkpoints::hit(BlockId record) {
  Worth& worth = worths_[record];
  if (worth.num_hits < kUsesMax) ++worth.num_hits;
  worth.is_passed = false;
  worth.age = age_;
  rate(worth);
  ++counts_.num_hits;
}

void Checkpoints::set_last(BlockId record) {
  Worth& worth = worths_[record];
  worth.is_last = true;
  worth.is_passed = false;
  worth.age = age_;
  rate(worth);
}

// What it spares is spared by those behind it.
void Checkpoints::bypass(BlockId record) {
  Worth& gone = worths_[record];
  for (Worth& worth : worths_) {
    if (!worth.is_there || worth.place.parent != record) continue;
    worth.place.parent = gone.place.parent;
    if (gone.is_passed) continue;
    worth.spared_tokens += gone.spared_tokens;
    rate(worth);
  }
}

void Checkpoints::remove(BlockId record) {
  bypass(record);
  worths_[record].is_there = false;
}

void Checkpoints::evict(BlockId record) {
  age_ = std::max(age_, worths_[record].goes_at);
  ++counts_.num_evicted;
}

void Checkpoints::set_passed(BlockId record) {
  Worth& worth = worths_[record];
  if (is_shared(record) || worth.is_passed) return;
  bypass(record);
  worth.is_passed = true;
  rate(worth);
}

void Checkpoints::learn(BlockId source, bool is_short, PathEnd end) {
  const bool is_answer = source != kNoBlock && kind(source) == CheckpointKind::kAnswer;
  const bool is_prompt = source != kNoBlock && kind(source) == CheckpointKind::kPrompt;
  if (is_answer || (is_short && end == PathEnd::kLeaf))
    answer_weight_ += (kWeightOne - answer_weight_ + kLearnSteps - 1) / kLearnSteps;
  else if ((is_short || is_prompt) && end == PathEnd::kTurn)
    answer_weight_ -= (answer_weight_ + kLearnSteps - 1) / kLearnSteps;
}

Status Checkpoints::check(const GroupContents& contents) const {
  for (BlockId record = 0; record < worths_.size(); ++record) {
    const Worth& worth = worths_[record];
    if (worth.is_there != contents.contains(record))
      return broken_books("record {}: a checkpoint {} its worth", record, worth.is_there ? "is gone, not" : "without");
    const BlockId parent = worth.place.parent;
    if (!worth.is_there || parent == kNoBlock) continue;
    if (!worths_[parent].is_there || worths_[parent].place.position >= worth.place.position)
      return broken_books("record {}: a checkpoint behind {} tokens, expected record {} before it", record,
                          worth.place.position, parent);
  }
  return {};
}

BlockId Checkpoints::least(const BlockPool& pool) const {
  BlockId least = pool.first_cached();
  LLMRT_CHECK(least != kNoBlock, "the least of no checkpoints");
  for (BlockId record = least; record != kNoBlock; record = pool.next_cached(record))
    if (worths_[record].goes_at < worths_[least].goes_at) least = record;
  return least;
}

}  // namespace llmrt
