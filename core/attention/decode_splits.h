// How the keys of rows that decode are cut: by what the device has room for, or by each row's own length.
#pragma once

#include <span>

#include "core/attention/attention_group.h"
#include "core/attention/tuning.h"
#include "core/ops/step_inputs.h"

namespace llmrt {

// Keys a split for a query at a position that sees `num_keys` keys, where AttentionTuning::decode_works is 0: 64 up to
// 256 tokens, 256 up to 8k, 1,024 beyond. A function of the row's own position, so that it neither starves a lone row
// nor depends on the batch, but for a step whose rows share so many keys that the partial results would not fit
// (WorkLists::make).
uint32_t split_keys(uint32_t num_keys);
// The same where nothing but the position may decide, for every query token of the step: at most kInvariantSplits.
uint32_t invariant_split_keys(uint32_t num_keys);
inline constexpr uint32_t kInvariantSplits = 4;
// Most splits that one query token can have in a context of that many tokens.
uint32_t splits_max(uint32_t context_tokens);

// Tokens of a row that are one decode item where a work computes so many rows, query tokens x query heads of a KV head.
// Tokens of latent groups are items of their own.
uint32_t decode_item_tokens(uint32_t item_rows, const AttentionGroup& group);

// What a split of a decode item has at most, in this step: `keys` of the first `runs` of tokens that share items,
// `last_keys` of the others. 0 keys: as many as split_keys says.
struct DecodeSplits {
  uint32_t keys = 0, runs = 0, last_keys = 0;
};
// All rows' keys are cut to much the same length: whole rows where they fill the device, shorter ones until the works
// fill rounds of it. Few whole rows more than fill rounds are cut alone, so that the others do not wait long for them.
DecodeSplits choose_decode_splits(const AttentionTuning& tuning, std::span<const RowRecord> rows,
                                  const AttentionGroup& group);

}  // namespace llmrt
