// How the numbers of a weight tensor are stored: the block geometry of each encoding, bit for bit as GGUF has it. A row
// is a whole number of blocks; backends keep the bits in device memory (planes may be re-ordered for alignment) and
// dequantise inside the kernels. Twins: row_codec.cpp, tests/reference/dequant.h, backends/cuda/dequant.cuh,
// shaders/dequant.glsl.
//
// mxfp4 (OCP Microscaling, GGUF type 39): byte 0 is e, an exponent of 8 bits, then nibbles n as in q4_0; the value is
// {0, 1, 2, 3, 4, 6, 8, 12, -0, -1, -2, -3, -4, -6, -8, -12}[n] * 2^(e - 128). e = 255 makes all 32 numbers NaN.
// fp8 is our own form of checkpoints whose weights are e4m3fn with a scale for the tensor, a row or 128 columns: an f32
// scale, then 128 bytes s eeee mmm; the value is scale * (eeee ? 2^(eeee - 7) * (1 + mmm / 8) : 2^-6 * mmm / 8). 0x7f
// and 0xff are NaN; nothing is infinite, the greatest is 448.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace llmrt {

enum class Encoding : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kMXFP4,
  kFP8
};
inline constexpr int kNumEncodings = 13;

struct EncodingGeometry {
  const char* name;         // lower case, as command lines and reports spell it
  uint32_t elements_block;  // numbers in one block
  uint32_t bytes_block;     // bytes of one block
};

inline constexpr EncodingGeometry kEncodingGeometry[kNumEncodings] = {
    {"f32", 1, 4},      {"f16", 1, 2},     {"bf16", 1, 2},    {"q4_0", 32, 18},   {"q4_1", 32, 20},
    {"q5_0", 32, 22},   {"q5_1", 32, 24},  {"q8_0", 32, 34},  {"q4_k", 256, 144}, {"q5_k", 256, 176},
    {"q6_k", 256, 210}, {"mxfp4", 32, 17}, {"fp8", 128, 132},
};

constexpr const EncodingGeometry& geometry(Encoding encoding) {
  return kEncodingGeometry[static_cast<int>(encoding)];
}
constexpr const char* encoding_name(Encoding encoding) {
  return geometry(encoding).name;
}
constexpr bool is_quantized(Encoding encoding) {
  return geometry(encoding).elements_block > 1;
}
// Bytes of one row of `columns` numbers; columns is a multiple of elements_block.
constexpr uint64_t row_bytes(Encoding encoding, uint64_t columns) {
  return columns / geometry(encoding).elements_block * geometry(encoding).bytes_block;
}
constexpr std::optional<Encoding> parse_encoding(std::string_view name) {
  for (int i = 0; i < kNumEncodings; ++i)
    if (name == kEncodingGeometry[i].name) return static_cast<Encoding>(i);
  return std::nullopt;
}

}  // namespace llmrt
