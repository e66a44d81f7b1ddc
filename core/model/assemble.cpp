#include "core/model/assembler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/weights/gathered_rows.h"
#include "core/weights/row_codec.h"
#include "core/weights/weight_bytes.h"

namespace llmrt {

using namespace tensor_names;

WeightId Assembler::add(WeightTensor tensor) {
  model_->weights.tensors.push_back(std::move(tensor));
  return static_cast<WeightId>(model_->weights.tensors.size() - 1);
}

Status Assembler::add_vector(const std::string& name, uint64_t columns, WeightId* out) {
  auto tensor = source_.take(name, 1, columns, true);
  if (!tensor) return tensor.error();
  *out = add(*std::move(tensor));
  return {};
}

Status Assembler::add_matrix(const std::string& name, uint64_t rows, uint64_t columns, WeightId* out) {
  auto tensor = source_.take(name, rows, columns, false);
  if (!tensor) return tensor.error();
  *out = add(*std::move(tensor));
  return {};
}

// One bias tensor stays as it is; several are joined in the order of the rows.
Status Assembler::add_bias(const std::string& prefix, const std::vector<Part>& parts, Presence presence,
                           WeightGroup* group) {
  const auto bias_name = [&](const Part& part) { return prefix + part.name + ".bias"; };
  const bool any =
      std::any_of(parts.begin(), parts.end(), [&](const Part& part) { return source_.has(bias_name(part)); });
  if (presence == Presence::kNever || (presence == Presence::kOptional && !any)) return {};
  if (parts.size() == 1) return add_vector(bias_name(parts[0]), parts[0].rows, &group->bias);
  std::vector<float> joined;
  for (const Part& part : parts) {
    auto tensor = source_.take(bias_name(part), 1, part.rows, true);
    if (!tensor) return tensor.error();
    const size_t begin = joined.size();
    joined.resize(begin + part.rows);
    std::memcpy(joined.data() + begin, tensor->data, part.rows * sizeof(float));
  }
  group->bias = add(storage_.own(group->name + ".bias", std::move(joined)));
  return {};
}

Status Assembler::add_group(const std::string& prefix, const char* name, std::vector<Part> parts, uint64_t columns,
                            Presence bias, WeightGroupId* out) {
  WeightGroup group;
  group.name = prefix + name;
  group.columns = columns;
  for (const Part& part : parts) {
    RowSegment segment;
    segment.num_rows = part.rows;
    const auto same =
        std::ranges::find_if(parts, [&](const Part& other) { return std::string_view(other.name) == part.name; });
    const size_t same_idx = static_cast<size_t>(same - parts.begin());
    if (same_idx < group.segments.size())
      segment.tensor = group.segments[same_idx].tensor;
    else if (auto status = add_matrix(prefix + part.name + ".weight", part.rows, columns, &segment.tensor); !status)
      return status;
    group.segments.push_back(segment);
    group.rows += part.rows;
  }
  if (auto status = add_bias(prefix, parts, bias, &group); !status) return status;
  model_->weights.groups.push_back(std::move(group));
  *out = static_cast<WeightGroupId>(model_->weights.groups.size() - 1);
  return {};
}

Status Assembler::add_layer(uint32_t layer) {
  LayerSpec& spec = model_->config.layers[layer];
  const std::string prefix = of_layer(layer, "");
  LayerWeights weights{};
  const bool has_keys = spec.attention != AttentionKind::kNone && !is_recurrent(spec.attention);
  if (is_recurrent(spec.attention))
    if (auto s = add_recurrent(prefix, &spec, &weights); !s) return s;
  const bool is_latent = spec.attention == AttentionKind::kLatent;
  if (has_keys)
    if (auto s = is_latent ? add_latent(prefix, spec, &weights) : add_attention(prefix, &spec, &weights); !s) return s;
  if (spec.feed_forward != FeedForwardKind::kNone)
    if (auto s = add_feed_forward(prefix, &spec, &weights); !s) return s;
  if (!has_keys) {
    model_->layers.push_back(weights);
    return {};
  }
  if (model_->has_kv_scales && spec.cache_of >= 0)
    weights.kv_scales = model_->layers[static_cast<size_t>(spec.cache_of)].kv_scales;
  else if (model_->has_kv_scales)
    if (auto s = add_kv_scales(prefix, &weights.kv_scales); !s) return s;
  model_->layers.push_back(weights);
  return {};
}

// The rows of q are those of a head and of its gate in turn. `kv`: k and v, behind q.
Status Assembler::add_gated_queries(const std::string& prefix, const LayerSpec& spec, const WeightGroup& kv,
                                    LayerWeights* weights) {
  const uint64_t dim = spec.head_dim, rows = uint64_t{spec.num_heads} * dim;
  const std::string name = prefix + kQ + ".weight";
  auto both = source_.take(name, 2 * rows, kv.columns, false);
  if (!both) return both.error();
  WeightGroup queries = kv, gates;
  gates.name = prefix + "gate";
  gates.columns = kv.columns;
  gates.rows = rows;
  const WeightId q = add(gathered_rows(name, *both, ranges_of_each(2 * rows, 2 * dim, 0, dim)));
  const WeightId gate = add(gathered_rows(gates.name + ".weight", *both, ranges_of_each(2 * rows, 2 * dim, dim, dim)));
  queries.segments.insert(queries.segments.begin(), RowSegment{q, 0, rows});
  queries.rows += rows;
  gates.segments.push_back({gate, 0, rows});
  std::vector<WeightGroup>& groups = model_->weights.groups;
  groups.push_back(std::move(queries));
  weights->qkv = static_cast<WeightGroupId>(groups.size() - 1);
  groups.push_back(std::move(gates));
  weights->attention_gate = static_cast<WeightGroupId>(groups.size() - 1);
  return {};
}

Status Assembler::add_qkv(const std::string& prefix, const LayerSpec& spec, LayerWeights* weights) {
  const uint64_t width = model_->config.width;
  const uint64_t q_rows = uint64_t{spec.num_heads} * spec.head_dim;
  const uint64_t kv_rows = uint64_t{spec.num_kv_heads} * spec.head_dim;
  std::vector<Part> parts;
  if (!spec.output_gate) parts.push_back({kQ, q_rows});
  if (spec.cache_of < 0) {
    parts.push_back({kK, kv_rows});
    parts.push_back({spec.values_are_keys ? kK : kV, kv_rows});
  }
  if (!spec.output_gate) return add_group(prefix, "qkv", parts, width, architecture_.qkv_bias, &weights->qkv);
  // No architecture has biases beside gates.
  WeightGroup kv;
  kv.name = prefix + "qkv";
  kv.columns = width;
  if (!parts.empty()) {
    if (auto s = add_group(prefix, "qkv", parts, width, Presence::kNever, &weights->qkv); !s) return s;
    kv = std::move(model_->weights.groups.back());
    model_->weights.groups.pop_back();
  }
  return add_gated_queries(prefix, spec, kv, weights);
}

Status Assembler::add_qk_norms(const std::string& prefix, const LayerSpec& spec, LayerWeights* weights) {
  const uint64_t q_columns = uint64_t{spec.head_dim} * (spec.joined_qk_norm ? spec.num_heads : 1);
  const uint64_t k_columns = uint64_t{spec.head_dim} * (spec.joined_qk_norm ? spec.num_kv_heads : 1);
  if (auto s = add_vector(prefix + kQNorm, q_columns, &weights->q_norm); !s) return s;
  weights->k_norm = weights->q_norm;  // where there are no keys nothing reads it
  if (spec.cache_of >= 0) return {};
  if (auto s = add_vector(prefix + kKNorm, k_columns, &weights->k_norm); !s) return s;
  if (spec.v_norm)
    weights->v_norm = add(storage_.own(prefix + "attn_v_norm.ones", std::vector<float>(spec.head_dim, 1.0f)));
  return {};
}

Status Assembler::add_attention(const std::string& prefix, LayerSpec* layer, LayerWeights* weights) {
  if (architecture_.may_lack_values) layer->values_are_keys = !source_.has(prefix + kV + ".weight");
  const LayerSpec& spec = *layer;
  const uint64_t width = model_->config.width;
  const uint64_t q_rows = uint64_t{spec.num_heads} * spec.head_dim;
  if (auto s = add_vector(prefix + kAttentionNorm, width, &weights->attention_norm); !s) return s;
  if (auto s = add_qkv(prefix, spec, weights); !s) return s;
  if (spec.qk_norm)
    if (auto s = add_qk_norms(prefix, spec, weights); !s) return s;
  if (spec.sinks)
    if (auto s = add_sinks(prefix + kSinks, spec.num_heads, &weights->sinks); !s) return s;
  if (auto s = add_group(prefix, kOutput, {{kOutput, width}}, q_rows, architecture_.output_bias, &weights->output); !s)
    return s;
  if (!spec.attention_post_norm) return {};
  return add_vector(prefix + kAttentionPostNorm, width, &weights->attention_post_norm);
}

// Minus infinity is a head without a sink.
Status Assembler::add_sinks(const std::string& name, uint32_t num_heads, WeightId* out) {
  if (auto s = add_vector(name, num_heads, out); !s) return s;
  const WeightTensor& tensor = model_->weights.tensors[static_cast<size_t>(*out)];
  if (tensor.data == nullptr) return {};  // made from its name
  for (uint32_t head = 0; head < num_heads; ++head) {
    float sink;
    std::memcpy(&sink, tensor.data + head * sizeof(float), sizeof(float));
    if (!(sink < std::numeric_limits<float>::infinity()))
      return make_error(ErrorCode::kCorruptFile, "bad tensor: {}: expected numbers, found {}", name, sink);
  }
  return {};
}

Status Assembler::add_feed_forward(const std::string& prefix, LayerSpec* spec, LayerWeights* weights) {
  const uint64_t width = model_->config.width;
  const char* norm = architecture_.has_lone_parts                    ? kAttentionNorm
                     : architecture_.ffn_norm_is_post_attention_norm ? kAttentionPostNorm
                                                                     : kFfnNorm;
  if (auto s = add_vector(prefix + norm, width, &weights->ffn_norm); !s) return s;
  const bool has_experts = spec->feed_forward == FeedForwardKind::kExperts;
  if (auto s = has_experts ? add_experts(prefix, spec, weights) : add_dense(prefix, *spec, weights); !s) return s;
  if (!spec->ffn_post_norm) return {};
  return add_vector(prefix + kFfnPostNorm, width, &weights->ffn_post_norm);
}

Status Assembler::add_dense(const std::string& prefix, const LayerSpec& spec, LayerWeights* weights) {
  const uint64_t width = model_->config.width;
  const Presence bias = architecture_.ffn_bias;
  std::vector<Part> parts = {{kUp, spec.ffn_width}};
  if (has_other_half(spec.activation)) parts.insert(parts.begin(), {kGate, spec.ffn_width});
  if (has_other_half(spec.activation) && source_.has(prefix + kGateUp + ".weight"))
    parts = {{kGateUp, uint64_t{2} * spec.ffn_width}};
  if (auto s = add_group(prefix, "gate_up", parts, width, bias, &weights->gate_up); !s) return s;
  return add_group(prefix, "down", {{kDown, width}}, spec.ffn_width, bias, &weights->down);
}

Status Assembler::add_kv_scales(const std::string& prefix, KvTensorScales* scales) {
  if (auto s = add_kv_scale(prefix + kKCacheScale, &scales->k); !s) return s;
  return add_kv_scale(prefix + kVCacheScale, &scales->v);
}

// No op reads the tensor, but the model's digest speaks of it.
Status Assembler::add_kv_scale(const std::string& name, float* scale) {
  WeightId id;
  if (auto s = add_vector(name, 1, &id); !s) return s;
  std::memcpy(scale, model_->weights.tensors[static_cast<size_t>(id)].data, sizeof(float));
  if (!(*scale >= 1e-12f && *scale <= 1e12f))
    return make_error(ErrorCode::kCorruptFile, "bad tensor: {}: expected a scale in [1e-12, 1e12], found {}", name,
                      *scale);
  return {};
}

// The numbers of an f16 or bf16 tensor, as f32.
WeightTensor Assembler::widen(const WeightTensor& narrow) {
  std::vector<std::byte> row(narrow.bytes_row());
  std::vector<float> values(narrow.rows * narrow.columns);
  for (uint64_t r = 0; r < narrow.rows; ++r) {
    copy_weight_bytes(narrow, r * row.size(), row);
    decode_row(narrow.encoding, row.data(), std::span(values).subspan(r * narrow.columns, narrow.columns));
  }
  WeightTensor wide = storage_.own(narrow.name, std::move(values));
  wide.rows = narrow.rows;
  wide.columns = narrow.columns;
  return wide;
}

Status Assembler::add_head() {
  const ModelConfig& config = model_->config;
  if (source_.has(std::string(kHead) + ".weight"))
    return add_group("", "head", {{kHead, config.vocab_size}}, config.width, Presence::kNever, &model_->head);
  WeightGroup tied;
  tied.name = "head";
  tied.segments = {{model_->embedding, 0, config.vocab_size}};
  tied.rows = config.vocab_size;
  tied.columns = config.width;
  model_->weights.groups.push_back(std::move(tied));
  model_->head = static_cast<WeightGroupId>(model_->weights.groups.size() - 1);
  return {};
}

Status Assembler::run() {
  const ModelConfig& config = model_->config;
  if (auto s = add_matrix(kEmbedding, config.vocab_size, config.width, &model_->embedding); !s) return s;
  for (size_t i = 0; i < config.rope_freqs.size(); ++i)
    model_->rope_freqs.push_back(
        add(storage_.own(i == 0 ? "rope_frequencies" : fmt::format("rope_frequencies.{}", i), config.rope_freqs[i])));
  model_->has_kv_scales = source_.has(of_layer(0, kKCacheScale));
  for (uint32_t layer = 0; layer < config.num_layers(); ++layer) {
    if (auto s = add_layer(layer); !s) return s;
  }
  if (auto s = add_vector(architecture_.final_norm, config.width, &model_->final_norm); !s) return s;
  if (auto s = add_head(); !s) return s;
  // Twin: core/model/decoder.cpp build_sample.
  const LayerWeights& last = model_->layers.back();
  for (WeightGroupId group :
       {last.gate_up, last.down, last.shared_gate_up, last.shared_down, last.latent_down, last.latent_up, model_->head})
    if (group >= 0) model_->weights.groups[static_cast<size_t>(group)].of_sampled_rows = true;
  return {};
}

WeightTensor ModelStorage::own(std::string name, std::vector<float> values) {
  WeightTensor tensor;
  tensor.name = std::move(name);
  tensor.rows = 1;
  tensor.columns = values.size();
  vectors.push_back(std::move(values));
  tensor.data = reinterpret_cast<const std::byte*>(vectors.back().data());
  return tensor;
}

Status assemble_weights(const Architecture& architecture, TensorSource& source,
                        const std::shared_ptr<ModelStorage>& storage, Model* model) {
  model->weights.storage = storage;
  return Assembler(architecture, source, *storage, model).run();
}

std::string main_encoding(const WeightTable& weights) {
  uint64_t bytes[kNumEncodings] = {};
  for (const WeightTensor& tensor : weights.tensors) bytes[static_cast<int>(tensor.encoding)] += tensor.bytes();
  const auto most = std::max_element(std::begin(bytes), std::end(bytes)) - std::begin(bytes);
  return encoding_name(static_cast<Encoding>(most));
}

}  // namespace llmrt
