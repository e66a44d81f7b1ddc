// Weights on the device. Every row of a tensor keeps its bits, but its fields are gathered into planes (all quants, then
// all scales ...), so that kernels load 16 aligned bytes at a time; a row starts on 16 bytes. Where lanes fill matrices
// themselves, eight rows are woven (not those in f32): their planes are one, in which they take turns of what lanes load
// at a time. Rows of the segments of a group that have one encoding lie one after another and are joined into one piece.
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
void arrange_row(Encoding encoding, uint64_t columns, const std::byte* row, std::byte* target);
// Eight rows, `bytes_row` apart, into eight times as many; the encoding is not f32, and rows are whole runs of each field.
void weave_rows(Encoding encoding, uint64_t columns, const std::byte* rows, uint64_t bytes_row, std::byte* target);

// Rows of one encoding that lie one after another.
struct Piece {
  Encoding encoding;
  bool woven;
  uint64_t row_begin, num_rows;  // of the tensor or the group
  View view;
  View f16_copy = {};  // the same rows, woven; no bytes: there is none
};

// How kernels are told of encoding and order. Twin: shaders/dequant.glsl kLayout.
inline uint32_t layout_constant(const Piece& piece) {
  return static_cast<uint32_t>(piece.encoding) | (piece.woven ? 256 : 0);
}

class Pipelines;
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
  // Of the largest piece in f16 that steps of so many tokens write out.
  uint64_t halves_bytes(const Traits& traits, uint32_t step_tokens_max) const;
  // Backend::add_f16_copies. The caller has dropped recordings, which may read those that there are. None where lanes
  // do not fill matrices.
  Status add_f16_copies(uint64_t bytes_max, const Device& device, MemoryBook* book, Pipelines* pipelines,
                        Transfer* transfer);
  // The view of a tensor of f32 in one piece (norms, biases, frequencies).
  Result<View> vector(WeightId id) const;

 private:
  RangeSet ranges_, f16_copies_;
  std::vector<std::vector<Piece>> tensors_, groups_;
  std::vector<uint64_t> columns_, group_rows_, group_columns_;
  std::vector<WeightId> biases_;
  std::vector<bool> of_sampled_rows_;
};

}  // namespace llmrt::vulkan
