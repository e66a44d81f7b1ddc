#include "core/attention/work_lists.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "core/attention/rounds.h"
#include "core/base/check.h"
#include "core/base/checked_math.h"

namespace llmrt {

void WorkLists::make(std::span<const RowRecord> rows, const AttentionGroup& group, bool batch_invariant,
                     AttentionWork* work) {
  group_ = &group;
  work_ = work;
  const PromptSplits prompt = prompt_splitter_.choose(rows, group);
  const DecodeSplits decode = choose_decode_splits(tuning_, rows, group);
  item_tokens_ = decode_item_tokens(batch_invariant ? tuning_.invariant_item_rows : tuning_.decode_item_rows, group);
  uint32_t stretch = batch_invariant ? 0 : 1;
  do {
    work_->clear();
    PromptSplits prompt_left = prompt;
    if (stretch > 1) prompt_left.run_keys = 0;  // borders of runs cut items however long runs are
    DecodeSplits decode_left = decode;
    for (const RowRecord& row : rows) add_items(row, stretch, &prompt_left, &decode_left);
    stretch *= 2;
  } while (work_->num_partials > partials_max_ && !batch_invariant);
  if (tuning_.prompt_tile_rows > 0) {  // kernels begin with the last items
    std::ranges::sort(work_->prompt_items, {}, [](const AttentionItem& item) {
      return std::tuple(item.key_end - item.key_begin, item.token_first, item.key_begin);
    });
    if (tuning_.prompt_turns)
      turn_rounds(work_->prompt_items.rbegin(), work_->prompt_items.size(), round_items(tuning_, group));
  }
  LLMRT_CHECK(work_->num_partials <= partials_max_, "there is room for invariant splits");
}

// `stretch`: how many of the usual splits one split holds; 0 = batch-invariant. `prompt`, `decode`: of what is still to
// come.
void WorkLists::add_items(const RowRecord& row, uint32_t stretch, PromptSplits* prompt, DecodeSplits* decode) {
  if (row.num_tokens > kDecodeRowTokens && stretch > 0) return add_prompt_items(row, stretch, prompt);
  const size_t items_first = work_->decode_items.size();
  for (uint32_t i = 0, count; i < row.num_tokens; i += count) {
    count = stretch > 0 ? std::min(item_tokens_, row.num_tokens - i) : invariant_run(row, i);
    const uint32_t num_keys = row.start + i + count;
    if (stretch > 0 && decode->keys > 0) {
      const uint32_t begin = group_->first_tile(row.start + i);
      const uint32_t keys = decode->runs > 0 ? decode->keys : decode->last_keys;
      if (decode->runs > 0) --decode->runs;
      const uint32_t num_splits = ceil_div(num_keys - begin, keys * stretch);
      add_decode_items(row, i, count, begin, round_up(ceil_div(num_keys - begin, num_splits), kKeysMultiple));
      continue;
    }
    const uint32_t length = stretch > 0 ? split_keys(num_keys) * stretch : invariant_split_keys(num_keys);
    add_decode_items(row, i, count, group_->first_key(row.start + i) / length * length, length);
  }
  // Works on the same keys are neighbours, so that one of them brings the keys to the cache for the others.
  const auto items = std::span(work_->decode_items).subspan(items_first);
  if (item_tokens_ > 1)
    std::ranges::sort(items, {},
                      [](const AttentionItem& item) { return std::tuple(item.key_begin, item.token_first); });
}

// How many of the row's tokens from the `i`th on are cut alike: at the same keys into as many splits, from the same
// tile of keys on.
uint32_t WorkLists::invariant_run(const RowRecord& row, uint32_t i) const {
  const auto cut_of = [&](uint32_t position) {
    const uint32_t length = invariant_split_keys(position + 1), begin = group_->first_key(position) / length;
    return std::array{length, begin, ceil_div(position + 1, length), group_->first_tile(position)};
  };
  const uint32_t most = std::min(item_tokens_, row.num_tokens - i);
  const auto first = cut_of(row.start + i);
  uint32_t count = 1;
  while (count < most && cut_of(row.start + i + count) == first) ++count;
  return count;
}

void WorkLists::add_prompt_items(const RowRecord& row, uint32_t stretch, PromptSplits* prompt) {
  for (uint32_t first = 0; first < row.num_tokens; first += kPromptItemTokens) {
    const uint32_t count = std::min(kPromptItemTokens, row.num_tokens - first), position = row.start + first;
    const uint32_t begin = group_->first_key(position), end = position + count;
    prompt->cut(begin, end, count, stretch, &split_ends_);
    const uint32_t partial = work_->num_partials, splits = static_cast<uint32_t>(split_ends_.size());
    for (uint32_t split = 0; split < splits; ++split) {
      const uint32_t from = split == 0 ? begin : split_ends_[split - 1];
      work_->prompt_items.push_back({row.slot, row.token_first + first, count, position, from, split_ends_[split],
                                     splits > 1 ? static_cast<int32_t>(partial + split) : -1, splits});
    }
    if (splits == 1) continue;
    for (uint32_t i = 0; i < count; ++i)
      work_->merge_items.push_back({row.token_first + first + i, partial + i * splits, splits, 1});
    work_->num_partials += count * splits;
  }
}

// `count` of the row's tokens from the `i`th on in splits of `length` keys from `begin` on, which is at or before the
// first key in the first one's window. Splits may hold keys that not all of the tokens see.
void WorkLists::add_decode_items(const RowRecord& row, uint32_t i, uint32_t count, uint32_t begin, uint32_t length) {
  const uint32_t position = row.start + i, num_keys = position + count, num_splits = ceil_div(num_keys - begin, length);
  const bool merge = num_splits > 1;
  const uint32_t merge_idx = static_cast<uint32_t>(work_->merge_items.size()), partial = work_->num_partials;
  for (uint32_t token = 0; merge && token < count; ++token) {
    work_->merge_items.push_back({row.token_first + i + token, work_->num_partials, num_splits});
    work_->num_partials += num_splits;
  }
  for (uint32_t split = 0; split < num_splits; ++split) {
    const uint32_t from = begin + split * length;
    work_->decode_items.push_back({row.slot, row.token_first + i, count, position,
                                   std::max(from, group_->first_key(position)), std::min(from + length, num_keys),
                                   merge ? static_cast<int32_t>(partial + split) : -1, merge_idx});
  }
}

// A token of a row of few has at most 4 + keys / 256 splits by split_keys, and the rows' keys are all in the pool.
// Where rows share prefixes only the first of the two bounds holds; it would take gigabytes for a case in which there
// are rows enough without splits, so make() keeps to the second one, as it does for splits chosen by cost.
uint32_t decode_partials_max(uint32_t step_tokens_max, uint32_t rows_max, uint32_t context_max,
                             uint64_t kv_tokens_max) {
  const uint64_t tokens = std::min<uint64_t>(step_tokens_max, uint64_t{rows_max} * kDecodeRowTokens);
  return static_cast<uint32_t>(
      std::min<uint64_t>(tokens * splits_max(context_max), 4 * tokens + kDecodeRowTokens * kv_tokens_max / 256));
}

uint64_t work_words_max(uint32_t step_tokens_max, uint32_t rows_max, uint32_t partials_max) {
  const uint64_t prompt_items = step_tokens_max / kPromptItemTokens + rows_max + kSplitPromptItemsMax;
  return sizeof(AttentionItem) / 4 * (uint64_t{partials_max} + step_tokens_max + prompt_items) +
         sizeof(MergeItem) / 4 * uint64_t{step_tokens_max};
}

}  // namespace llmrt
