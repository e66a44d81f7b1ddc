#include "tools/llmrt_bench/kv_keys.h"

#include <cstring>

#include "core/base/check.h"
#include "core/base/half.h"

namespace llmrt::bench {
namespace {

constexpr uint32_t kKeys = 0;  // of k and v

template <class T>
T load(std::span<const std::byte> bytes, uint64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

// The scale of a token's key; 1 for dtypes without.
float key_scale(const KvGroup& group, std::span<const std::byte> layer_block, uint32_t head, uint32_t token) {
  if (!kv_has_scales(group.dtype)) return 1;
  const auto scales = layer_block.subspan(group.data_bytes_block_layer());
  return load<float>(scales, (uint64_t{kKeys} * group.num_kv_heads + head) * group.block_tokens + token);
}

}  // namespace

void decode_keys(const KvGroup& group, std::span<const std::byte> layer_block, uint32_t head, std::span<float> out) {
  const uint32_t num_tokens = static_cast<uint32_t>(out.size() / group.head_dim);
  LLMRT_CHECK(layer_block.size() == group.data_bytes_block_layer() + group.scale_bytes_block_layer() &&
                  num_tokens <= group.block_tokens && out.size() % group.head_dim == 0,
              "one layer of a block");
  for (uint32_t token = 0; token < num_tokens; ++token) {
    const uint64_t first = group.element_index(0, kKeys, head, token);
    const float scale = key_scale(group, layer_block, head, token);
    float* key = out.data() + uint64_t{token} * group.head_dim;
    for (uint32_t dim = 0; dim < group.head_dim; ++dim) {
      switch (group.dtype) {
        case KvDType::kF16:
          key[dim] = f16_value(load<uint16_t>(layer_block, first + dim));
          break;
        case KvDType::kBF16:
          key[dim] = bf16_value(load<uint16_t>(layer_block, first + dim));
          break;
        case KvDType::kI8:
          key[dim] = scale * static_cast<float>(load<int8_t>(layer_block, first + dim));
          break;
      }
    }
  }
}

}  // namespace llmrt::bench
