#include "backends/vulkan/weight_pieces.h"

#include <algorithm>

#include "backends/vulkan/choose_matmul.h"

namespace llmrt::vulkan {
namespace {

// Appends rows, joined to the last piece when they follow it in memory.
void append(std::vector<Piece>* pieces, const Piece& next) {
  if (!pieces->empty()) {
    Piece& last = pieces->back();
    if (last.encoding == next.encoding && last.woven == next.woven && last.is_beyond_f16 == next.is_beyond_f16 &&
        last.row_begin + last.num_rows == next.row_begin && last.view.buffer == next.view.buffer &&
        last.view.offset + last.view.bytes == next.view.offset) {
      last.num_rows += next.num_rows;
      last.view.bytes += next.view.bytes;
      return;
    }
  }
  pieces->push_back(next);
}

// The rows of a segment, from `row` of the group on.
void append_segment(const RowSegment& segment, const std::vector<Piece>& tensor, uint64_t columns, uint64_t row,
                    std::vector<Piece>* pieces) {
  const uint64_t segment_end = segment.row_begin + segment.num_rows;
  for (const Piece& piece : tensor) {
    const uint64_t begin = std::max(segment.row_begin, piece.row_begin);
    const uint64_t end = std::min(segment_end, piece.row_begin + piece.num_rows);
    if (begin >= end) continue;
    const uint64_t stride = row_words(piece.encoding, columns) * 4ull;
    append(pieces, {piece.encoding,
                    piece.woven,
                    row,
                    end - begin,
                    piece.view.part((begin - piece.row_begin) * stride, (end - begin) * stride),
                    {},
                    piece.is_beyond_f16});
    row += end - begin;
  }
}

std::vector<WeightId> stacking_order(const WeightTable& table) {
  std::vector<WeightId> order;
  std::vector<bool> seen(table.tensors.size());
  const auto visit = [&](WeightId id) {
    if (seen[id]) return;
    seen[id] = true;
    order.push_back(id);
  };
  for (const WeightGroup& group : table.groups)
    for (const RowSegment& segment : group.segments) visit(segment.tensor);
  for (size_t id = 0; id < table.tensors.size(); ++id) visit(static_cast<WeightId>(id));
  return order;
}

}  // namespace

WeightRuns plan_weight_runs(const WeightTable& table, const Traits& traits, uint64_t rows_bytes_max) {
  WeightRuns out;
  out.is_beyond_f16.resize(table.tensors.size());
  for (size_t id = 0; id < table.tensors.size(); ++id)
    out.woven.push_back(traits.fragment.m > 0 && can_weave(table, static_cast<WeightId>(id), rows_bytes_max));
  for (const WeightId id : stacking_order(table)) {
    const WeightTensor& tensor = table.tensors[id];
    const uint64_t bytes_row = row_words(tensor.encoding, tensor.columns) * 4ull;
    const uint64_t rows_max = rows_of_bytes(traits.range_bytes, bytes_row, out.woven[id] ? kWovenRows : 1);
    for (uint64_t row = 0; row < tensor.rows; row += rows_max) {
      out.runs.push_back({id, row, std::min(rows_max, tensor.rows - row)});
      out.bytes.push_back(out.runs.back().num_rows * bytes_row);
    }
  }
  return out;
}

WeightPieces make_pieces(const WeightTable& table, const WeightRuns& runs, const std::vector<View>& views) {
  WeightPieces out;
  out.tensors.resize(table.tensors.size());
  for (size_t i = 0; i < runs.runs.size(); ++i) {
    const WeightRun& run = runs.runs[i];
    append(&out.tensors[run.tensor], {table.tensors[run.tensor].encoding,
                                      runs.woven[run.tensor],
                                      run.row_begin,
                                      run.num_rows,
                                      views[i],
                                      {},
                                      runs.is_beyond_f16[run.tensor]});
  }
  for (const WeightGroup& group : table.groups) {
    GroupPieces& made = out.groups.emplace_back(
        GroupPieces{{}, group.rows, group.columns, group.bias, group.of_sampled_rows, group.num_experts});
    uint64_t row = 0;
    for (const RowSegment& segment : group.segments) {
      append_segment(segment, out.tensors[segment.tensor], group.columns, row, &made.pieces);
      row += segment.num_rows;
    }
  }
  return out;
}

Result<View> WeightPieces::vector(WeightId id) const {
  const std::vector<Piece>& pieces = tensors[id];
  if (pieces.size() != 1 || pieces[0].encoding != Encoding::kF32)
    return make_error(ErrorCode::kUnsupported, "vulkan: weight {}: expected a vector of f32, found {} in {} pieces", id,
                      encoding_name(pieces.empty() ? Encoding::kF32 : pieces[0].encoding), pieces.size());
  return pieces[0].view;
}

uint64_t WeightPieces::halves_bytes(const Target& target, uint32_t step_tokens_max) const {
  uint64_t most = 0;
  for (const GroupPieces& group : groups)
    for (const Piece& piece : group.pieces)
      if (!group.of_sampled_rows && group.num_experts == 0 && can_write_halves(target, piece, group.columns) &&
          !piece.has_copy() && step_tokens_max >= halves_rows_min(target.tuning, piece.encoding, false))
        most = std::max(most, piece.num_rows * group.columns * 2);
  return most;
}

bool WeightPieces::has_experts() const {
  return std::ranges::any_of(groups, [](const GroupPieces& group) { return group.num_experts > 0; });
}

}  // namespace llmrt::vulkan
