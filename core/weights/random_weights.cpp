#include "core/weights/random_weights.h"

#include <xxhash.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/base/check.h"

namespace llmrt {

namespace {

// A bijection of 64 bits in which every input bit reaches every output bit.
constexpr uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
constexpr uint64_t kStep = 0x9e3779b97f4a7c15ull;

// The nearest f16, also where that is subnormal (scales of k-quants are that small). |value| < 65504.
uint16_t f16_bits(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (magnitude < 0x1p-14) return static_cast<uint16_t>(sign | std::lrint(magnitude * 0x1p24));
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);  // [0.5, 1)
  return static_cast<uint16_t>(sign + ((exponent + 14) << 10) + std::lrint((2 * fraction - 1) * 1024));
}

// Random bits are numbers already when the quants are uniform; what has to be put right is where the scales stand.
struct BlockScales {
  uint32_t offset;  // of the scale; the f16 minimum, where there is one, follows it
  bool has_minimum;
  double deviation;       // of the numbers of a block whose scale is 1, all other bits random
  double minimum_factor;  // minimum / scale for a mean of 0
};

constexpr BlockScales block_scales(Encoding encoding) {
  switch (encoding) {
    case Encoding::kQ4_0:
      return {0, false, 4.637, 0};
    case Encoding::kQ4_1:
      return {0, true, 4.610, -7.5};
    case Encoding::kQ5_0:
      return {0, false, 9.247, 0};
    case Encoding::kQ5_1:
      return {0, true, 9.233, -15.5};
    case Encoding::kQ8_0:
      return {0, false, 73.90, 0};
    case Encoding::kQ4_K:
      return {0, true, 258.3, 7.5};
    case Encoding::kQ5_K:
      return {0, true, 526.9, 15.5};
    case Encoding::kQ6_K:
      return {208, false, 1365.7, 0};
    case Encoding::kMXFP4:
      return {0, false, 5.852, 0};
    case Encoding::kFP8:
      return {0, false, 0.828, 0};
    default:
      return {};
  }
}

// Float encodings: sign, two low exponent bits and mantissa stay random, then a base exponent is added: magnitudes from
// 2^e to 2^(e+4), whose root mean square is 7.04 * 2^e. The numbers of fp8 blocks are made so too, with e = -3.
struct FloatPattern {
  uint64_t mask, base;  // for each 64-bit word
};

FloatPattern float_pattern(Encoding encoding, double deviation) {
  const int exponent = static_cast<int>(std::lrint(std::log2(deviation / 7.04)));
  const auto repeat16 = [](uint64_t bits) { return bits * 0x0001000100010001ull; };
  switch (encoding) {
    case Encoding::kF16:
      return {repeat16(0x8fff), repeat16(static_cast<uint64_t>(exponent + 15) << 10)};
    case Encoding::kBF16:
      return {repeat16(0x81ff), repeat16(static_cast<uint64_t>(exponent + 127) << 7)};
    default:
      return {0x81ffffff81ffffffull, (static_cast<uint64_t>(exponent + 127) << 23) * 0x100000001ull};
  }
}

class Generator {
 public:
  Generator(Encoding encoding, uint64_t columns, uint64_t seed, double deviation)
      : encoding_(encoding), bytes_row_(row_bytes(encoding, columns)), seed_(seed), scales_(block_scales(encoding)) {
    if (!is_quantized(encoding)) {
      pattern_ = float_pattern(encoding, deviation);
      return;
    }
    pattern_ = {~0ull, 0};
    if (encoding == Encoding::kMXFP4) {
      set_exponents(deviation);
      return;
    }
    if (encoding == Encoding::kFP8) pattern_ = {0x9f9f9f9f9f9f9f9full, 0x2020202020202020ull};
    for (int i = 0; i < 256; ++i) {  // scales within a quarter of the mean, half of them negative
      const double sign = i % 2 == 0 ? 1 : -1;
      const double scale = sign * deviation / scales_.deviation * (0.75 + i / 511.0);
      if (encoding == Encoding::kFP8)
        table_[i] = std::bit_cast<std::array<uint16_t, 2>>(static_cast<float>(scale));
      else
        table_[i] = {f16_bits(scale), f16_bits(scale * scales_.minimum_factor)};
    }
    bytes_scale_ = encoding == Encoding::kFP8 || scales_.has_minimum ? 4 : 2;
  }

  void operator()(uint64_t byte_offset, std::span<std::byte> out) const {
    LLMRT_CHECK(byte_offset % bytes_row_ == 0 && out.size() % bytes_row_ == 0, "whole rows are generated");
    const uint64_t first_row = byte_offset / bytes_row_;
    for (uint64_t i = 0; i < out.size() / bytes_row_; ++i) {
      std::byte* row = out.data() + i * bytes_row_;
      fill(mix(seed_ + mix(first_row + i + kStep)), row);
      if (is_quantized(encoding_)) set_scales(row);
    }
  }

 private:
  // Two powers of two, each as often as the deviation asks for.
  void set_exponents(double deviation) {
    const double exact = std::log2(deviation / scales_.deviation) + 128, lower = std::floor(exact);
    const double num_upper = 256 * (std::exp2(2 * (exact - lower)) - 1) / 3;
    for (int i = 0; i < 256; ++i) table_[i][0] = static_cast<uint16_t>(lower + (i < num_upper ? 1 : 0));
    bytes_scale_ = 1;
  }

  void fill(uint64_t state, std::byte* row) const {
    const auto word_at = [&](uint64_t i) { return (mix(state + i * kStep) & pattern_.mask) + pattern_.base; };
    const uint64_t num_words = bytes_row_ / 8;
    for (uint64_t i = 0; i < num_words; ++i) {
      const uint64_t word = word_at(i);
      std::memcpy(row + i * 8, &word, 8);
    }
    const uint64_t last = word_at(num_words);
    std::memcpy(row + num_words * 8, &last, bytes_row_ % 8);
  }

  // The first byte of the scale field, still random, says which scale.
  void set_scales(std::byte* row) const {
    const uint32_t bytes_block = geometry(encoding_).bytes_block;
    for (std::byte* scale = row + scales_.offset; scale < row + bytes_row_; scale += bytes_block)
      std::memcpy(scale, table_[static_cast<uint8_t>(*scale)].data(), bytes_scale_);
  }

  Encoding encoding_;
  uint64_t bytes_row_;
  uint64_t seed_;
  BlockScales scales_;
  uint32_t bytes_scale_ = 0;  // with the minimum
  FloatPattern pattern_{};
  std::array<std::array<uint16_t, 2>, 256> table_{};
};

}  // namespace

std::function<void(uint64_t, std::span<std::byte>)> random_weights(Encoding encoding, uint64_t columns, uint64_t seed,
                                                                   double deviation) {
  return Generator(encoding, columns, seed, deviation);
}

uint64_t hash_name(std::string_view name, uint64_t seed) {
  return XXH3_64bits_withSeed(name.data(), name.size(), seed);
}

}  // namespace llmrt
