#include "tools/llmrt_bench/ops/test_data.h"

#include <array>
#include <bit>
#include <cstring>
#include <random>

#include "tests/reference/machine.h"

namespace llmrt::bench {
namespace {

constexpr uint32_t kPoison = 0x7fc17fc1u;

}  // namespace

std::vector<std::byte> poisoned(uint64_t num_bytes) {
  std::vector<std::byte> bytes(num_bytes);
  for (uint64_t i = 0; i < num_bytes; ++i) bytes[i] = static_cast<std::byte>(kPoison >> (i % 4 * 8));
  return bytes;
}

// Drawn from a table: tensors are large.
std::vector<std::byte> random_numbers(DType dtype, uint64_t num_bytes, uint64_t seed) {
  static const std::vector<float> normal = [] {
    std::mt19937_64 rng(1);
    std::normal_distribution<float> distribution;
    std::vector<float> numbers(1 << 14);
    for (float& number : numbers) number = distribution(rng);
    return numbers;
  }();
  std::vector<std::array<std::byte, 4>> encoded(normal.size());
  for (size_t i = 0; i < normal.size(); ++i) {
    uint32_t bits = std::bit_cast<uint32_t>(normal[i]);
    if (dtype == DType::kF16) bits = reference::f16_bits(normal[i]);
    if (dtype == DType::kBF16) bits = reference::bf16_bits(normal[i]);
    std::memcpy(encoded[i].data(), &bits, 4);
  }
  const uint32_t size = dtype_bytes(dtype);
  std::vector<std::byte> bytes(num_bytes);
  for (uint64_t i = 0; i < num_bytes / size; ++i) {
    const uint64_t hash = (i + seed * 0x632be59bd9b4e019ull + 1) * 0x9e3779b97f4a7c15ull;
    std::memcpy(bytes.data() + i * size, encoded[hash >> 50].data(), size);
  }
  return bytes;
}

std::vector<std::byte> random_block(const KvGroup& pool, uint64_t seed) {
  std::mt19937_64 rng(seed);
  const uint64_t data_bytes = pool.data_bytes_block_layer();
  std::vector<std::byte> bytes(data_bytes + pool.scale_bytes_block_layer());
  for (uint64_t i = 0; i < pool.elements_block_layer(); ++i) {
    const auto bits = static_cast<uint32_t>(rng());
    const auto put = [&](uint32_t magnitude) {
      const auto half = static_cast<uint16_t>((bits & 0x8000) | magnitude);
      std::memcpy(bytes.data() + i * 2, &half, 2);
    };
    if (pool.dtype == KvDType::kF16) put((12u << 10) | (bits & 0x0fff));
    if (pool.dtype == KvDType::kBF16) put((124u << 7) | (bits & 0x01ff));
    if (kv_is_i8(pool.dtype)) bytes[i] = static_cast<std::byte>(static_cast<int8_t>(bits % 255 - 127));
    if (kv_is_f8(pool.dtype)) bytes[i] = static_cast<std::byte>((bits >> 8 & 0x80) | bits % 0x7f);
  }
  for (uint64_t at = data_bytes; at < bytes.size(); at += 4) {
    const float scale = 0.005f + 0.005f * static_cast<float>(rng() % 1024) / 1024;
    std::memcpy(bytes.data() + at, &scale, 4);
  }
  return bytes;
}

std::vector<double> kv_numbers(const KvGroup& pool, std::span<const std::byte> block, uint32_t token,
                               const KvTensorScales& scales) {
  reference::KvPool one{pool, {{}}, {{}}};
  const uint64_t data_bytes = pool.data_bytes_block_layer();
  one.data[0].assign(block.begin(), block.begin() + static_cast<long>(data_bytes));
  one.scales[0].resize(pool.scale_bytes_block_layer() / 4);
  if (!one.scales[0].empty())
    std::memcpy(one.scales[0].data(), block.data() + data_bytes, pool.scale_bytes_block_layer());
  std::vector<double> numbers(2ull * pool.num_kv_heads * pool.head_dim);
  double* out = numbers.data();
  for (uint32_t which = 0; which < pool.planes(); ++which)
    for (uint32_t head = 0; head < pool.num_kv_heads; ++head, out += pool.head_dim)
      one.load(0, 0, which, head, token, which ? scales.v : scales.k, out);
  return numbers;
}

void poison_token(const KvGroup& pool, uint32_t token, std::span<std::byte> block) {
  const auto fill = [&](uint64_t offset, uint64_t count) {
    std::fill_n(block.begin() + static_cast<long>(offset), count, std::byte{0xff});
  };
  const uint32_t element_bytes = kv_element_bytes(pool.dtype), num_scales = pool.scales_vector();
  for (uint32_t which = 0; which < pool.planes(); ++which)
    for (uint32_t head = 0; head < pool.num_kv_heads; ++head) {
      const uint64_t first = pool.element_index(0, which, head, token);
      fill(first * element_bytes, uint64_t{pool.head_dim} * element_bytes);
      fill(pool.data_bytes_block_layer() + first / pool.head_dim * num_scales * 4, num_scales * 4);
    }
}

}  // namespace llmrt::bench
