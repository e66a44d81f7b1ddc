#include "core/engine/pool_shapes.h"

#include <algorithm>
#include <limits>

#include "core/base/checked_math.h"
#include "core/ops/step_inputs.h"

namespace llmrt {

namespace {

constexpr uint64_t kRecordsMin = 8;  // so that a small pool holds a few sequences and beginnings

}  // namespace

PoolShapes::PoolShapes(const ModelConfig& model, const EngineConfig& config) {
  for (const CacheGroup& cache : cache_groups(model.layers)) {
    if (cache.state_columns > 0) {
      const KvGroup states{.num_layers = cache.num_layers,
                           .block_tokens = std::max(kStatePlaceTokens, config.block_tokens),
                           .state_columns = cache.state_columns};
      shapes_.push_back({states, 0, 2ull * config.sequences_max});
      continue;
    }
    const KvGroup group{.num_layers = cache.num_layers,
                        .num_kv_heads = cache.num_kv_heads,
                        .head_dim = cache.head_dim,
                        .block_tokens = config.block_tokens,
                        .dtype = config.kv_dtype,
                        .keys_only = cache.keys_only()};
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
  uint64_t bytes = 0;
  for (const Shape& shape : shapes_)
    if (!shape.group.is_state()) bytes += shape.group.bytes_block();
  return bytes;
}

uint64_t PoolShapes::blocks_of(size_t g, uint64_t num_blocks) const {
  const Shape& shape = shapes_[g];
  if (shape.group.is_state()) {
    const uint64_t as_large = num_blocks * bytes_block() / shape.group.bytes_block();
    return num_blocks == 0 ? 0 : std::min(shape.blocks_inside, std::max(kRecordsMin, as_large));
  }
  return shape.window == 0 ? num_blocks : std::min(num_blocks, shape.blocks_inside + num_blocks / 4);
}

uint64_t PoolShapes::bytes_of(uint64_t num_blocks) const {
  uint64_t bytes = 0;
  for (size_t g = 0; g < shapes_.size(); ++g) bytes += blocks_of(g, num_blocks) * shapes_[g].group.bytes_block();
  return bytes;
}

uint64_t PoolShapes::blocks_in(uint64_t bytes, uint64_t block_bytes_beside) const {
  uint64_t fits = 0, above = std::min<uint64_t>(bytes / first().bytes_block(), std::numeric_limits<int32_t>::max()) + 1;
  while (fits + 1 < above) {
    const uint64_t middle = fits + (above - fits) / 2;
    (bytes_of(middle) + middle * block_bytes_beside <= bytes ? fits : above) = middle;
  }
  return fits;
}

uint64_t PoolShapes::blocks_by_range(const Caps& caps) const {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  if (caps.range_bytes_max == 0) return least;
  for (const Shape& shape : shapes_) {
    const uint64_t most = caps.range_bytes_max / shape.group.data_bytes_block_layer();
    if (!shape.group.is_state()) {
      least = std::min(least, most);
    } else if (most < shape.blocks_inside) {
      const uint64_t by_records = ((most + 1) * shape.group.bytes_block() - 1) / bytes_block();
      least = std::min(least, most < std::min(kRecordsMin, shape.blocks_inside) ? 0 : by_records);
    }
  }
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
    all.push_back({sized[g].num_blocks, sized[g].block_tokens,
                   sized[g].is_state() ? CacheKind::kState : CacheKind::kBlocks, shapes_[g].window,
                   g == 0 ? 0 : sized[g].num_host_blocks, sized[g].bytes_block()});
  return all;
}

}  // namespace llmrt
