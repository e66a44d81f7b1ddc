#include "core/attention/prompt_splits.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "core/attention/rounds.h"
#include "core/base/checked_math.h"

namespace llmrt {
namespace {

constexpr uint32_t kPromptSplitKeysMin = 512;
constexpr uint32_t kRunKeysMultiple = 64, kRunKeysMin = 128;  // of a run's part of an item
constexpr double kRunMost = 1.3;                              // of the shortest runs that workgroups have room for

// Where a split that begins at key `from` of an item ends, by runs that lie end to end, the one at work with `left`
// keys. An item of few tokens does not fill a run: what it leaves is not counted on.
uint32_t end_of_split(uint32_t from, uint32_t end, bool fills, uint32_t run_keys, uint32_t* left) {
  const uint32_t run = fills ? *left : run_keys;
  const bool is_last = end - from < run + kRunKeysMin;
  if (fills) {
    *left = is_last && end - from < run ? run - (end - from) : 0;
    *left -= *left % kRunKeysMultiple;
    if (*left < kRunKeysMin) *left = run_keys;
  }
  return is_last ? end : from + run;
}

}  // namespace

uint32_t round_items(const AttentionTuning& tuning, const AttentionGroup& group) {
  return std::max(tuning.prompt_tiles / group.num_heads, 1u);
}

void PromptSplits::cut(uint32_t begin, uint32_t end, uint32_t num_tokens, uint32_t stretch,
                       std::vector<uint32_t>* ends) {
  ends->clear();
  const bool is_cut = items > 0;
  if (is_cut) --items;
  if (is_cut && run_keys > 0) {
    for (uint32_t from = begin; from < end; from = ends->back())
      ends->push_back(end_of_split(from, end, num_tokens == kPromptItemTokens, run_keys, &run_left));
    return;
  }
  const uint32_t wanted = std::max(is_cut ? splits / stretch : 1, 1u);
  const uint32_t most = std::clamp((end - begin) / kPromptSplitKeysMin, 1u, wanted);
  const uint32_t length = round_up(ceil_div(end - begin, most), kRunKeysMultiple);
  for (uint32_t from = begin; from < end; from += length) ends->push_back(std::min(from + length, end));
}

PromptSplits PromptSplitter::choose(std::span<const RowRecord> rows, const AttentionGroup& group) {
  if (!tuning_.splits_prompts) return {};
  uint32_t items = 0, keys = 0;
  for (const RowRecord& row : rows) {
    if (row.num_tokens <= kDecodeRowTokens) continue;
    items += ceil_div(row.num_tokens, kPromptItemTokens);
    keys = std::max(keys, row.start + row.num_tokens - group.first_key(row.start));
  }
  const AttentionCosts& costs = tuning_.costs;
  PromptSplits best{items % round_items(tuning_, group)};
  double least = 0;
  for (uint32_t splits = 1;
       splits == 1 || (best.items * splits <= kSplitPromptItemsMax && splits * kPromptSplitKeysMin <= keys); ++splits) {
    const uint32_t rounds = ceil_div(best.items * splits * group.num_heads, tuning_.prompt_tiles);
    const double cost = rounds * (static_cast<double>(keys) / splits + costs.prompt_split);
    if (splits > 1 && cost >= least) continue;
    best.splits = splits;
    least = cost;
  }
  if (tuning_.prompt_tile_rows > 0 && best.items > 0) {
    const double cost = tuning_.prompt_turns ? costs.prompt_turns : costs.prompt_runs;
    collect_items(rows, group, best.items);
    try_runs(group, least - cost - (best.splits == 1 ? costs.prompt_merge : 0), &best);
  }
  return best;
}

void PromptSplitter::collect_items(std::span<const RowRecord> rows, const AttentionGroup& group, uint32_t num_items) {
  const uint32_t item_rows = kPromptItemTokens * (group.num_heads / group.num_kv_heads);
  const uint32_t tile_tokens = std::max(kPromptItemTokens * tuning_.prompt_tile_rows / item_rows, 1u);
  items_.clear();
  for (const RowRecord& row : rows) {
    for (uint32_t done = 0; row.num_tokens > kDecodeRowTokens && done < row.num_tokens && num_items > 0; --num_items) {
      const uint32_t count = std::min(kPromptItemTokens, row.num_tokens - done);
      const double share = std::min(1.0, static_cast<double>(round_up(count, tile_tokens)) / kPromptItemTokens);
      items_.push_back(
          {group.first_key(row.start + done), row.start + done + count, count == kPromptItemTokens, share});
      done += count;
    }
  }
}

// Runs of equal length where that takes less than `least`. Most have parts of two items. Of those of not much more keys
// than the device has room for, the runs that leave least of it idle.
void PromptSplitter::try_runs(const AttentionGroup& group, double least, PromptSplits* best) {
  double work = 0;  // in keys of whole items
  for (const RunItem& item : items_) work += (item.end - item.begin) * item.share;
  const double room = static_cast<double>(tuning_.prompt_tiles) / group.num_heads;
  const uint32_t first =
      std::max(round_up(static_cast<uint32_t>(work / room) + 1, kRunKeysMultiple), kPromptSplitKeysMin);
  const uint32_t step = round_up(first / 32, kRunKeysMultiple);
  for (uint32_t keys = first; keys <= first * kRunMost && keys < least; keys += step) {
    const double time = time_of_runs(group, keys);
    if (time >= least) continue;
    best->run_keys = best->run_left = keys;
    least = time;
  }
}

// What items_ take, in keys, where workgroups have their splits as they become free, the longest first, or in turns.
// Heads do the same, so a few stand for all.
double PromptSplitter::time_of_runs(const AttentionGroup& group, uint32_t run_keys) {
  constexpr uint32_t kHeadsMax = 4;
  const uint32_t divisor = std::gcd(tuning_.prompt_tiles, group.num_heads);
  uint32_t heads = group.num_heads / divisor, places = tuning_.prompt_tiles / divisor;
  if (heads > kHeadsMax) {
    places = std::max(places * kHeadsMax / heads, 1u);
    heads = kHeadsMax;
  }
  splits_.clear();
  uint32_t left = run_keys;
  for (const RunItem& item : items_)
    for (uint32_t from = item.begin, end; from < item.end; from = end) {
      end = end_of_split(from, item.end, item.fills, run_keys, &left);
      splits_.emplace_back(end - from, (end - from) * item.share + tuning_.costs.prompt_split);
    }
  if (splits_.size() > kSplitPromptItemsMax) return std::numeric_limits<double>::infinity();
  std::ranges::sort(splits_, std::greater());
  ends_.assign(places, 0);
  if (tuning_.prompt_turns) {
    turn_rounds(splits_.begin(), splits_.size(), round_items(tuning_, group));
    size_t place = 0;
    for (const auto& [keys, time] : splits_)
      for (uint32_t i = 0; i < heads; ++i) ends_[place++ % places] += time;
    return std::ranges::max(ends_);
  }
  double last = 0;
  for (const auto& [keys, time] : splits_)
    for (uint32_t i = 0; i < heads; ++i) {
      std::ranges::pop_heap(ends_, std::greater());
      ends_.back() += time;
      last = std::max(last, ends_.back());
      std::ranges::push_heap(ends_, std::greater());
    }
  return last;
}

}  // namespace llmrt
