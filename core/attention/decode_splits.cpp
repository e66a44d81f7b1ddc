#include "core/attention/decode_splits.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/checked_math.h"

namespace llmrt {
namespace {

constexpr uint32_t kSplitKeysMin = 64;
constexpr double kFewWorks = 1.0 / 3;  // of a work's time in a full round: what a lone one takes

// The time of a round that is filled in part, in keys.
double last_round(double length, double filled) {
  return filled > 0 ? length * (kFewWorks + (1 - kFewWorks) * filled) : 0;
}

double merging(const AttentionCosts& costs, uint32_t splits) {
  return splits > 1 ? costs.decode_merge + costs.decode_partial * splits : 0;
}

// fn(begin, end): keys of the tokens that share items, `item_tokens` of a row.
template <class Fn>
void each_run(std::span<const RowRecord> rows, uint32_t item_tokens, const AttentionGroup& group, Fn fn) {
  for (const RowRecord& row : rows)
    for (uint32_t i = 0; row.num_tokens <= kDecodeRowTokens && i < row.num_tokens; i += item_tokens)
      fn(group.first_tile(row.start + i), row.start + std::min(i + item_tokens, row.num_tokens));
}

}  // namespace

uint32_t split_keys(uint32_t num_keys) {
  if (num_keys <= 256) return 64;
  if (num_keys <= 8192) return 256;
  return 1024;
}

uint32_t invariant_split_keys(uint32_t num_keys) {
  return std::max(64u, std::bit_ceil(ceil_div(num_keys, kInvariantSplits)));
}

uint32_t decode_item_tokens(uint32_t item_rows, const AttentionGroup& group) {
  if (group.is_latent || group.num_kv_heads == 0) return 1;
  return std::clamp(item_rows / ceil_div(group.num_heads, group.num_kv_heads), 1u, kDecodeItemTokens);
}

uint32_t splits_max(uint32_t context_tokens) {
  // The number of splits grows inside each regime and falls at its end.
  uint32_t most = 0;
  for (uint32_t keys : {256u, 8192u, context_tokens}) {
    keys = std::min(keys, context_tokens);
    most = std::max(most, ceil_div(keys, split_keys(keys)));
  }
  return most;
}

DecodeSplits choose_decode_splits(const AttentionTuning& tuning, std::span<const RowRecord> rows,
                                  const AttentionGroup& group) {
  const AttentionCosts& costs = tuning.costs;
  const double room = tuning.decode_works;
  const uint32_t item_tokens = decode_item_tokens(tuning.decode_item_rows, group);
  uint32_t longest = 0, num_runs = 0;
  each_run(rows, item_tokens, group, [&](uint32_t begin, uint32_t end) {
    longest = std::max(longest, end - begin);
    ++num_runs;
  });
  if (tuning.decode_works == 0 || longest == 0) return {};
  const uint32_t num_kv_heads = group.num_kv_heads;
  const uint32_t least_keys = group.is_latent ? tuning.latent_split_keys : kSplitKeysMin;
  DecodeSplits best;
  double least = 0;
  for (uint32_t splits = 1; splits <= ceil_div(longest, least_keys); ++splits) {
    const uint32_t length = round_up(ceil_div(longest, splits), kKeysMultiple);
    double works = 0;
    each_run(rows, item_tokens, group,
             [&](uint32_t begin, uint32_t end) { works += ceil_div(end - begin, length) * num_kv_heads; });
    if (splits > 1 && (length < least_keys || works > 4 * room)) break;
    const double full = std::floor(works / room), rest = works / room - full;
    const double cost = full * (length + (splits > 1 ? costs.decode_split_round : costs.decode_round)) +
                        last_round(length, rest) + merging(costs, splits);
    if (splits > 1 && cost >= least) continue;
    best = {length, num_runs, length};
    least = cost;
  }
  const uint32_t whole = num_runs * num_kv_heads / tuning.decode_works * tuning.decode_works / num_kv_heads;
  if (best.keys < longest || whole == 0 || whole == num_runs) return best;
  const uint32_t few_works = (num_runs - whole) * num_kv_heads;
  const uint32_t wanted = std::max(ceil_div(longest, std::max(tuning.decode_works / few_works, 1u)), least_keys);
  const uint32_t length = round_up(wanted, kKeysMultiple), splits = ceil_div(longest, length);
  const bool pays =
      last_round(length, few_works * splits / room) + merging(costs, splits) < last_round(longest, few_works / room);
  if (pays) best = {best.keys, whole, length};
  return best;
}

}  // namespace llmrt
