#include "core/model/model_digest.h"

#include <algorithm>

namespace llmrt {
namespace {

constexpr uint64_t kSampleBytes = 4096;

void add_config(const ModelConfig& c, Sha256& hash) {
  hash.add_text(c.architecture);
  for (const uint32_t value : {c.num_layers, c.width, c.ffn_width, c.num_heads, c.num_kv_heads, c.head_dim,
                               c.vocab_size, c.rope_dim, c.window})
    hash.add(value);
  for (const float value : {c.rms_eps, c.rope_magnitude, c.attention_scale, c.soft_cap}) hash.add(value);
  hash.add(c.rope_pairing).add(c.activation).add(c.qk_norm);
  hash.add(uint64_t{c.rope_freqs.size()}).add_all(std::span(c.rope_freqs));
}

void add_tensor(const WeightTensor& tensor, Sha256& hash) {
  hash.add_text(tensor.name).add(tensor.encoding).add(tensor.rows).add(tensor.columns);
  if (tensor.data == nullptr) return;  // made from its name
  const std::span bytes(tensor.data, tensor.bytes());
  const uint64_t count = std::min<uint64_t>(kSampleBytes, bytes.size());
  for (const uint64_t first : {uint64_t{0}, (bytes.size() - count) / 2, bytes.size() - count})
    hash.add_bytes(bytes.subspan(first, count));
}

}  // namespace

Digest model_digest(const Model& model) {
  Sha256 hash;
  add_config(model.config, hash);
  for (const WeightTensor& tensor : model.weights.tensors) add_tensor(tensor, hash);
  return hash.finish();
}

}  // namespace llmrt
