#include "core/kv/checkpoints.h"

#include <algorithm>

#include "core/base/check.h"

namespace llmrt {
namespace {

constexpr uint32_t kUsesMax = 16;  // that count: else one that was used very often would hardly age

}  // namespace

void Checkpoints::add(BlockId record, uint32_t spared_tokens, bool is_answer) {
  Worth& worth = worths_[record];
  worth = {.spared_tokens = spared_tokens, .num_uses = 1, .is_answer = is_answer};
  rate(worth);
  ++counts_.num_kept;
}

void Checkpoints::hit(BlockId record) {
  Worth& worth = worths_[record];
  worth.num_uses = std::min(worth.num_uses + 1, kUsesMax);
  rate(worth);
  ++counts_.num_hits;
}

void Checkpoints::evict(BlockId record) {
  age_ = std::max(age_, worths_[record].goes_at);
  ++counts_.num_evicted;
}

void Checkpoints::set_passed(BlockId record) {
  worths_[record].num_uses = 0;
  rate(worths_[record]);
}

BlockId Checkpoints::least(const BlockPool& pool) const {
  BlockId least = pool.first_cached();
  LLMRT_CHECK(least != kNoBlock, "the least of no checkpoints");
  for (BlockId record = least; record != kNoBlock; record = pool.next_cached(record))
    if (worths_[record].goes_at < worths_[least].goes_at) least = record;
  return least;
}

}  // namespace llmrt
