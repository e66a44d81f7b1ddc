// What ops are fed: random numbers, weights and KV contents, frequencies of rope.
#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tests/ops/op_harness.h"
#include "tests/reference/number.h"

namespace llmrt::optest {
namespace {

void put_u16(std::byte* at, uint16_t bits) {
  std::memcpy(at, &bits, 2);
}

// Random bits are valid blocks, but for the scales, which must be finite: where those of 16 bits lie, and how large the
// stored numbers times a scale of 1 are, about (root mean square).
struct BlockScales {
  std::vector<uint32_t> steps, mins;  // byte offsets of scales and of offsets
  double rms;
};
BlockScales scales_of(Encoding encoding) {
  switch (encoding) {
    case Encoding::kQ4_0:
      return {{0}, {}, 4.6};
    case Encoding::kQ4_1:
      return {{0}, {2}, 8.8};
    case Encoding::kQ5_0:
      return {{0}, {}, 9.2};
    case Encoding::kQ5_1:
      return {{0}, {2}, 18};
    case Encoding::kQ8_0:
      return {{0}, {}, 74};
    case Encoding::kQ4_K:
      return {{0}, {2}, 8.8 * 36};
    case Encoding::kQ5_K:
      return {{0}, {2}, 18 * 36};
    case Encoding::kQ6_K:
      return {{208}, {}, 18.5 * 74};
    case Encoding::kMXFP4:
      return {{}, {}, 2.93};
    case Encoding::kFP8:
      return {{}, {}, 128};
    default:
      return {{}, {}, 1};
  }
}

// The exponent of mxfp4 (scales of a factor 4 beside each other) and the f32 scale of fp8, whose numbers are made
// finite.
void put_float_scales(Encoding encoding, double scale, std::mt19937_64& rng, std::byte* block) {
  if (encoding == Encoding::kMXFP4) {
    block[0] = static_cast<std::byte>(std::lrint(std::log2(scale)) + 126 + static_cast<long>(rng() % 3));
  } else if (encoding == Encoding::kFP8) {
    const float number = static_cast<float>(scale * (rng() % 8 ? 1 : -1));
    std::memcpy(block, &number, 4);
    for (uint32_t i = 4; i < geometry(encoding).bytes_block; ++i)
      if ((block[i] & std::byte{127}) == std::byte{127}) block[i] ^= std::byte{1};
  }
}

std::vector<std::byte> random_weights(Encoding encoding, uint64_t rows, uint64_t columns, std::mt19937_64& rng,
                                      double deviation) {
  std::vector<std::byte> bytes(rows * row_bytes(encoding, columns));
  std::normal_distribution<double> normal(0, deviation);
  const EncodingGeometry& block = geometry(encoding);
  if (!is_quantized(encoding)) {
    for (uint64_t i = 0; i < rows * columns; ++i) {
      const float x = static_cast<float>(normal(rng));
      if (encoding == Encoding::kF32) std::memcpy(bytes.data() + i * 4, &x, 4);
      if (encoding == Encoding::kF16) put_u16(bytes.data() + i * 2, reference::f16_bits(x));
      if (encoding == Encoding::kBF16) put_u16(bytes.data() + i * 2, reference::bf16_bits(x));
    }
    return bytes;
  }
  for (uint64_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t bits = rng();
    std::memcpy(bytes.data() + i, &bits, std::min<uint64_t>(8, bytes.size() - i));
  }
  const BlockScales scales = scales_of(encoding);
  std::uniform_real_distribution<double> uniform(0.5, 1.5);
  for (uint64_t at = 0; at < bytes.size(); at += block.bytes_block) {
    put_float_scales(encoding, deviation / scales.rms * uniform(rng), rng, bytes.data() + at);
    for (uint32_t offset : scales.steps)
      put_u16(bytes.data() + at + offset,
              reference::f16_bits(deviation / scales.rms * uniform(rng) * (rng() % 8 ? 1 : -1)));
    // Mins bring the mean of the unsigned encodings near zero, as real files have it.
    for (uint32_t offset : scales.mins) {
      const bool k_quant = block.elements_block == 256;
      put_u16(bytes.data() + at + offset,
              reference::f16_bits(deviation / scales.rms * uniform(rng) * (k_quant ? 7.5 : -7.5)));
    }
  }
  return bytes;
}

}  // namespace

std::mt19937_64 test_rng(const std::string& name) {
  return std::mt19937_64(Catch::getSeed() * 0x9e3779b97f4a7c15ull + std::hash<std::string>{}(name));
}

std::vector<double> random_normal(std::mt19937_64& rng, size_t count, double deviation, DType dtype) {
  std::normal_distribution<double> normal(0, deviation);
  std::vector<double> values(count);
  for (double& x : values)
    x = dtype == DType::kF32 ? static_cast<float>(normal(rng)) : reference::round_to(dtype, normal(rng));
  return values;
}

std::vector<float> rope_frequencies(uint32_t rope_dim) {
  std::vector<float> freqs(rope_dim / 2);
  for (uint32_t i = 0; i < freqs.size(); ++i) freqs[i] = static_cast<float>(std::pow(10000.0, -2.0 * i / rope_dim));
  return freqs;
}

// Magnitudes from 1/8 to 2 (of states below 2, in steps of 1/1024), straight as bits: pools are large, and conversions
// would cost more than the test.
KvBytes random_kv(const KvGroup& group, std::mt19937_64& rng) {
  KvBytes kv(group.num_layers, std::vector<std::vector<std::byte>>(group.num_blocks + group.num_host_blocks));
  for (auto& layer : kv) {
    for (auto& block : layer) {
      block.resize(group.data_bytes_block_layer() + group.scale_bytes_block_layer());
      for (uint32_t i = 0; i < group.state_columns; ++i) {
        const float number = static_cast<float>(static_cast<double>(rng() % 4096) / 1024 - 2);
        std::memcpy(block.data() + i * 4, &number, 4);
      }
      for (uint64_t i = 0; i < group.elements_block_layer(); ++i) {
        const uint32_t bits = static_cast<uint32_t>(rng());
        const uint32_t sign = bits & 0x8000;
        if (kv_is_f8(group.dtype)) block[i] = static_cast<std::byte>((bits >> 8 & 0x80) | bits % 0x7f);
        if (kv_is_i8(group.dtype)) block[i] = static_cast<std::byte>(static_cast<int8_t>(bits % 255) - 127);
        if (group.dtype == KvDType::kF16)
          put_u16(block.data() + i * 2, static_cast<uint16_t>(sign | (12u << 10) | (bits & 0x0fff)));
        if (group.dtype == KvDType::kBF16)
          put_u16(block.data() + i * 2, static_cast<uint16_t>(sign | (124u << 7) | (bits & 0x01ff)));
      }
      for (uint64_t i = 0; i < group.scale_bytes_block_layer() / 4; ++i) {
        const double unit = kv_is_f8(group.dtype) ? 0.2 : 1;  // random bits: most fp8 numbers are far from the largest
        const float scale = static_cast<float>(unit * (0.005 + 0.02 * (static_cast<double>(rng() % 1024) / 1024)));
        std::memcpy(block.data() + group.data_bytes_block_layer() + i * 4, &scale, 4);
      }
    }
  }
  return kv;
}

std::vector<uint32_t> random_blocks(uint32_t num_blocks, uint32_t count, std::mt19937_64& rng) {
  std::vector<uint32_t> blocks(num_blocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), rng);
  blocks.resize(count);
  return blocks;
}

