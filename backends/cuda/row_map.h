// Rows of f16 numbers in global memory, described for the copies of warpgroup.cuh: the driver encodes what the hardware
// reads.
#pragma once

#include <cstdint>

#include "core/base/status.h"

namespace llmrt::cuda {

struct alignas(64) RowMap {
  uint64_t words[16] = {};
};

// `columns` numbers a row, a multiple of 8, rows one behind the other from `base` on, which is a multiple of 16 bytes.
// A copy takes `box_rows` of them, at most 256, and of each `box_columns`, a multiple of 8: fewer than 64 come one row
// behind the other, 64 as product_operand wants them (copy_rows), a multiple of 64 as one such box after the other,
// where `columns` is one too (copy_boxes). Errors: unsupported, with the driver's code.
Result<RowMap> make_row_map(const void* base, uint64_t num_rows, uint32_t columns, uint32_t box_rows,
                            uint32_t box_columns = 64);

}  // namespace llmrt::cuda
