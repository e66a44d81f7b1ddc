#include "core/weights/row_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/check.h"
#include "core/base/half.h"
#include "core/weights/small_floats.h"

namespace llmrt {
namespace {

uint16_t load_u16(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | p[1] << 8);
}
void store_u16(uint16_t value, uint8_t* p) {
  p[0] = static_cast<uint8_t>(value);
  p[1] = static_cast<uint8_t>(value >> 8);
}

// Blocks of 32 quants with 4 or 5 bits: scale, a minimum or none, the fifth bits or none, then nibbles, where number j
// shares a byte with number j + 16.
struct SmallBlock {
  bool has_minimum, has_fifth;

  int quants() const { return has_fifth ? 32 : 16; }
  int offset() const { return has_minimum ? 0 : quants() / 2; }
  int fifth_at() const { return has_minimum ? 4 : 2; }
  int nibbles_at() const { return fifth_at() + (has_fifth ? 4 : 0); }
};

SmallBlock small_block(Encoding encoding) {
  return {encoding == Encoding::kQ4_1 || encoding == Encoding::kQ5_1,
          encoding == Encoding::kQ5_0 || encoding == Encoding::kQ5_1};
}

void decode_small(SmallBlock layout, const uint8_t* block, float* out) {
  const float scale = f16_value(load_u16(block));
  // -0 adds nothing, not even a sign.
  const float minimum = layout.has_minimum ? f16_value(load_u16(block + 2)) : -0.0f;
  const uint8_t* nibbles = block + layout.nibbles_at();
  for (int j = 0; j < 32; ++j) {
    int quant = j < 16 ? nibbles[j] & 15 : nibbles[j - 16] >> 4;
    if (layout.has_fifth) quant |= (block[layout.fifth_at() + j / 8] >> (j % 8) & 1) << 4;
    out[j] = scale * static_cast<float>(quant - layout.offset()) + minimum;
  }
}

void encode_small(SmallBlock layout, const float* values, uint8_t* block) {
  const auto [least, greatest] = std::minmax_element(values, values + 32);
  const float extreme = -*least > *greatest ? *least : *greatest;
  const float wanted = layout.has_minimum ? (*greatest - *least) / static_cast<float>(layout.quants() - 1)
                                          : extreme / -static_cast<float>(layout.offset());
  store_u16(f16_bits(wanted), block);
  if (layout.has_minimum) store_u16(f16_bits(*least), block + 2);
  const float scale = f16_value(load_u16(block));
  const float minimum = layout.has_minimum ? f16_value(load_u16(block + 2)) : 0.0f;
  std::fill(block + layout.fifth_at(), block + layout.nibbles_at() + 16, uint8_t{0});
  for (int j = 0; j < 32; ++j) {
    const float exact = scale == 0 ? 0 : (values[j] - minimum) / scale;
    const int quant = std::clamp(static_cast<int>(std::nearbyint(exact)) + layout.offset(), 0, layout.quants() - 1);
    block[layout.nibbles_at() + j % 16] |= static_cast<uint8_t>((quant & 15) << (j < 16 ? 0 : 4));
    if (layout.has_fifth) block[layout.fifth_at() + j / 8] |= static_cast<uint8_t>(quant >> 4 << (j % 8));
  }
}

void decode_q8_0(const uint8_t* block, float* out) {
  const float scale = f16_value(load_u16(block));
  for (int j = 0; j < 32; ++j) out[j] = scale * static_cast<float>(static_cast<int8_t>(block[2 + j]));
}

void encode_q8_0(const float* values, uint8_t* block) {
  float amax = 0;
  for (int j = 0; j < 32; ++j) amax = std::max(amax, std::fabs(values[j]));
  store_u16(f16_bits(amax / 127), block);
  const float scale = f16_value(load_u16(block));
  for (int j = 0; j < 32; ++j) {
    const float exact = scale == 0 ? 0 : std::clamp(values[j] / scale, -127.0f, 127.0f);
    block[2 + j] = static_cast<uint8_t>(static_cast<int8_t>(std::nearbyint(exact)));
  }
}

// q4_k and q5_k: scale of scales, scale of minima, 12 bytes with 8 pairs of 6 bits, the fifth bits (bit j of byte i is
// for number i of run j) or none, then nibbles: two runs of 32 numbers share 32 bytes.
void decode_k45(bool has_fifth, const uint8_t* block, float* out) {
  const float scale = f16_value(load_u16(block)), minimum = f16_value(load_u16(block + 2));
  const uint8_t* packed = block + 4;
  const uint8_t* fifth = block + 16;
  const uint8_t* nibbles = fifth + (has_fifth ? 32 : 0);
  for (int run = 0; run < 8; ++run) {
    const int scale_bits = run < 4 ? packed[run] & 63 : (packed[run + 4] & 15) | packed[run - 4] >> 6 << 4;
    const int minimum_bits = run < 4 ? packed[run + 4] & 63 : packed[run + 4] >> 4 | packed[run] >> 6 << 4;
    const float step = scale * static_cast<float>(scale_bits), base = minimum * static_cast<float>(minimum_bits);
    for (int i = 0; i < 32; ++i) {
      int quant = nibbles[run / 2 * 32 + i] >> (run % 2 * 4) & 15;
      if (has_fifth) quant |= (fifth[i] >> run & 1) << 4;
      out[run * 32 + i] = step * static_cast<float>(quant) - base;
    }
  }
}

// q6_k, for each half of 128 numbers: four runs of 32 with low nibbles in 64 bytes (runs 0 and 1 low, 2 and 3 high) and
// bit pairs in 32 bytes; a signed scale for every 16 numbers; the scale of scales last.
void decode_q6_k(const uint8_t* block, float* out) {
  const float scale = f16_value(load_u16(block + 208));
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, run = i / 32 % 4, column = i % 32;
    const int low = block[half * 64 + run % 2 * 32 + column] >> (run / 2 * 4) & 15;
    const int high = block[128 + half * 32 + column] >> (run * 2) & 3;
    const float step = scale * static_cast<float>(static_cast<int8_t>(block[192 + i / 16]));
    out[i] = step * static_cast<float>((low | high << 4) - 32);
  }
}

