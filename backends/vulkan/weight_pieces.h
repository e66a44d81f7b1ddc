// Where each weight lies, in pieces: rows of one encoding one after another. What fusing and choosing know about the
// weights; made from a weight table and views, so that it needs no device. Rows of the segments of a group that have
// one encoding and lie one after another are joined into one piece.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/vulkan/tuning.h"
#include "backends/vulkan/view.h"
#include "backends/vulkan/weight_rows.h"
#include "core/base/status.h"

namespace llmrt::vulkan {

struct Piece {
  Encoding encoding;
  bool woven;
  uint64_t row_begin, num_rows;  // of the tensor or the group
  View view;
  View f16_copy = {};          // the same rows, woven; no bytes: there is none
  bool is_beyond_f16 = false;  // kernels that round weights to f16 would be wrong (fits_f16)

  bool has_copy() const { return f16_copy.bytes > 0; }
};

// How kernels are told of encoding and order. Twin: shaders/dequant.glsl kLayout.
inline uint32_t layout_constant(const Piece& piece) {
  return static_cast<uint32_t>(piece.encoding) | (piece.woven ? 256 : 0);
}

// A run of rows of one tensor that is allocated in one range.
struct WeightRun {
  WeightId tensor;
  uint64_t row_begin, num_rows;
};
// Tensors in the order in which groups stack them, then the others; rows of one tensor are cut where a range ends.
struct WeightRuns {
  std::vector<bool> woven, is_beyond_f16;  // by tensor; the latter is known once weights were read
  std::vector<WeightRun> runs;
  std::vector<uint64_t> bytes;  // by run: whole multiples of 16, so that runs lie without gaps and pieces join
};
// rows_bytes_max: most bytes of rows that are arranged together.
WeightRuns plan_weight_runs(const WeightTable& table, const Traits& traits, uint64_t rows_bytes_max);

// A group that matmul reads.
struct GroupPieces {
  std::vector<Piece> pieces;
  uint64_t rows = 0, columns = 0;
  WeightId bias = -1;
  bool of_sampled_rows = false;
  uint32_t num_experts = 0;  // 0: one matrix
};

struct WeightPieces {
  std::vector<std::vector<Piece>> tensors;
  std::vector<GroupPieces> groups;

  const std::vector<Piece>& tensor(WeightId id) const { return tensors[id]; }
  const GroupPieces& group(WeightGroupId id) const { return groups[id]; }
  // The view of a tensor of f32 in one piece (norms, biases, frequencies). Errors: unsupported.
  Result<View> vector(WeightId id) const;
  // Bytes in f16 of the largest piece that steps of up to step_tokens_max tokens write out.
  uint64_t halves_bytes(const Target& target, uint32_t step_tokens_max) const;
  bool has_experts() const;
};
// `views`: of the runs.
WeightPieces make_pieces(const WeightTable& table, const WeightRuns& runs, const std::vector<View>& views);

}  // namespace llmrt::vulkan
