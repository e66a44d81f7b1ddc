#include "core/engine/pool_shapes.h"

#include <algorithm>
#include <limits>

#include "core/base/checked_math.h"

namespace llmrt {

PoolShapes::PoolShapes(const ModelConfig& model, const EngineConfig& config) {
  for (const CacheGroup& cache : cache_groups(model.layers)) {
    const KvGroup group{.num_layers = cache.num_layers,
                        .num_kv_heads = cache.num_kv_heads,
                        .head_dim = cache.head_dim,
                        .block_tokens = config.block_tokens,
                        .dtype = config.kv_dtype};
    // The prefix cache goes by the blocks of the first group, which therefore keeps all of them.
    const uint32_t window = shapes_.empty() || config.keeps_windows ? 0 : cache.window;
    const uint64_t inside = window == 0
                                ? 0
                                : config.sequences_max * (ceil_div<uint64_t>(window - 1, group.block_tokens) + 1) +
                                      ceil_div<uint64_t>(config.step_tokens_max, group.block_tokens);
    shapes_.push_back({group, window, inside});
  }
}

uint64_t PoolShapes::bytes_block() const {
  return bytes_of(1);
}

uint64_t PoolShapes::blocks_of(size_t g, uint64_t num_blocks) const {
  const Shape& shape = shapes_[g];
  return shape.window == 0 ? num_blocks : std::min(num_blocks, shape.blocks_inside + num_blocks / 4);
}

uint64_t PoolShapes::bytes_of(uint64_t num_blocks) const {
  uint64_t bytes = 0;
  for (size_t g = 0; g < shapes_.size(); ++g) bytes += blocks_of(g, num_blocks) * shapes_[g].group.bytes_block();
  return bytes;
}

uint64_t PoolShapes::blocks_in(uint64_t bytes) const {
  uint64_t fits = 0, above = std::min<uint64_t>(bytes / first().bytes_block(), std::numeric_limits<int32_t>::max()) + 1;
  while (fits + 1 < above) {
    const uint64_t middle = fits + (above - fits) / 2;
    (bytes_of(middle) <= bytes ? fits : above) = middle;
  }
  return fits;
}

uint64_t PoolShapes::blocks_by_range(const Caps& caps) const {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  if (caps.range_bytes_max == 0) return least;
  for (const Shape& shape : shapes_)
    least = std::min(least, caps.range_bytes_max / shape.group.data_bytes_block_layer());
  return least;
}

std::vector<KvGroup> PoolShapes::groups(uint32_t num_blocks, uint32_t num_host_blocks) const {
  std::vector<KvGroup> all;
  for (size_t g = 0; g < shapes_.size(); ++g) {
    KvGroup& group = all.emplace_back(shapes_[g].group);
    group.num_blocks = static_cast<uint32_t>(blocks_of(g, num_blocks));
    group.num_host_blocks = static_cast<uint32_t>(blocks_of(g, num_host_blocks));
  }
  return all;
}

std::vector<KvPoolSize> PoolShapes::books(uint32_t num_blocks, uint32_t num_host_blocks) const {
  std::vector<KvPoolSize> all;
  const std::vector<KvGroup> sized = groups(num_blocks, num_host_blocks);
  for (size_t g = 0; g < sized.size(); ++g)
    all.push_back({sized[g].num_blocks, sized[g].block_tokens, CacheKind::kBlocks, shapes_[g].window,
                   g == 0 ? 0 : sized[g].num_host_blocks});
  return all;
}

}  // namespace llmrt
