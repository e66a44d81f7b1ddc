#include "tools/llmrt_bench/kv/kv_keys.h"

#include <cmath>
#include <cstring>
#include <limits>

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

// e4m3.
float f8_value(uint8_t bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                        : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return bits & 0x80 ? -magnitude : magnitude;
}

}  // namespace

void decode_keys(const KvGroup& group, std::span<const std::byte> layer_block, uint32_t head, float tensor_scale,
                 std::span<float> out) {
  const uint32_t num_tokens = static_cast<uint32_t>(out.size() / group.head_dim);
  LLMRT_CHECK(layer_block.size() == group.data_bytes_block_layer() + group.scale_bytes_block_layer() &&
                  num_tokens <= group.block_tokens && out.size() % group.head_dim == 0,
              "one layer of a block");
  for (uint32_t token = 0; token < num_tokens; ++token) {
    const uint64_t first = group.element_index(0, kKeys, head, token);
    const uint32_t num_scales = group.scales_vector();
    const auto scales = layer_block.subspan(group.data_bytes_block_layer());
    const uint64_t first_scale = first / group.head_dim * num_scales;
    float* key = out.data() + uint64_t{token} * group.head_dim;
    for (uint32_t dim = 0; dim < group.head_dim; ++dim) {
      const float scale =
          num_scales ? load<float>(scales, first_scale + dim * num_scales / group.head_dim) : tensor_scale;
      switch (group.dtype) {
        case KvDType::kF16:
          key[dim] = f16_value(load<uint16_t>(layer_block, first + dim));
          break;
        case KvDType::kBF16:
          key[dim] = bf16_value(load<uint16_t>(layer_block, first + dim));
          break;
        case KvDType::kI8:
        case KvDType::kI8Block:
          key[dim] = scale * static_cast<float>(load<int8_t>(layer_block, first + dim));
          break;
        case KvDType::kF8:
        case KvDType::kF8Block:
        case KvDType::kF8Tensor:
          key[dim] = scale * f8_value(load<uint8_t>(layer_block, first + dim));
          break;
      }
    }
  }
}

}  // namespace llmrt::bench