std::vector<Encoding> all_encodings() {
  std::vector<Encoding> encodings;
  for (int i = 0; i < kNumEncodings; ++i) encodings.push_back(static_cast<Encoding>(i));
  return encodings;
}

WeightId Suite::add_weight(Encoding encoding, uint64_t rows, uint64_t columns, std::mt19937_64& rng, double deviation) {
  auto bytes = std::make_shared<std::vector<std::byte>>(random_weights(encoding, rows, columns, rng, deviation));
  const WeightId id = static_cast<WeightId>(weights.tensors.size());
  weights.tensors.push_back({fmt::format("w{}", id), encoding, rows, columns, bytes->data(), nullptr});
  // One owner of all bytes: each tensor's owner keeps the one before it alive.
  weights.storage =
      std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>>(weights.storage, bytes);
  return id;
}

WeightId Suite::add_f32(const std::vector<float>& row) {
  auto copy = std::make_shared<std::vector<float>>(row);
  const WeightId id = static_cast<WeightId>(weights.tensors.size());
  weights.tensors.push_back({fmt::format("w{}", id), Encoding::kF32, 1, row.size(),
                             reinterpret_cast<const std::byte*>(copy->data()), nullptr});
  weights.storage =
      std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>>(weights.storage, copy);
  return id;
}

WeightGroupId Suite::add_group(const std::vector<WeightId>& tensors, bool bias, std::mt19937_64& rng) {
  WeightGroup group;
  group.name = fmt::format("g{}", weights.groups.size());
  for (WeightId id : tensors) {
    const WeightTensor& tensor = weights.tensors[static_cast<size_t>(id)];
    group.segments.push_back({id, 0, tensor.rows});
    group.rows += tensor.rows;
    group.columns = tensor.columns;
  }
  if (bias) group.bias = add_weight(Encoding::kF32, 1, group.rows, rng);
  weights.groups.push_back(std::move(group));
  return static_cast<WeightGroupId>(weights.groups.size() - 1);
}

}  // namespace llmrt::optest
