// How keys and values lie on the device. Per layer one range:
//   [block][k, v][kv_head][token][dim]   in the pool's dtype,
// and for 8-bit dtypes a plane of f32 scales per layer beside it:
//   [block][k, v][kv_head][token].
// A stored number is value / scale with scale = amax(token, head) / 127 (int8; 0 when the vector is 0): appending never
// requantises.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace llmrt {

enum class KvDType : uint8_t { kF16, kBF16, kI8 };
constexpr const char* kv_dtype_name(KvDType dtype) {
  constexpr const char* kNames[] = {"f16", "bf16", "int8"};
  return kNames[static_cast<int>(dtype)];
}
constexpr std::optional<KvDType> parse_kv_dtype(std::string_view name) {
  if (name == "f16") return KvDType::kF16;
  if (name == "bf16") return KvDType::kBF16;
  if (name == "int8") return KvDType::kI8;
  return std::nullopt;
}
constexpr uint32_t kv_element_bytes(KvDType dtype) {
  return dtype == KvDType::kI8 ? 1 : 2;
}
constexpr bool kv_has_scales(KvDType dtype) {
  return dtype == KvDType::kI8;
}

// Layers of one attention kind: they share a pool and a table. A plain model has one group.
struct KvGroup {
  uint32_t num_layers = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t block_tokens = 16;  // 16, 32 or 64
  uint32_t num_blocks = 0;
  KvDType dtype = KvDType::kF16;
  uint32_t num_host_blocks = 0;  // of a second pool in the host's memory, laid out alike

  uint64_t elements_block_layer() const { return 2ull * num_kv_heads * block_tokens * head_dim; }
  uint64_t data_bytes_block_layer() const { return elements_block_layer() * kv_element_bytes(dtype); }
  uint64_t scale_bytes_block_layer() const { return kv_has_scales(dtype) ? 2ull * num_kv_heads * block_tokens * 4 : 0; }
  // All layers, data and scales: the price of one block.
  uint64_t bytes_block() const { return num_layers * (data_bytes_block_layer() + scale_bytes_block_layer()); }
  // Index (in elements) of k (which = 0) or v (1) of a token inside the layer's range.
  uint64_t element_index(uint32_t block, uint32_t which, uint32_t head, uint32_t token) const {
    return (((static_cast<uint64_t>(block) * 2 + which) * num_kv_heads + head) * block_tokens + token) * head_dim;
  }
};

}  // namespace llmrt
