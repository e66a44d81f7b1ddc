// Weights on the device. Every row of a tensor keeps its bits, but its fields are gathered into planes (all quants, then
// all scales ...), so that kernels load 16 aligned bytes at a time; a row starts on 16 bytes. Rows of the segments of a
// group that have one encoding lie one after another and are joined into one piece.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/vulkan/memory.h"
#include "core/backend/backend.h"
#include "core/weights/weight_table.h"

namespace llmrt::vulkan {

// Words from one row to the next.
uint32_t row_words(Encoding encoding, uint64_t columns);
// One row of blocks as the file has it, into row_words() words.
void arrange_row(Encoding encoding, uint64_t columns, const std::byte* row, uint32_t* out);

// Rows of one encoding that lie one after another.
struct Piece {
  Encoding encoding;
  uint64_t row_begin, num_rows;  // of the tensor or the group
  View view;
};

class Transfer;

class Weights {
 public:
  // Errors: out_of_memory; unsupported (a vector that is not f32 where kernels want f32 is found when an op uses it).
  static Result<Weights> load(const Device& device, MemoryBook* book, Transfer* transfer, const WeightTable& table,
                              const Progress& progress);

  const std::vector<Piece>& tensor(WeightId id) const { return tensors_[id]; }
  const std::vector<Piece>& group(WeightGroupId id) const { return groups_[id]; }
  uint64_t columns(WeightId id) const { return columns_[id]; }
  uint64_t group_rows(WeightGroupId id) const { return group_rows_[id]; }
  uint64_t group_columns(WeightGroupId id) const { return group_columns_[id]; }
  WeightId bias(WeightGroupId id) const { return biases_[id]; }
  // The view of a tensor of f32 in one piece (norms, biases, frequencies).
  Result<View> vector(WeightId id) const;

 private:
  RangeSet ranges_;
  std::vector<std::vector<Piece>> tensors_, groups_;
  std::vector<uint64_t> columns_, group_rows_, group_columns_;
  std::vector<WeightId> biases_;
};

}  // namespace llmrt::vulkan
