#include <cmath>
#include <cstring>

#include "core/model/assembler.h"
#include "core/weights/gathered_rows.h"
#include "core/weights/row_codec.h"
#include "core/weights/weight_bytes.h"

namespace llmrt {

using namespace tensor_names;

Status Assembler::add_numbers(const std::string& name, uint64_t rows, uint64_t columns, WeightId* out, float most) {
  auto tensor = source_.take(name, rows, columns, false);
  if (!tensor) return tensor.error();
  if (is_quantized(tensor->encoding))
    return make_error(ErrorCode::kUnsupported, "unsupported encoding: {}: expected f32, f16 or bf16, found {}", name,
                      encoding_name(tensor->encoding));
  const WeightTensor wide = widen(*tensor);
  for (uint64_t i = 0; i < rows * columns; ++i) {
    float value;
    std::memcpy(&value, wide.data + i * sizeof(float), sizeof(float));
    if (!std::isfinite(value) || value > most)
      return make_error(ErrorCode::kCorruptFile, "bad tensor: {}: element {}: expected a number up to {}, found {}",
                        name, i, most, value);
  }
  *out = add(wide);
  return {};
}

Status Assembler::add_row(const std::string& name, uint64_t rows, uint64_t columns, WeightId* out, float most) {
  if (auto s = add_numbers(name, rows, columns, out, most); !s) return s;
  WeightTensor& tensor = model_->weights.tensors[static_cast<size_t>(*out)];
  tensor.rows = 1;
  tensor.columns = rows * columns;
  return {};
}

Status Assembler::add_short_conv(const std::string& prefix, const RecurrentSpec& spec, RecurrentWeights* weights) {
  const uint64_t width = model_->config.width;
  if (auto s = add_group(prefix, kConvIn, {{kConvIn, 3 * width}}, width, Presence::kNever, &weights->in); !s) return s;
  if (auto s = add_numbers(prefix + kShortConv, width, spec.conv_width, &weights->conv); !s) return s;
  return add_group(prefix, kConvOut, {{kConvOut, width}}, width, Presence::kNever, &weights->out);
}

// The rows that recurrent_parts.cpp reads, from whichever tensors the file has.
Status Assembler::add_delta_rows(const std::string& prefix, RecurrentSpec* spec, WeightGroupId* out) {
  const uint64_t width = model_->config.width, values = spec->value_columns();
  const uint64_t heads = spec->value_heads;
  spec->gates_in_turn = source_.has(prefix + kDeltaBetaAlpha + ".weight");
  const bool by_head = source_.has(prefix + kStateIn + ".weight");
  std::vector<Part> parts;
  if (!by_head) parts = {{kDeltaQkv, spec->conv_columns}, {kDeltaGate, values}};
  if (spec->gates_in_turn)
    parts.push_back({kDeltaBetaAlpha, 2 * heads});
  else
    parts.insert(parts.end(), {{kDeltaBeta, heads}, {kDeltaAlpha, heads}});
  if (spec->gates_in_turn && spec->order != KeyHeadOrder::kDivided)
    return make_error(ErrorCode::kUnsupported, "unsupported model: tensor {}{}.weight: expected {} and {}, found it",
                      prefix, kDeltaBetaAlpha, kDeltaBeta, kDeltaAlpha);
  if (auto s = add_group(prefix, kStateIn, parts, width, Presence::kNever, out); !s) return s;
  if (!by_head) return {};
  // Rows of q, k, v and z of one key head after the other: each kind is gathered in front of the betas.
  const std::string name = prefix + kStateIn + ".weight";
  auto all = source_.take(name, spec->conv_columns + values, width, false);
  if (!all) return all.error();
  const uint64_t own_keys = spec->key_dim, own_values = values / spec->key_heads;
  const uint64_t own = 2 * own_keys + 2 * own_values, rows = own * spec->key_heads;
  const RowRange kinds[] = {
      {0, own_keys}, {own_keys, own_keys}, {2 * own_keys, own_values}, {2 * own_keys + own_values, own_values}};
  std::vector<RowRange> ranges;
  for (const RowRange& kind : kinds)
    for (const RowRange& of_head : ranges_of_each(rows, own, kind.begin, kind.count)) ranges.push_back(of_head);
  const WeightId in_order = add(gathered_rows(name, *std::move(all), std::move(ranges)));
  WeightGroup& group = model_->weights.groups[static_cast<size_t>(*out)];
  group.segments.insert(group.segments.begin(), RowSegment{in_order, 0, rows});
  group.rows += rows;
  return {};
}

Status Assembler::add_gated_delta(const std::string& prefix, RecurrentSpec* spec, RecurrentWeights* weights) {
  if (auto s = add_delta_rows(prefix, spec, &weights->in); !s) return s;
  const uint64_t heads = spec->value_heads;
  if (auto s = add_numbers(prefix + kStateConv + ".weight", spec->conv_columns, spec->conv_width, &weights->conv); !s)
    return s;
  if (auto s = add_numbers(prefix + kStateDecay, 1, heads, &weights->a, 0); !s) return s;
  if (auto s = add_numbers(prefix + kStateDtBias, 1, heads, &weights->dt_bias); !s) return s;
  if (auto s = add_numbers(prefix + kStateNorm, 1, spec->value_dim, &weights->norm); !s) return s;
  const uint64_t width = model_->config.width;
  return add_group(prefix, kStateOut, {{kStateOut, width}}, spec->value_columns(), Presence::kNever, &weights->out);
}

Status Assembler::add_scan(const std::string& prefix, const RecurrentSpec& spec, RecurrentWeights* weights) {
  const uint64_t width = model_->config.width, inner = spec.value_columns(), heads = spec.value_heads;
  if (auto s = add_group(prefix, kStateIn, {{kStateIn, inner + spec.conv_columns + heads}}, width, Presence::kNever,
                         &weights->in);
      !s)
    return s;
  const std::string conv = prefix + kStateConv;
  if (auto s = add_numbers(conv + ".weight", spec.conv_columns, spec.conv_width, &weights->conv); !s) return s;
  if (auto s = add_numbers(conv + ".bias", 1, spec.conv_columns, &weights->conv_bias); !s) return s;
  if (auto s = add_row(prefix + kStateDecay, heads, 1, &weights->a, 0); !s) return s;
  if (auto s = add_row(prefix + kStateSkip, heads, 1, &weights->d); !s) return s;
  if (auto s = add_numbers(prefix + kStateDtBias, 1, heads, &weights->dt_bias); !s) return s;
  if (auto s = add_row(prefix + kStateNorm, spec.key_heads, inner / spec.key_heads, &weights->norm); !s) return s;
  return add_group(prefix, kStateOut, {{kStateOut, width}}, inner, Presence::kNever, &weights->out);
}

Status Assembler::add_recurrent(const std::string& prefix, LayerSpec* layer, LayerWeights* weights) {
  if (auto s = add_vector(prefix + kAttentionNorm, model_->config.width, &weights->attention_norm); !s) return s;
  if (layer->attention == AttentionKind::kSelectiveScan) return add_scan(prefix, layer->recurrent, &weights->recurrent);
  if (layer->attention == AttentionKind::kGatedDelta)
    return add_gated_delta(prefix, &layer->recurrent, &weights->recurrent);
  return add_short_conv(prefix, layer->recurrent, &weights->recurrent);
}

}  // namespace llmrt
