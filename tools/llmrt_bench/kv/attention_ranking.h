// Which keys the last queries of a text attend to most in one layer, on the host: q as the device computed it, keys as
// its cache holds them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/model/layer.h"
#include "tools/llmrt_bench/kv/kv_numerics.h"

namespace llmrt::bench {

inline constexpr uint32_t kAttentionQueries = 8;

class AttentionRanking {
 public:
  // `rows`: q, k and v of the last kAttentionQueries of `num_tokens` tokens as an op list has them after RoPE,
  // [query][q heads, k heads, v heads][dim]; they and `layer` outlive this. Ranks the best `count` keys.
  AttentionRanking(const LayerSpec& layer, std::span<const float> rows, uint32_t num_tokens, uint32_t count);

  // Keys [key][dim] of positions first, first + 1, ... Each head's keys come in order of position.
  void add_keys(uint32_t kv_head, uint32_t first, std::span<const float> keys);

  // By query, then by head: positions with the greatest q.k, sorted, of those that the query may see.
  std::vector<std::vector<uint32_t>> positions() const;
  // How far the last kAttentionQueries keys that were added are from those in `rows`.
  double key_error() const { return error_.value(); }

 private:
  size_t lane_of(uint32_t query, uint32_t head) const;

  const LayerSpec& layer_;
  std::span<const float> rows_;
  uint32_t num_tokens_;
  uint32_t heads_each_;            // query heads of a kv head
  uint32_t num_lanes_;             // of a kv head: its heads of all queries
  std::vector<float> queries_;     // [kv head][dim][lane]
  std::vector<float> scores_;      // by lane
  std::vector<TopPositions> top_;  // [kv head][lane]
  RelativeError error_;
};

}  // namespace llmrt::bench
