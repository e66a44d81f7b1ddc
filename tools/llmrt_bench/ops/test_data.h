// Bytes to run kernels on, and keys and values as numbers.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/kv/kv_format.h"
#include "core/ops/ops.h"

namespace llmrt::bench {

// NaNs in f32, f16 and bf16, and a number that no i32 output has.
std::vector<std::byte> poisoned(uint64_t num_bytes);
// Normal numbers of variance 1.
std::vector<std::byte> random_numbers(DType dtype, uint64_t num_bytes, uint64_t seed);

// A block of one layer, as Backend::write_kv takes it: numbers from 1/8 to 2 of either sign, and scales that make such
// ones of 8-bit numbers.
std::vector<std::byte> random_block(const KvGroup& pool, uint64_t seed);
// Makes NaNs of the keys and values of the block's `token`th token, or of their scales.
void poison_token(const KvGroup& pool, uint32_t token, std::span<std::byte> block);
// That token's keys, then its values.
std::vector<double> kv_numbers(const KvGroup& pool, std::span<const std::byte> block, uint32_t token,
                               const KvTensorScales& scales);

}  // namespace llmrt::bench