// Number j shares a byte with number j + 16, as in q4_0.
void decode_mxfp4(const uint8_t* block, float* out) {
  for (int j = 0; j < 32; ++j) out[j] = mxfp4_value(block[0], block[1 + j % 16] >> (j < 16 ? 0 : 4) & 15);
}

// The scale of the OCP specification: the greatest magnitude gets the exponent of 4 to 6, and what passes 6 becomes 6.
void encode_mxfp4(const float* values, uint8_t* block) {
  float amax = 0;
  for (int j = 0; j < 32; ++j) amax = std::max(amax, std::fabs(values[j]));
  int exponent = 0;
  std::frexp(amax, &exponent);  // amax in [2^(exponent - 1), 2^exponent)
  const int biased = amax > 0 ? std::clamp(exponent - 3 + 127, 0, 254) : 0;
  std::fill(block, block + 17, static_cast<uint8_t>(0));
  block[0] = static_cast<uint8_t>(biased);
  for (int j = 0; j < 32; ++j) {
    const int number = e2m1_bits(std::ldexp(values[j], 127 - biased));
    block[1 + j % 16] |= static_cast<uint8_t>(number << (j < 16 ? 0 : 4));
  }
}

void decode_fp8(const uint8_t* block, float* out) {
  float scale = 0;
  std::memcpy(&scale, block, 4);
  for (int j = 0; j < 128; ++j) out[j] = scale * e4m3_value(block[4 + j]);
}

void encode_fp8(const float* values, uint8_t* block) {
  float amax = 0;
  for (int j = 0; j < 128; ++j) amax = std::max(amax, std::fabs(values[j]));
  const float scale = amax / 448;
  std::memcpy(block, &scale, 4);
  for (int j = 0; j < 128; ++j) block[4 + j] = e4m3_bits(scale == 0 ? 0 : values[j] / scale);
}

void decode_block(Encoding encoding, const uint8_t* block, float* out) {
  switch (encoding) {
    case Encoding::kF32:
      std::memcpy(out, block, 4);
      return;
    case Encoding::kF16:
      *out = f16_value(load_u16(block));
      return;
    case Encoding::kBF16:
      *out = bf16_value(load_u16(block));
      return;
    case Encoding::kQ4_0:
    case Encoding::kQ4_1:
    case Encoding::kQ5_0:
    case Encoding::kQ5_1:
      return decode_small(small_block(encoding), block, out);
    case Encoding::kQ8_0:
      return decode_q8_0(block, out);
    case Encoding::kQ4_K:
    case Encoding::kQ5_K:
      return decode_k45(encoding == Encoding::kQ5_K, block, out);
    case Encoding::kQ6_K:
      return decode_q6_k(block, out);
    case Encoding::kMXFP4:
      return decode_mxfp4(block, out);
    case Encoding::kFP8:
      return decode_fp8(block, out);
  }
}

}  // namespace

void decode_row(Encoding encoding, const std::byte* row, std::span<float> out) {
  const EncodingGeometry& shape = geometry(encoding);
  LLMRT_CHECK(out.size() % shape.elements_block == 0, "whole blocks");
  const auto* block = reinterpret_cast<const uint8_t*>(row);
  for (size_t i = 0; i < out.size(); i += shape.elements_block, block += shape.bytes_block)
    decode_block(encoding, block, out.data() + i);
}

void encode_row(Encoding encoding, std::span<const float> values, std::byte* row) {
  const EncodingGeometry& shape = geometry(encoding);
  LLMRT_CHECK(can_encode(encoding) && values.size() % shape.elements_block == 0, "an encoding with an encoder");
  auto* block = reinterpret_cast<uint8_t*>(row);
  for (size_t i = 0; i < values.size(); i += shape.elements_block, block += shape.bytes_block) {
    const float* numbers = values.data() + i;
    if (encoding == Encoding::kF32)
      std::memcpy(block, numbers, 4);
    else if (encoding == Encoding::kF16)
      store_u16(f16_bits(*numbers), block);
    else if (encoding == Encoding::kQ8_0)
      encode_q8_0(numbers, block);
    else if (encoding == Encoding::kMXFP4)
      encode_mxfp4(numbers, block);
    else if (encoding == Encoding::kFP8)
      encode_fp8(numbers, block);
    else
      encode_small(small_block(encoding), numbers, block);
  }
}

}  // namespace llmrt
