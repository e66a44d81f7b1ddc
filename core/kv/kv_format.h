// How keys and values lie on the device. Per layer one range:
//   [block][k, v][kv_head][token][dim]   in the pool's dtype,
// without the v of groups that hold keys only,
// and where there are scales a plane of f32 per layer beside it:
//   [block][k, v][kv_head][token][scales of a vector].
// A stored 8-bit number is value / scale, rounded to nearest even. A vector (one token, one head) has one scale,
// amax / 127 for int8 and amax / 448 for fp8 (e4m3: 1 sign, 4 exponent, 3 mantissa bits, bias 7, no infinity), or one
// for each kKvScaleBlock of its numbers; 0 when they are all 0. So appending never requantises. fp8-tensor has no
// plane: its two scales a layer, of keys and of values, come with the model file, and larger values saturate.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace llmrt {

// Twin: shaders/kv_format.glsl.
enum class KvDType : uint8_t { kF16, kBF16, kI8, kF8, kI8Block, kF8Block, kF8Tensor };
inline constexpr KvDType kKvDTypes[] = {KvDType::kF16,     KvDType::kBF16,    KvDType::kI8,      KvDType::kF8,
                                        KvDType::kI8Block, KvDType::kF8Block, KvDType::kF8Tensor};
inline constexpr const char* kKvDTypeNames = "f16, bf16, int8, fp8, int8-block, fp8-block or fp8-tensor";
constexpr const char* kv_dtype_name(KvDType dtype) {
  constexpr const char* kNames[] = {"f16", "bf16", "int8", "fp8", "int8-block", "fp8-block", "fp8-tensor"};
  return kNames[static_cast<int>(dtype)];
}
constexpr std::optional<KvDType> parse_kv_dtype(std::string_view name) {
  for (const KvDType dtype : kKvDTypes)
    if (name == kv_dtype_name(dtype)) return dtype;
  return std::nullopt;
}
constexpr uint32_t kv_element_bytes(KvDType dtype) {
  return dtype == KvDType::kF16 || dtype == KvDType::kBF16 ? 2 : 1;
}
constexpr bool kv_is_i8(KvDType dtype) {
  return dtype == KvDType::kI8 || dtype == KvDType::kI8Block;
}
constexpr bool kv_is_f8(KvDType dtype) {
  return kv_element_bytes(dtype) == 1 && !kv_is_i8(dtype);
}
inline constexpr uint32_t kKvScaleBlock = 32;
constexpr bool kv_has_block_scales(KvDType dtype) {
  return dtype == KvDType::kI8Block || dtype == KvDType::kF8Block;
}
constexpr bool kv_has_scales(KvDType dtype) {
  return kv_element_bytes(dtype) == 1 && dtype != KvDType::kF8Tensor;
}

// Layers of one attention kind: they share a pool and a table. A plain model has one group.
//
// A group of states (state_columns > 0) has records in place of blocks: state_columns numbers of f32 a layer, one
// record a sequence. Heads and dtype mean nothing there, and block_tokens is how far apart checkpoints may stand
// (KvPoolSize).
struct KvGroup {
  uint32_t num_layers = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t block_tokens = 16;  // 16, 32 or 64; of a group of states any number
  uint32_t num_blocks = 0;
  KvDType dtype = KvDType::kF16;
  uint32_t num_host_blocks = 0;  // of a second pool in the host's memory, laid out alike
  uint32_t state_columns = 0;    // numbers of a record in a layer; 0 = a group of blocks
  bool keys_only = false;        // values are a part of the keys (latent attention)
  // Room for what ExpandLatent makes for the ops behind it: blocks of one head in one layer, of which an op over h
  // heads sees num_blocks / h, each of h heads.
  bool is_expanded = false;

  bool is_state() const { return state_columns > 0; }
  constexpr uint32_t planes() const { return keys_only ? 1 : 2; }  // of keys, of values
  constexpr uint32_t vectors_token() const { return planes() * num_kv_heads; }
  // As an op with so many KV heads sees it.
  KvGroup seen_by(uint32_t heads) const {
    KvGroup seen = *this;
    if (is_expanded) seen.num_kv_heads = heads, seen.num_blocks = num_blocks / heads;
    return seen;
  }
  uint64_t elements_block_layer() const { return uint64_t{vectors_token()} * block_tokens * head_dim; }
  uint64_t data_bytes_block_layer() const {
    return is_state() ? 4ull * state_columns : elements_block_layer() * kv_element_bytes(dtype);
  }
  uint32_t scales_vector() const {
    if (is_state()) return 0;
    return kv_has_block_scales(dtype) ? head_dim / kKvScaleBlock : kv_has_scales(dtype) ? 1 : 0;
  }
  uint64_t scale_bytes_block_layer() const { return uint64_t{vectors_token()} * block_tokens * scales_vector() * 4; }
  // All layers, data and scales: the price of one block.
  uint64_t bytes_block() const { return num_layers * (data_bytes_block_layer() + scale_bytes_block_layer()); }
  // Index (in elements) of k (which = 0) or v (1) of a token inside the layer's range.
  uint64_t element_index(uint32_t block, uint32_t which, uint32_t head, uint32_t token) const {
    return (((static_cast<uint64_t>(block) * planes() + which) * num_kv_heads + head) * block_tokens + token) *
           head_dim;
  }
};

}  // namespace llmrt
