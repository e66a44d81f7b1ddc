// What a backend is asked to hold: tensors as rows of encoded blocks, and the groups that matmul reads. Built by
// core/model from an opened file (or from a synthetic shape); the bytes stay in the mapped file until a backend copies
// them. Read-only after it is built; may be read from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/weights/encoding.h"

namespace llmrt {

using WeightId = int32_t;       // index into WeightTable::tensors
using WeightGroupId = int32_t;  // index into WeightTable::groups

struct WeightTensor {
  std::string name;
  Encoding encoding = Encoding::kF32;
  uint64_t rows = 0;                // N: output features (1 for vectors)
  uint64_t columns = 0;             // K: input features
  const std::byte* data = nullptr;  // row-major blocks as in the file, or null when `generate` makes them
  // Fills `out` with the encoded bytes that start at byte_offset of this tensor (row-aligned); thread-safe.
  std::function<void(uint64_t byte_offset, std::span<std::byte> out)> generate;

  uint64_t bytes_row() const { return row_bytes(encoding, columns); }
  uint64_t bytes() const { return rows * bytes_row(); }
};

// Rows [row_begin, row_begin + num_rows) of one tensor.
struct RowSegment {
  WeightId tensor = -1;
  uint64_t row_begin = 0;
  uint64_t num_rows = 0;
};

// One matrix for matmul: row segments stacked in order, all with the same number of columns. Files mix encodings
// inside a group (v in q8_0 beside q, k in q5_0), so each segment keeps its own.
struct WeightGroup {
  std::string name;
  std::vector<RowSegment> segments;
  WeightId bias = -1;  // f32 vector of all rows of the group, or -1
  uint64_t rows = 0;
  uint64_t columns = 0;
  bool of_sampled_rows = false;  // multiplies those alone
  bool by_head = false;          // a matrix for each head, multiplied by HeadMatmul
  uint32_t num_experts = 0;      // a stack of experts' matrices, multiplied by the expert ops; 0: one matrix
};

struct WeightTable {
  std::vector<WeightTensor> tensors;
  std::vector<WeightGroup> groups;
  std::shared_ptr<const void> storage;  // keeps the mapped file (or generated vectors) alive

  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const auto& tensor : tensors) sum += tensor.bytes();
    return sum;
  }
};

}  // namespace llmrt
