// Rows of one tensor in another order, made while they are read.
#pragma once

#include <string>
#include <vector>

#include "core/weights/weight_table.h"

namespace llmrt {

// Rows [begin, begin + count) of a tensor.
struct RowRange {
  uint64_t begin, count;
};

// A tensor of the rows of `ranges`, one range behind the other, in the encoding of `from`. Its `generate` may be called
// from several threads if that of `from` may.
WeightTensor gathered_rows(std::string name, WeightTensor from, std::vector<RowRange> ranges);

// Of each run of `period` rows those from `begin` on, `count` of them.
std::vector<RowRange> ranges_of_each(uint64_t num_rows, uint64_t period, uint64_t begin, uint64_t count);

}  // namespace llmrt
