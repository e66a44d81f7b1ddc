// Weights in e4m3 and their scales. A scale multiplies, also under the name weight_scale_inv. Rows whose columns are no
// multiple of the block are refused: decoded they would be exact in neither f16 nor bf16 with a scale of 24 bits.
#include <cmath>

#include "core/base/checked_math.h"
#include "core/weights/hf_rows.h"
#include "core/weights/hf_tensors.h"

namespace llmrt {
namespace {

Status check_scales(const SourceTensor& scale) {
  const uint64_t count = scale.dims[0] * scale.dims[1];
  for (uint64_t i = 0; i < count; ++i) {
    const float value = number_of(scale, i);
    if (!(std::isfinite(value) && value > 0))
      return make_error(ErrorCode::kCorruptFile,
                        "bad tensor: {}: element {}: expected a finite number above 0, found {}", printable(scale.name),
                        i, value);
  }
  return {};
}

}  // namespace

Status make_fp8(const SourceTensor& weight, const SourceTensor* scale, const HfQuantization& quantization,
                SourceTensor* out) {
  constexpr uint64_t kBlock = geometry(Encoding::kFP8).elements_block;
  const std::string name = printable(weight.name);
  if (scale == nullptr)
    return make_error(ErrorCode::kCorruptFile,
                      "missing tensor: {}: the scale of its numbers, under the name of "
                      "weight_scale or weight_scale_inv",
                      name);
  const uint64_t columns = weight.dims[0], rows = weight.dims[1];
  if (weight.num_dims != 2 || columns % kBlock != 0)
    return make_error(
        ErrorCode::kUnsupported,
        "unsupported model: tensor {}: expected a matrix whose rows are a multiple of {} numbers, file has {}", name,
        kBlock, describe(weight));
  Fp8Scales scales{*scale, 0, 0};
  const uint64_t count = scale->dims[0] * scale->dims[1] * scale->dims[2] * scale->dims[3];
  std::string expected = fmt::format("one scale, or {}, one a row", rows);
  bool is_expected = count == 1 || (count == rows && (scale->num_dims == 1 || scale->dims[0] == 1));
  if (quantization.block_rows > 0) {
    const uint64_t across = ceil_div<uint64_t>(columns, quantization.block_columns);
    const uint64_t down = ceil_div<uint64_t>(rows, quantization.block_rows);
    expected = fmt::format("[{}, {}], one a block of {} rows and {} columns", across, down, quantization.block_rows,
                           quantization.block_columns);
    is_expected = scale->num_dims == 2 && scale->dims == std::array<uint64_t, 4>{across, down, 1, 1};
    scales.block_rows = quantization.block_rows;
    scales.block_columns = quantization.block_columns;
  }
  if (!is_expected || !scale->encoding || is_quantized(*scale->encoding))
    return make_error(ErrorCode::kUnsupported,
                      "unsupported model: tensor {}: expected {} in f32, f16 or bf16, file has {}",
                      printable(scale->name), expected, describe(*scale));
  if (auto status = check_scales(*scale); !status) return status;
  *out = weight;
  out->encoding = Encoding::kFP8;
  out->bytes = {};
  out->generate = fp8_rows(weight, scales);
  return {};
}

}  // namespace llmrt
