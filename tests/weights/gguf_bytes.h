// Writes GGUF bytes by hand, right or wrong: what gguf_test.cpp, the loader's tests and the fuzz corpus start from.
// Independent of the reader and writer in core/weights.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llmrt::test {

// Little-endian bytes of a number.
template <typename T>
std::string raw(T value) {
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}
inline std::string raw_string(std::string_view text) {
  return raw<uint64_t>(text.size()) + std::string(text);
}

inline std::span<const std::byte> as_span(const std::string& bytes) {
  return std::as_bytes(std::span(bytes.data(), bytes.size()));
}

enum GgufType : uint32_t { kU8 = 0, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

struct GgufBytes {
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;
    uint32_t type = 0;  // 0 = f32
    std::string data;
    std::optional<uint64_t> offset;  // instead of the right one
    std::optional<uint32_t> num_dims;
  };

  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;  // of the data as written; the key is the caller's business
  std::optional<uint64_t> num_tensors, num_pairs;
  std::vector<std::string> pairs;
  std::vector<Tensor> tensors;

  void pair(std::string_view key, uint32_t type, std::string_view payload) {
    pairs.push_back(raw_string(key) + raw(type) + std::string(payload));
  }
  void u32(std::string_view key, uint32_t value) { pair(key, kU32, raw(value)); }
  void f32(std::string_view key, float value) { pair(key, kF32, raw(value)); }
  void boolean(std::string_view key, bool value) { pair(key, kBool, raw<uint8_t>(value)); }
  void string(std::string_view key, std::string_view value) { pair(key, kString, raw_string(value)); }
  void strings(std::string_view key, const std::vector<std::string>& values) {
    std::string payload = raw<uint32_t>(kString) + raw<uint64_t>(values.size());
    for (const auto& value : values) payload += raw_string(value);
    pair(key, kArray, payload);
  }
  template <typename T>
  void array(std::string_view key, GgufType type, const std::vector<T>& values) {
    std::string payload = raw<uint32_t>(type) + raw<uint64_t>(values.size());
    for (const T value : values) payload += raw(value);
    pair(key, kArray, payload);
  }
  void tensor_f32(std::string_view name, std::vector<uint64_t> dims, float value = 1.0f) {
    uint64_t count = 1;
    for (const uint64_t dim : dims) count *= dim;
    std::string data;
    for (uint64_t i = 0; i < count; ++i) data += raw(value);
    tensors.push_back({std::string(name), std::move(dims), 0, std::move(data), {}, {}});
  }

  std::string build() const {
    std::string out = magic + raw(version) + raw<uint64_t>(num_tensors.value_or(tensors.size())) +
                      raw<uint64_t>(num_pairs.value_or(pairs.size()));
    for (const auto& pair : pairs) out += pair;
    uint64_t offset = 0;
    for (const auto& tensor : tensors) {
      out += raw_string(tensor.name) + raw<uint32_t>(tensor.num_dims.value_or(tensor.dims.size()));
      for (const uint64_t dim : tensor.dims) out += raw(dim);
      out += raw(tensor.type) + raw<uint64_t>(tensor.offset.value_or(offset));
      offset = (offset + tensor.data.size() + alignment - 1) / alignment * alignment;
    }
    for (const auto& tensor : tensors) {
      out.resize((out.size() + alignment - 1) / alignment * alignment);
      out += tensor.data;
    }
    return out;
  }
};

// A whole model, as small as one can be: llama, 1 layer, width 32, 2 heads, 1 KV head, 8 tokens, tied head.
inline GgufBytes tiny_model() {
  GgufBytes file;
  file.string("general.architecture", "llama");
  file.string("general.name", "tiny");
  file.u32("llama.block_count", 1);
  file.u32("llama.context_length", 64);
  file.u32("llama.embedding_length", 32);
  file.u32("llama.feed_forward_length", 48);
  file.u32("llama.attention.head_count", 2);
  file.u32("llama.attention.head_count_kv", 1);
  file.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  file.f32("llama.rope.freq_base", 10000.0f);
  file.string("tokenizer.ggml.model", "gpt2");
  file.string("tokenizer.ggml.pre", "gpt-2");
  file.strings("tokenizer.ggml.tokens", {"a", "b", "c", "d", "e", "f", "ab", "<end>"});
  file.array<int32_t>("tokenizer.ggml.token_type", kI32, {1, 1, 1, 1, 1, 1, 1, 3});
  file.strings("tokenizer.ggml.merges", {"a b"});
  file.u32("tokenizer.ggml.eos_token_id", 7);
  file.tensor_f32("token_embd.weight", {32, 8}, 0.125f);
  file.tensor_f32("blk.0.attn_norm.weight", {32});
  file.tensor_f32("blk.0.attn_q.weight", {32, 32});
  file.tensor_f32("blk.0.attn_k.weight", {32, 16});
  file.tensor_f32("blk.0.attn_v.weight", {32, 16});
  file.tensor_f32("blk.0.attn_output.weight", {32, 32});
  file.tensor_f32("blk.0.ffn_norm.weight", {32});
  file.tensor_f32("blk.0.ffn_gate.weight", {32, 48});
  file.tensor_f32("blk.0.ffn_up.weight", {32, 48});
  file.tensor_f32("blk.0.ffn_down.weight", {48, 32});
  file.tensor_f32("output_norm.weight", {32});
  return file;
}

}  // namespace llmrt::test
