// Rows of weights on the host: encoded bytes to floats and back. For tools that change the encoding of a model;
// backends decode inside their kernels. Decoding follows GGUF's float32 arithmetic bit for bit (twin:
// tests/reference/dequant.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/weights/encoding.h"

namespace llmrt {

// `row`: row_bytes(encoding, out.size()) bytes; out.size() is a multiple of the encoding's block.
void decode_row(Encoding encoding, const std::byte* row, std::span<float> out);

// Whether encode_row knows it: f32, f16 and the encodings with blocks of 32 or 128.
constexpr bool can_encode(Encoding encoding) {
  return encoding != Encoding::kBF16 && geometry(encoding).elements_block <= 128;
}
// Round to nearest with the block's scale from its extreme numbers, no search and no calibration: q8_0 takes
// amax / 127; q4_0 and q5_0 put the number of greatest magnitude on their lowest quant; q4_1 and q5_1 span from the
// least number to the greatest; fp8 takes amax / 448, mxfp4 the power of two that its standard says. Quants are rounded
// against the scale as stored. `row` as in decode_row.
void encode_row(Encoding encoding, std::span<const float> values, std::byte* row);

}  // namespace llmrt
