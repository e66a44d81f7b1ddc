// Which matmul kernel for how many rows, and one dispatch for each piece of the group.
#include <algorithm>

#include "backends/vulkan/recorder.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

constexpr uint32_t kVectorRowsMax = 8;
constexpr uint32_t kTile = 64;  // twin: shaders/matmul_tile.comp

struct Choice {
  Kernel kernel;
  Groups groups;
};

// The matrix units' tile for so many rows of x. Few rows: small tiles whose subgroups share the columns of a step, so
// that enough loads are in flight; many rows: large tiles that use every number often.
Choice choose_matrix(const Traits& traits, const Piece& piece, uint32_t rows, uint32_t columns, uint32_t x_dtype,
                     bool bias) {
  struct Tile {
    uint32_t rows, cols, part_rows, part_cols, slices;
  };
  Tile tile{128, 128, 32, 64, 1};
  if (rows <= 64) {
    const uint32_t slices = columns % 256 == 0 ? 4 : columns % 128 == 0 ? 2 : 1;
    tile = {32, rows <= 16 ? 16u : rows <= 32 ? 32u : 64u, 16, rows <= 16 ? 16u : 32u, slices};
    if (rows > 32) tile.slices = std::min(slices, 2u);
  }
  const uint32_t subgroups = tile.rows / tile.part_rows * (tile.cols / tile.part_cols) * tile.slices;
  return {{"matmul_matrix",
           subgroups * traits.subgroup_size,
           {static_cast<uint32_t>(piece.encoding), x_dtype, bias, tile.rows, tile.cols, tile.part_rows, tile.part_cols,
            tile.slices, traits.matrix_m, traits.matrix_n, traits.matrix_k}},
          {ceil_div(static_cast<uint32_t>(piece.num_rows), tile.rows), ceil_div(rows, tile.cols)}};
}

// Weight rows of a team of matmul_vector, and units of each that a lane has in flight. Measured on an H200 with one row of
// x: f16 2,638 GB/s with 1 x 8 (4 x 1: 2,153), q4_0 best with 2 x 2.
struct VectorShape {
  uint32_t team_rows, unroll;
};
VectorShape vector_shape(Encoding encoding, uint32_t rows) {
  if (rows > 2) return {rows <= 4 ? 4u : 2u, 1};
  if (!is_quantized(encoding)) return {1, 8};
  return {2, 2};
}

// `rows` of x against the rows of a piece. The constants' order is each shader's.
Choice choose(const Traits& traits, const Piece& piece, uint32_t rows, uint32_t columns, DType x, bool bias) {
  const uint32_t encoding = static_cast<uint32_t>(piece.encoding), num_rows = static_cast<uint32_t>(piece.num_rows);
  const uint32_t x_dtype = static_cast<uint32_t>(x);
  if (traits.cpu_kernels && traits.subgroup_size == 8) {
    const uint32_t cols = std::min(rows, 4u), lane_rows = rows == 1 ? 4 : 2;
    return {{"matmul_lanes", 8, {encoding, lane_rows, cols, x_dtype, bias}},
            {ceil_div(num_rows, 8 * lane_rows), ceil_div(rows, cols)}};
  }
  if (rows <= kVectorRowsMax) {
    const auto [team_rows, unroll] = vector_shape(piece.encoding, rows);
    const uint32_t teams = traits.tier >= Tier::kSubgroup ? 4 : 1;
    const uint32_t group_size = traits.tier >= Tier::kSubgroup ? teams * traits.subgroup_size : 64;
    return {{"matmul_vector", group_size, {encoding, team_rows, rows, x_dtype, bias, unroll}},
            {ceil_div(num_rows, teams * team_rows)}};
  }
  // Matrix units multiply f16: f32 factors keep their precision elsewhere.
  if (traits.tier >= Tier::kMatrix && x == DType::kF16 && piece.encoding != Encoding::kF32 && columns % 64 == 0)
    return choose_matrix(traits, piece, rows, columns, x_dtype, bias);
  return {{"matmul_tile", 256, {encoding, x_dtype, bias}}, {ceil_div(num_rows, kTile), ceil_div(rows, kTile)}};
}

}  // namespace

Status record(Recorder& r, const Matmul& op) {
  const uint32_t columns = r.desc(op.x).columns, rows = r.list().rows_of(op.x);
  if (columns % 32 != 0)
    return make_error(ErrorCode::kUnsupported, "vulkan: matmul: expected columns in multiples of 32, found {}",
                      columns);
  const View x = r.tensor(op.x), out = r.tensor(op.out);
  View bias = out;
  const bool with_bias = r.weights().bias(op.group) >= 0;
  if (with_bias) {
    auto vector = r.weights().vector(r.weights().bias(op.group));
    if (!vector) return vector.error();
    bias = *vector;
  }
  for (const Piece& piece : r.weights().group(op.group)) {
    const Choice choice = choose(r.traits(), piece, rows, columns, r.desc(op.x).dtype, with_bias);
    Push push;
    push.add(x).add(piece.view).add(bias).add(out).add(r.live_count(op.x)).add(columns);
    push.add(row_words(piece.encoding, columns)).add(static_cast<uint32_t>(piece.num_rows));
    push.add(static_cast<uint32_t>(piece.row_begin)).add(r.desc(op.out).columns);
    // Pieces write different columns of out, so they need no barrier between each other: each claims one byte range
    // that no other piece claims.
    const View reads[] = {x, piece.view};
    const View writes[] = {&piece == &r.weights().group(op.group).front() ? out : View{}};
    r.dispatch(choice.kernel, push, choice.groups, reads, writes);
  }
  return {};
}

}  // namespace llmrt::vulkan
