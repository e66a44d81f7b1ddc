// The encoded bytes of weights, wherever they come from.
#pragma once

#include <algorithm>
#include <span>

#include "core/weights/weight_table.h"

namespace llmrt {

// Bytes [offset, offset + out.size()) of the tensor, whole rows where they are made: from `data`, or by `generate`.
inline void copy_weight_bytes(const WeightTensor& tensor, uint64_t offset, std::span<std::byte> out) {
  if (tensor.data != nullptr)
    std::copy_n(tensor.data + offset, out.size(), out.begin());
  else
    tensor.generate(offset, out);
}

// Bytes of all rows that the group stacks.
inline uint64_t bytes_of(const WeightTable& table, const WeightGroup& group) {
  uint64_t sum = 0;
  for (const RowSegment& segment : group.segments)
    sum += segment.num_rows * table.tensors[static_cast<size_t>(segment.tensor)].bytes_row();
  return sum;
}

}  // namespace llmrt
