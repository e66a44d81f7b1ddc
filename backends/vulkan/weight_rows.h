// How the rows of a weight lie on the device. Every row keeps its bits, but its fields are gathered into planes (all
// quants, then all scales ...), so that kernels load 16 aligned bytes at a time; a row starts on 16 bytes. Where lanes
// fill matrices themselves, eight rows are woven (not those in f32): their planes are one, in which they take turns of
// what lanes load at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/weights/weight_table.h"

namespace llmrt::vulkan {

inline constexpr uint32_t kWovenRows = 8;

constexpr bool is_k_block(Encoding encoding) {
  return encoding >= Encoding::kQ4_K && encoding <= Encoding::kQ6_K;
}
// Numbers of a byte each, in the order of the row.
constexpr bool is_of_bytes(Encoding encoding) {
  return encoding == Encoding::kQ8_0 || encoding == Encoding::kFP8;
}

// Words from one row to the next.
uint32_t row_words(Encoding encoding, uint64_t columns);
// One row of blocks as the file has it, into row_words() words.
void arrange_row(Encoding encoding, uint64_t columns, const std::byte* row, std::byte* target);
// Eight rows, `bytes_row` apart, into eight times as many words; the encoding is not f32, and rows are whole runs of
// each field.
void weave_rows(Encoding encoding, uint64_t columns, const std::byte* rows, uint64_t bytes_row, std::byte* target);
// Whether kernels that round weights to f16 are right for a row of mxfp4 or fp8: no number is NaN, or beyond f16 or so
// far below it that nothing is left. Other encodings are not looked at.
bool fits_f16(Encoding encoding, uint64_t columns, const std::byte* row);
// Whether the tensor's rows can be woven, and groups take them eight by eight.
bool can_weave(const WeightTable& table, WeightId id, uint64_t rows_bytes_max);
// How many rows fit in `bytes`, in multiples of `step`, and at least one of those.
uint64_t rows_of_bytes(uint64_t bytes, uint64_t bytes_row, uint64_t step);

}  // namespace llmrt::vulkan
