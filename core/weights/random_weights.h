// Random weights of any encoding out of a counter-based hash: nothing is stored, any range of rows can be made at any
// time on any thread and is the same each time. For synthetic models, where speed is measured without a download.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "core/weights/encoding.h"

namespace llmrt {

// A WeightTensor::generate (weight_table.h) of rows of `columns` numbers. Numbers have mean 0 and a standard deviation
// of about `deviation` (float encodings within a factor of sqrt(2)); scales differ from block to block and take both
// signs, all quants occur. Byte offset and length of a call must be whole rows.
std::function<void(uint64_t byte_offset, std::span<std::byte> out)> random_weights(Encoding encoding, uint64_t columns,
                                                                                   uint64_t seed, double deviation);

// Seeds from names.
uint64_t hash_name(std::string_view name, uint64_t seed = 0);

}  // namespace llmrt
