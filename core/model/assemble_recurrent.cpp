#include <cmath>
#include <cstring>

#include "core/model/assembler.h"
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

Status Assembler::add_short_conv(const std::string& prefix, const RecurrentSpec& spec, RecurrentWeights* weights) {
  const uint64_t width = model_->config.width;
  if (auto s = add_group(prefix, kConvIn, {{kConvIn, 3 * width}}, width, Presence::kNever, &weights->in); !s) return s;
  if (auto s = add_numbers(prefix + kShortConv, width, spec.conv_width, &weights->conv); !s) return s;
  return add_group(prefix, kConvOut, {{kConvOut, width}}, width, Presence::kNever, &weights->out);
}

Status Assembler::add_recurrent(const std::string& prefix, LayerSpec* layer, LayerWeights* weights) {
  if (auto s = add_vector(prefix + kAttentionNorm, model_->config.width, &weights->attention_norm); !s) return s;
  return add_short_conv(prefix, layer->recurrent, &weights->recurrent);
}

}  // namespace llmrt
