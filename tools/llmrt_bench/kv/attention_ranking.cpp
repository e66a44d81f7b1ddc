#include "tools/llmrt_bench/kv/attention_ranking.h"

#include "core/base/check.h"

namespace llmrt::bench {

AttentionRanking::AttentionRanking(const LayerSpec& layer, std::span<const float> rows, uint32_t num_tokens,
                                   uint32_t count)
    : layer_(layer),
      rows_(rows),
      num_tokens_(num_tokens),
      heads_each_(layer.num_heads / layer.num_kv_heads),
      num_lanes_(kAttentionQueries * heads_each_),
      queries_(uint64_t{layer.num_kv_heads} * layer.head_dim * num_lanes_),
      scores_(num_lanes_),
      top_(uint64_t{layer.num_kv_heads} * num_lanes_, TopPositions(count)) {
  const uint64_t columns = (layer.num_heads + 2ull * layer.num_kv_heads) * layer.head_dim;
  LLMRT_CHECK(rows.size() == kAttentionQueries * columns, "rows of q, k and v");
  for (uint32_t query = 0; query < kAttentionQueries; ++query)
    for (uint32_t head = 0; head < layer.num_heads; ++head)
      for (uint32_t dim = 0; dim < layer.head_dim; ++dim)
        queries_[(uint64_t{head / heads_each_} * layer.head_dim + dim) * num_lanes_ +
                 lane_of(query, head) % num_lanes_] = rows[query * columns + uint64_t{head} * layer.head_dim + dim];
}

size_t AttentionRanking::lane_of(uint32_t query, uint32_t head) const {
  return uint64_t{head / heads_each_} * num_lanes_ + query * heads_each_ + head % heads_each_;
}

void AttentionRanking::add_keys(uint32_t kv_head, uint32_t first, std::span<const float> keys) {
  const uint32_t dims = layer_.head_dim, window = layer_.window, num_keys = static_cast<uint32_t>(keys.size() / dims);
  const uint64_t columns = rows_.size() / kAttentionQueries;
  const auto queries = std::span(queries_).subspan(uint64_t{kv_head} * dims * num_lanes_, uint64_t{dims} * num_lanes_);
  for (uint32_t i = 0; i < num_keys; ++i) {
    const uint32_t position = first + i;
    const auto key = keys.subspan(uint64_t{i} * dims, dims);
    if (position + kAttentionQueries >= num_tokens_) {
      const uint32_t row = position + kAttentionQueries - num_tokens_;
      error_.add(rows_.subspan(row * columns + uint64_t{layer_.num_heads + kv_head} * dims, dims), key);
    }
    score_key(key, queries, scores_);
    for (uint32_t lane = 0; lane < num_lanes_; ++lane) {
      const uint32_t query_position = num_tokens_ - kAttentionQueries + lane / heads_each_;
      const bool is_seen = position <= query_position && (window == 0 || position + window > query_position);
      if (is_seen) top_[uint64_t{kv_head} * num_lanes_ + lane].add(scores_[lane], position);
    }
  }
}

std::vector<std::vector<uint32_t>> AttentionRanking::positions() const {
  std::vector<std::vector<uint32_t>> sets;
  for (uint32_t query = 0; query < kAttentionQueries; ++query)
    for (uint32_t head = 0; head < layer_.num_heads; ++head) sets.push_back(top_[lane_of(query, head)].sorted());
  return sets;
}

}  // namespace llmrt::bench
