// Which matmul kernel for how many rows, and one dispatch for each piece of the group.
#include <algorithm>
#include <bit>
#include <optional>

#include "backends/vulkan/halves.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

constexpr uint32_t kVectorRowsMaxBesideMatrix = 3;

struct Choice {
  Kernel kernel;
  Groups groups;
  // matmul_matrix: how many workgroups may share the columns of a tile, the bytes that each then hands over, and how
  // many of them fill a core; and tiles that all numbers of rows count alike (0: no matrix units)
  uint32_t splits_max = 1, split_bytes = 0, core_groups = 1, invariant_tiles = 0;
  uint64_t shared_bytes = 0;  // matmul_batch, matmul_wide: what their workgroups hand over

  uint32_t group_arrivals = 1;  // words of a workgroup that count arrivals
  // matmul_batch, matmul_wide: workgroups that have an equal part of each tile; 0: they have others
  uint32_t parts = 1;

  // Words that count arrivals; where one workgroup has all tiles, one that nobody reads.
  uint64_t num_arrivals() const {
    return shared_bytes > 0 && groups.x == 1 ? 1 : uint64_t{groups.x} * groups.y * group_arrivals;
  }
};

// Of matmul_matrix: weight rows by rows of x, of a workgroup and of a subgroup; slices and steps ahead.
struct Tile {
  uint32_t rows, cols, part_rows, part_cols, slices = 1, ahead = 1;
};

// The tile of many rows. A multiprocessor holds one group, so time goes by rounds of the device; a tile half as large
// again takes 1.35 times as long, and 1.22 times where rows of x are added and weights are expanded for more of them.
Tile choose_large_tile(const Traits& traits, const Piece& piece, uint32_t rows) {
  struct Candidate {
    Tile tile;
    double cost, quantized_cost;  // 0: of no use
  };
  constexpr Candidate kCandidates[] = {
      {{128, 128, 32, 64}, 1, 1}, {{192, 128, 48, 64}, 1.35, 0}, {{128, 192, 64, 48}, 1.35, 1.22}};
  Tile best = kCandidates[0].tile;
  double least = 0;
  for (const Candidate& candidate : kCandidates) {
    const double cost = is_quantized(piece.encoding) ? candidate.quantized_cost : candidate.cost;
    const Tile& tile = candidate.tile;
    const uint32_t cores = traits.num_cores;
    const uint32_t tiles = ceil_div(rows, tile.cols) * ceil_div(static_cast<uint32_t>(piece.num_rows), tile.rows);
    const uint32_t splits = std::max(1u, cores / tiles);
    const double time = cost * ceil_div(tiles * splits, cores) / splits;
    if (cost == 0 || (least > 0 && time >= least)) continue;
    best = tile;
    least = time;
  }
  return best;
}

// The tile where lanes have few registers: as many subgroups, with small parts, that none of Intel's compilers spills
// (not measured).
Tile choose_small_tile(uint32_t rows, uint32_t slices) {
  return rows <= 16 ? Tile{64, 16, 16, 8, slices} : rows <= 32 ? Tile{128, 32, 16, 16} : Tile{128, 64, 16, 16};
}

// The matrix units' tile for so many rows of x: the fastest measured on an H200 (docs/performance.md). Times
// there rise in waves as if groups of a multiprocessor had some 48 KB of shared memory in all, so a tile of few rows is
// small enough for two of them. Batch-invariant: without slices, which are an order of sums of their own, and small
// enough for the totals of serial splits.
Choice choose_matrix(const Traits& traits, const Piece& piece, uint32_t rows, uint32_t columns, bool bias,
                     bool batch_invariant) {
  const uint32_t slices = rows <= 16 && columns % 128 == 0 && !batch_invariant ? 2 : 1;
  const Tile tile = has_small_lanes(traits)         ? choose_small_tile(rows, slices)
                    : rows <= 16                    ? Tile{64, 16, 16, 16, slices, 2}
                    : rows <= 32                    ? Tile{128, 32, 16, 32, 1, 2}
                    : rows <= 64 || batch_invariant ? Tile{128, 64, 32, 32, 1, 2}
                    : is_nvidia(traits)             ? choose_large_tile(traits, piece, rows)
                                                    : Tile{128, 128, 32, 64};
  const uint32_t subgroups = tile.rows / tile.part_rows * (tile.cols / tile.part_cols) * tile.slices;
  return {{"matmul_matrix",
           subgroups * traits.subgroup_size,
           {layout_constant(piece), bias, tile.rows, tile.cols, tile.part_rows, tile.part_cols, tile.slices,
            traits.matrix_m, traits.matrix_n, traits.matrix_k, tile.ahead}},
          {ceil_div(rows, tile.cols), ceil_div(static_cast<uint32_t>(piece.num_rows), tile.rows)},
          columns / (64 * tile.slices),
          tile.rows * tile.cols * 4,
          tile.cols <= 32 ? 2u : 1u,
          ceil_div(static_cast<uint32_t>(piece.num_rows), 128u)};
}

// Workgroups that share the columns of each tile: enough to fill the device once.
uint32_t num_splits(const Traits& traits, const std::vector<Choice>& choices) {
  uint32_t tiles = 0, splits = UINT32_MAX, core_groups = 1;
  for (const Choice& choice : choices) {
    LLMRT_CHECK(choice.core_groups * choice.split_bytes <= kSplitBytesCore, "matmul: products");
    tiles += choice.groups.x * choice.groups.y;
    splits = std::min(splits, choice.splits_max);
    core_groups = choice.core_groups;
  }
  return std::max(1u, std::min(splits, traits.num_cores * core_groups / tiles));
}

// Splits of a batch-invariant list, a function of the weights' shape: of the columns, in steps of 64 within a split.
// Made by workgroups beside each other where there is one tile of rows, else by one.
uint32_t invariant_splits(const Traits& traits, std::vector<Choice>* choices) {
  uint32_t tiles = 0, splits = UINT32_MAX;
  for (const Choice& choice : *choices) {
    tiles += choice.invariant_tiles;
    splits = std::min(splits, choice.splits_max);
  }
  splits = tiles == 0 ? 1 : std::clamp(traits.num_cores / tiles, 1u, splits);
  const bool serial = splits > 1 && (*choices)[0].groups.x > 1;
  for (Choice& choice : *choices)
    if (choice.invariant_tiles > 0) choice.kernel.constants.push_back(serial ? splits : 1);
  return serial ? 1 : splits;
}

// Weight rows of a team of matmul_vector, and units of each that a lane has in flight. Measured on an H200 with one row
// of x: f16 2,638 GB/s with 1 x 8 (4 x 1: 2,153), q4_0 best with 2 x 2. Where registers are few, no more than leave a
// SIMD four subgroups, which with two units a lane have several times the bytes under way that such memories need.
struct VectorShape {
  uint32_t team_rows, unroll;
};
VectorShape vector_shape(const Traits& traits, Encoding encoding, uint32_t rows) {
  // A unit of quants becomes 32 numbers for each row.
  if (has_small_lanes(traits) && (is_quantized(encoding) || rows > 2)) return {traits.lane_registers / 64, 1};
  if (has_small_lanes(traits)) return {1, 4};
  if (has_small_simds(traits) && is_quantized(encoding)) return {2, 1};
  if (rows > 2) return {rows <= 4 ? 4u : 2u, 1};
  if (!is_quantized(encoding)) return {1, 8};
  return {2, 2};
}

// At most one matrix of rows of x, in matmul_fragment. With NVIDIA's driver matmul_batch takes less time from four rows
// of 16-bit weights on (docs/performance.md).
bool takes_few(const Traits& traits, const Piece& piece, uint32_t rows) {
  const bool is_measured = is_nvidia(traits) && !is_quantized(piece.encoding);
  return rows <= (is_measured ? std::min(traits.fragment.n, 3u) : traits.fragment.n);
}

constexpr uint32_t kBatchMatricesMax = 8;  // of rows of x, in a tile of matmul_batch

// More than one tile of rows was measured with NVIDIA's driver alone. Of 16-bit weights matmul_wide multiplies more
// than three tiles and a half faster.
bool takes_fragment(const Traits& traits, const Piece& piece, uint32_t rows, DType x, bool batch_invariant) {
  const uint32_t tile_rows = traits.fragment.n * kBatchMatricesMax;
  const uint32_t rows_max = !is_nvidia(traits)             ? tile_rows
                            : is_quantized(piece.encoding) ? 4 * tile_rows
                                                           : 7 * tile_rows / 2;
  return rows <= rows_max && !batch_invariant && x == DType::kF16 && piece.encoding != Encoding::kF32;
}

uint32_t unit_columns(Encoding encoding) {  // twin: shaders/dequant.glsl kUnitVecs
  return !is_quantized(encoding) ? 8 : encoding == Encoding::kQ8_0 ? 16 : 32;
}

// Of matmul_row: subgroups of a group, columns of a turn, tiles of weight rows, groups, tiles of one, and of how many
// it has room for sums. A processor's compiler takes minutes over more subgroups.
struct RowShape {
  uint32_t subgroups, turn_columns, tiles, groups, group_tiles, room;
};
RowShape row_shape(const Traits& traits, const Piece& piece, uint32_t columns, bool activates) {
  const uint32_t rows = static_cast<uint32_t>(piece.num_rows), m = traits.fragment.m;
  const bool is_float = !is_quantized(piece.encoding);
  const uint32_t subgroups_max = traits.is_cpu ? 4 : piece.encoding == Encoding::kQ8_0 ? 20 : 16;
  const uint32_t turn_columns = (is_float ? 2 : 1) * traits.fragment.n * unit_columns(piece.encoding);
  // Each subgroup has turns of every tile of floats.
  const uint32_t subgroups = is_float ? std::clamp(columns / turn_columns, 1u, subgroups_max) : subgroups_max;
  // Each lane has at most one quad of what the group stores.
  const uint32_t lane_tiles = 4 * subgroups * traits.subgroup_size / m, tile_bytes = m * 4;
  const uint32_t used_bytes = columns * 9 / 4 + 512 + (is_float ? 0 : subgroups * tile_bytes);
  const uint32_t free_bytes = traits.shared_bytes - std::min(used_bytes, traits.shared_bytes);
  const uint32_t room = std::min(free_bytes / (is_float ? subgroups * tile_bytes : tile_bytes), lane_tiles);
  const uint32_t tiles = activates ? ceil_div(rows / 2, m / 2) : ceil_div(rows, m);
  const uint32_t rounds = ceil_div(tiles, std::max(traits.num_cores * room, 1u));
  const uint32_t groups = std::clamp(traits.num_cores * rounds, 1u, tiles);
  return {subgroups, turn_columns, tiles, groups, ceil_div(tiles, groups), room};
}

// One row of x, in whole turns. Lanes have at most one quad each of what leaves a norm. Where a model's layers differ,
// in K mixes, q, k and v would have kernels of three kinds, and a layer's no longer fit in a core's instruction cache:
// that costs more than is gained.
bool takes_row(const Traits& traits, const Piece& piece, uint32_t rows, uint32_t columns, bool activates, double share,
               bool turns) {
  const Fragment& fragment = traits.fragment;
  const bool is_mix = share < 1 || (turns && piece.encoding >= Encoding::kQ4_K);
  if (rows != 1 || is_mix || !traits.has_int64 || fragment.sum_run * fragment.row_lanes != fragment.n) return false;
  const RowShape shape = row_shape(traits, piece, columns, activates);
  return columns % shape.turn_columns == 0 && columns <= 4 * fragment.m * shape.subgroups * traits.subgroup_size &&
         shape.group_tiles <= shape.room;
}

Choice choose_row(const Traits& traits, const Piece& piece, uint32_t columns, bool bias,
                  const GatedActivation* activation, const Rope* rope, uint32_t pool_dtype) {
  const Fragment& fragment = traits.fragment;
  const RowShape shape = row_shape(traits, piece, columns, activation != nullptr);
  return {
      {"matmul_row",
       shape.subgroups * traits.subgroup_size,
       {layout_constant(piece), bias, columns, shape.subgroups, fragment.m, fragment.n, fragment.k, fragment.row_lanes,
        shape.tiles, activation != nullptr, activation ? static_cast<uint32_t>(activation->activation) : 0,
        rope ? rope_constant(*rope) : 0, pool_dtype, shape.groups}},
      {shape.groups}};
}

// One matrix of rows of x. Subgroups of a group, the fewer the more groups there are, and steps ahead: the fastest
// measured on an H200 (docs/performance.md). A processor's compiler takes minutes over many subgroups.
Choice choose_few(const Traits& traits, const Piece& piece, uint32_t rows, uint32_t columns, bool bias,
                  const GatedActivation* activation, double share, const Rope* rope = nullptr,
                  uint32_t pool_dtype = 0) {
  if (takes_row(traits, piece, rows, columns, activation != nullptr, share, rope != nullptr))
    return choose_row(traits, piece, columns, bias, activation, rope, pool_dtype);
  const Fragment& shape = traits.fragment;
  const uint32_t layout = layout_constant(piece), num_rows = static_cast<uint32_t>(piece.num_rows);
  const uint32_t groups = activation ? ceil_div(num_rows / 2, shape.m / 2) : ceil_div(num_rows, shape.m);
  const bool quantized = is_quantized(piece.encoding), is_k = piece.encoding >= Encoding::kQ4_K;
  const bool is_small = quantized && piece.encoding != Encoding::kQ8_0;
  const uint32_t subgroups = traits.is_cpu                                ? 2
                             : groups < 2 * traits.num_cores && !is_k     ? 16
                             : groups >= 8 * traits.num_cores && is_small ? 4
                                                                          : 8;
  const uint32_t ahead = !quantized || (rows == 1 && activation && subgroups == 4 && !is_k) ? 2 : 1;
  const bool tail = columns / unit_columns(piece.encoding) % shape.row_lanes != 0;
  return {
      {"matmul_fragment",
       subgroups * traits.subgroup_size,
       {layout, bias, ahead, subgroups, shape.m, shape.n, shape.k, shape.row_lanes, tail, activation != nullptr,
        activation ? static_cast<uint32_t>(activation->activation) : 0, rope ? rope_constant(*rope) : 0, pool_dtype}},
      {groups}};
}

// Of matmul_batch: subgroups of a group, matrices of weight rows of each, matrices of rows of x, columns of a lane in a
// step, groups of a core.
struct BatchShape {
  uint32_t subgroups, parts, matrices, lane_columns, core_groups;

  uint32_t tile_rows(const Traits& traits) const { return subgroups * parts * traits.fragment.m; }
};

// How the steps of all tiles are dealt out to groups.
struct BatchCut {
  uint32_t col_tiles, groups;
  uint32_t parts;        // groups that have an equal part of each tile; 0: they have others
  uint64_t group_bytes;  // that a group hands over at most: its sums of the tiles where it begins and ends
  bool is_whole;         // tiles are hardly larger than the weight
};
BatchCut cut_batch(const Traits& traits, const Piece& piece, uint32_t rows, uint32_t columns, double share,
                   const BatchShape& shape) {
  constexpr uint32_t kStepsMin = 4;  // of a group
  const uint32_t num_rows = static_cast<uint32_t>(piece.num_rows), unit = unit_columns(piece.encoding);
  const uint32_t tile_rows = shape.tile_rows(traits);
  const uint32_t tile_cols = shape.matrices * traits.fragment.n;
  const uint32_t tile_steps = ceil_div(columns / unit, shape.lane_columns / unit * traits.fragment.row_lanes);
  const uint32_t row_tiles = ceil_div(num_rows, tile_rows), steps = row_tiles * tile_steps;
  BatchCut cut{};
  cut.col_tiles = ceil_div(rows, tile_cols);
  cut.group_bytes = 2ull * tile_rows * tile_cols * 4 * cut.col_tiles;
  const double room = std::min(static_cast<double>(traits.num_cores * shape.core_groups) / cut.col_tiles,
                               static_cast<double>(uint64_t{traits.num_cores} * kSplitBytesCore / cut.group_bytes));
  const uint32_t groups_max = std::max(1u, std::min(static_cast<uint32_t>(share * room), steps / kStepsMin));
  // A few groups less, where each then has an equal part of one tile.
  const uint32_t group_steps = ceil_div(steps, groups_max);
  cut.parts = tile_steps % group_steps == 0 ? tile_steps / group_steps : 0;
  cut.groups = cut.parts > 0 ? steps / group_steps : groups_max;
  cut.is_whole = row_tiles * tile_rows - num_rows <= num_rows / 32;
  return cut;
}

// The fastest measured on an H200 and an H100 (docs/performance.md), where registers and 48 KB of shared memory hold as
// many groups as are said. A processor's compiler takes minutes over more.
BatchShape batch_shape(const Traits& traits, const Piece& piece, uint32_t rows, uint32_t columns, double share) {
  const uint32_t all_matrices = ceil_div(rows, traits.fragment.n), tiles = ceil_div(all_matrices, kBatchMatricesMax);
  const uint32_t matrices = ceil_div(all_matrices, tiles);
  const bool quantized = is_quantized(piece.encoding), is_k = piece.encoding >= Encoding::kQ4_K;
  if (traits.is_cpu) return {2, 1, 2, unit_columns(piece.encoding), 2};
  if (matrices <= 2) return {8, 1, matrices, quantized ? 64u : 32u, 2};
  // Sixteen subgroups of a core hide what decoding waits for; of such shapes the first that gives groups equal parts.
  if ((is_k || (piece.encoding == Encoding::kQ8_0 && matrices <= 4)) && tiles == 1) {
    std::vector<BatchShape> shapes{{16, 1, matrices, 32, 1}, {12, 1, matrices, 32, 1}};
    if (matrices <= 6) shapes.insert(shapes.begin(), {8, 1, matrices, 32, 2});
    for (const BatchShape& shape : shapes) {
      const BatchCut cut = cut_batch(traits, piece, rows, columns, share, shape);
      if (cut.parts > 0 && cut.is_whole) return shape;
    }
    return shapes[0];
  }
  if (matrices == 3 && piece.encoding == Encoding::kQ4_0) return {8, 1, 3, 64, 2};
  // Two matrices of weight rows halve the reading of x. With a tile for each core three groups of it have enough steps.
  if (matrices == 4 && piece.encoding == Encoding::kQ4_0) {
    const BatchShape three{4, 2, 4, 32, 3};
    return piece.num_rows / three.tile_rows(traits) >= traits.num_cores ? three : BatchShape{8, 1, 4, 32, 2};
  }
  if (matrices <= 4 && !quantized) return {8, 1, matrices, 32, 2};
  if (!quantized && matrices >= 6 && tiles == 1) return {8, 1, matrices, 16, 2};
  if (matrices <= 6 && tiles == 1) return {4, 2, matrices, 32, 2};
  return {8, 2, matrices, 32, 1};
}

// `share`: of the device, for a piece of a group.
Choice choose_batch(const Traits& traits, const Piece& piece, uint32_t rows, uint32_t columns, bool bias,
                    const GatedActivation* activation, double share) {
  const Fragment& fragment = traits.fragment;
  const BatchShape shape = batch_shape(traits, piece, rows, columns, share);
  const BatchCut cut = cut_batch(traits, piece, rows, columns, share, shape);
  const uint32_t lane_units = shape.lane_columns / unit_columns(piece.encoding);
  const uint32_t row_units = columns / unit_columns(piece.encoding);
  Choice choice{
      {"matmul_batch",
       shape.subgroups * traits.subgroup_size,
       {layout_constant(piece), bias, shape.subgroups, fragment.m, fragment.n, fragment.k, fragment.row_lanes,
        row_units % (lane_units * fragment.row_lanes) != 0, activation != nullptr,
        activation ? static_cast<uint32_t>(activation->activation) : 0, shape.parts, shape.matrices, lane_units}},
      {cut.groups, cut.col_tiles}};
  choice.shared_bytes = cut.groups > 1 ? cut.groups * cut.group_bytes : 16;  // one has whole tiles alone
  choice.group_arrivals = shape.subgroups;
  choice.parts = cut.parts;
  return choice;
}

// Of matmul_wide: subgroups of a group, matrices of weight rows and of rows of x of each, and the tile that they make.
// A subgroup's sums take half of its registers. A processor's compiler takes minutes over more.
struct WideShape {
  uint32_t subgroups, parts, matrices, tile_rows, tile_cols;
};
WideShape wide_shape(const Traits& traits) {
  const uint32_t subgroups = traits.is_cpu ? 2 : 4, parts = subgroups, matrices = traits.is_cpu ? 2 : 8;
  return {subgroups, parts, matrices, subgroups * parts * traits.fragment.m, matrices * traits.fragment.n};
}
constexpr uint32_t kWideCoreGroups = 2;

// More rows than takes_fragment. Tiles must be whole somewhere in the weight and in x, and matrices lie on 16 bytes of
// what is written. Encodings with more to decode spill registers, and matmul_matrix is faster.
bool takes_wide(const Traits& traits, const Piece& piece, uint32_t rows, uint32_t columns, uint32_t out_columns,
                DType x, bool activates, bool batch_invariant) {
  const Fragment& fragment = traits.fragment;
  const WideShape shape = wide_shape(traits);
  const uint32_t outputs = static_cast<uint32_t>(piece.num_rows) / (activates ? 2 : 1);
  const bool is_light = piece.encoding == Encoding::kF16 || piece.encoding == Encoding::kBF16 ||
                        piece.encoding == Encoding::kQ8_0 || piece.encoding == Encoding::kQ4_0;
  return fragment.m > 0 && traits.has_int64 && !batch_invariant && x == DType::kF16 && is_light &&
         columns % (fragment.row_lanes * unit_columns(piece.encoding)) == 0 && outputs % fragment.m == 0 &&
         piece.num_rows >= shape.tile_rows && piece.row_begin % 8 == 0 && out_columns % 8 == 0 &&
         rows % fragment.n == 0 && rows >= shape.tile_cols;
}

// `share`: of the device, for a piece of a group.
Choice choose_wide(const Traits& traits, const Piece& piece, uint32_t rows, uint32_t columns, bool bias,
                   const GatedActivation* activation, double share) {
  const Fragment& fragment = traits.fragment;
  const WideShape shape = wide_shape(traits);
  const uint32_t row_tiles = ceil_div(static_cast<uint32_t>(piece.num_rows), shape.tile_rows);
  const uint32_t col_tiles = ceil_div(rows, shape.tile_cols);
  const uint64_t group_bytes = 2ull * shape.tile_rows * shape.tile_cols * 4 * col_tiles;
  const uint64_t room = std::min<uint64_t>(traits.num_cores * kWideCoreGroups / col_tiles,
                                           uint64_t{traits.num_cores} * kSplitBytesCore / group_bytes);
  const uint32_t groups_max = std::max(1u, static_cast<uint32_t>(share * static_cast<double>(room)));
  // A few groups less than have room, where then none has parts of two tiles.
  uint32_t groups = groups_max;
  for (uint32_t fewer = groups_max; fewer > 0 && fewer * 8 >= groups_max * 7; --fewer)
    if (row_tiles % fewer == 0 || fewer % row_tiles == 0) {
      groups = fewer;
      break;
    }
  groups = std::min(groups, row_tiles * (columns / (fragment.row_lanes * unit_columns(piece.encoding))));
  Choice choice{{"matmul_wide",
                 shape.subgroups * traits.subgroup_size,
                 {layout_constant(piece), bias, shape.subgroups, fragment.m, fragment.n, fragment.k, fragment.row_lanes,
                  activation != nullptr, activation ? static_cast<uint32_t>(activation->activation) : 0, shape.parts,
                  shape.matrices, columns, row_words(piece.encoding, columns) * 4, row_tiles % groups != 0}},
                {groups, col_tiles}};
  choice.shared_bytes = groups > 1 ? groups * group_bytes : 16;
  choice.group_arrivals = shape.subgroups;
  choice.parts = groups % row_tiles == 0 ? groups / row_tiles : 0;
  return choice;
}

// Rows [first, first + num_rows) of a piece in f16; with an activation those of gate, and as many of up.
Piece slice_of(const Piece& piece, uint64_t first, uint64_t num_rows, bool activates, const View& view) {
  return {Encoding::kF16, true, piece.row_begin + first, activates ? 2 * num_rows : num_rows, view};
}
// All rows.
Piece copy_of(const Piece& piece) {
  return slice_of(piece, 0, piece.num_rows, false, piece.f16_copy);
}

// Weights in f16, of which there is a copy or which are written out a slice of the rows at a time.
bool takes_halves(const Recorder& r, const Piece& piece, uint32_t rows, uint32_t columns, uint32_t out_columns, DType x,
                  bool activates) {
  const uint64_t tile_rows = wide_shape(r.traits()).tile_rows;
  const bool has_room = r.resources().halves.bytes >= std::min(2 * piece.num_rows, 4 * tile_rows) * columns;
  return can_write_halves(r.traits(), piece, columns) && rows >= halves_rows_min(piece) &&
         (piece.f16_copy.bytes > 0 || has_room) &&
         takes_wide(r.traits(), copy_of(piece), rows, columns, out_columns, x, activates, r.list().batch_invariant);
}

Choice choose_fragment(const Traits& traits, const Piece& piece, uint32_t rows, uint32_t columns, bool bias,
                       const GatedActivation* activation, double share) {
  if (takes_few(traits, piece, rows)) return choose_few(traits, piece, rows, columns, bias, activation, share);
  return choose_batch(traits, piece, rows, columns, bias, activation, share);
}

bool takes_lanes(const Traits& traits) {
  return traits.cpu_kernels && traits.subgroup_size == 8;
}

// Rows of a lane: more need more registers than there are, but share more of what x costs.
Choice choose_lanes(const Piece& piece, uint32_t rows, DType x, bool bias, const GatedActivation* activation,
                    bool batch_invariant) {
  const uint32_t cols = batch_invariant ? 4 : std::min(rows, 4u), lane_rows = cols == 1 ? 8 : 2;
  const uint32_t lane_outputs = activation ? lane_rows / 2 : lane_rows;
  const uint32_t outputs = static_cast<uint32_t>(piece.num_rows) / (activation ? 2 : 1);
  return {{"matmul_lanes",
           8,
           {layout_constant(piece), lane_rows, cols, static_cast<uint32_t>(x), bias, activation != nullptr,
            activation ? static_cast<uint32_t>(activation->activation) : 0}},
          {ceil_div(outputs, 8 * lane_outputs), ceil_div(rows, cols)}};
}

// How many invocations share x's rows, and blocks of 4 x 4 sums each has both ways: four of them read half as much a
// product, where lanes are known to have registers for them (some 210). As many rows as there are, up to 64; few
// invocations have much to store each, for which some lanes have no registers either.
struct SumTile {
  uint32_t col_lanes, quads;
  uint32_t weight_rows() const { return 64 * quads; }
  uint32_t x_rows() const { return 4 * col_lanes * quads; }
  uint32_t shared_bytes() const { return (weight_rows() + x_rows()) * 32 * 4; }  // twin: shaders/matmul_tile.comp
  uint32_t core_groups() const { return (quads > 1 ? 16u : 32u) / col_lanes; }   // that registers hold
};
SumTile sum_tile(const Traits& traits, uint32_t rows, bool batch_invariant) {
  const bool has_registers =
      is_nvidia(traits) || traits.is_cpu || (traits.simd_registers > 0 && !has_small_simds(traits));
  constexpr SumTile kLarge{8, 2};
  if (batch_invariant) return {16, 1};
  if (!has_registers || traits.shared_bytes < kLarge.shared_bytes()) return {rows <= 32 ? 8u : 16u, 1};
  return rows <= 16 ? SumTile{4, 1} : rows <= 32 ? SumTile{4, 2} : kLarge;
}

// `rows` of x against the rows of a piece. The constants' order is each shader's.
Choice choose(const Traits& traits, const Piece& piece, uint32_t rows, uint32_t columns, uint32_t out_columns, DType x,
              bool bias, bool batch_invariant) {
  const double share = static_cast<double>(piece.num_rows) / out_columns;
  if (takes_fragment(traits, piece, rows, x, batch_invariant))
    return choose_fragment(traits, piece, rows, columns, bias, nullptr, share);
  if (takes_wide(traits, piece, rows, columns, out_columns, x, false, batch_invariant))
    return choose_wide(traits, piece, rows, columns, bias, nullptr, share);
  const uint32_t layout = layout_constant(piece), num_rows = static_cast<uint32_t>(piece.num_rows);
  const uint32_t x_dtype = static_cast<uint32_t>(x);
  if (takes_lanes(traits)) return choose_lanes(piece, rows, x, bias, nullptr, batch_invariant);
  // Matrix units multiply f16: f32 factors keep their precision elsewhere.
  if (traits.tier >= Tier::kMatrix && x == DType::kF16 && piece.encoding != Encoding::kF32 && columns % 64 == 0 &&
      (rows > kVectorRowsMaxBesideMatrix || batch_invariant))
    return choose_matrix(traits, piece, rows, columns, bias, batch_invariant);
  if (rows <= vector_rows_max(traits, is_quantized(piece.encoding)) && !batch_invariant) {
    const auto [team_rows, unroll] = vector_shape(traits, piece.encoding, rows);
    const uint32_t teams = traits.tier >= Tier::kSubgroup ? 4 : 1;
    const uint32_t group_size = traits.tier >= Tier::kSubgroup ? teams * traits.subgroup_size : 64;
    return {{"matmul_vector", group_size, {layout, team_rows, rows, x_dtype, bias, unroll}},
            spread(traits, ceil_div(num_rows, teams * team_rows))};
  }
  constexpr uint32_t kSplitColumnsMin = 256;
  const SumTile tile = sum_tile(traits, rows, batch_invariant);
  Choice choice{{},
                {ceil_div(num_rows, tile.weight_rows()), ceil_div(rows, tile.x_rows())},
                batch_invariant ? 1 : std::max(columns / kSplitColumnsMin, 1u),
                tile.weight_rows() * tile.x_rows() * 4,
                tile.core_groups()};
  // Their results depend on whether a row is one of many.
  const bool may_round = x == DType::kF16 && !batch_invariant && piece.encoding != Encoding::kF32;
  const bool takes_dots = may_round && traits.tier == Tier::kDots && is_quantized(piece.encoding) && columns % 64 == 0;
  if (takes_dots || (may_round && traits.packed_f16))
    choice.kernel = {takes_dots ? "matmul_dots" : "matmul_pairs", 16 * tile.col_lanes,
                     {layout, bias, tile.quads, tile.col_lanes}};
  else
    choice.kernel = {"matmul_tile", 16 * tile.col_lanes, {layout, x_dtype, bias, tile.quads, tile.col_lanes}};
  return choice;
}

// Bytes of matmul_fragment's push constants.
constexpr uint32_t kPushCount = 32, kPushResidual = 72, kPushNorms = 120;

// How matmul_fragment reads x where another one has left its norm for it to end.
struct NormEnd {
  View x, parts, squares, factor, next_factor;
  uint32_t slot = 0;
  std::vector<uint32_t> constants;  // behind those of choose_few

  void add_to(Choice* choice) const {
    choice->kernel.constants.insert(choice->kernel.constants.end(), constants.begin(), constants.end());
  }
};
NormEnd norm_end(const Recorder& r, TensorId x) {
  const NormState& state = r.norm_state();
  if (state.left != x) return {.x = r.tensor(x)};
  const NormParts parts = r.norm_parts();
  return {parts.x,
          parts.all,
          parts.squares,
          parts.factors[state.slot],
          parts.factors[1 - state.slot],
          static_cast<uint32_t>(state.slot),
          {0, std::bit_cast<uint32_t>(state.eps)}};
}

// One piece of the group. `products` and `arrivals`: for sums that its workgroups hand to each other.
void dispatch(Recorder& r, Choice choice, const Piece& piece, TensorId x, const View& bias, TensorId out,
              const View& products, const View& arrivals, const View& result, const View& written) {
  const uint32_t columns = r.desc(x).columns;
  const NormEnd end = norm_end(r, x);
  end.add_to(&choice);
  Push push;
  push.add(end.x).add(piece.view).add(bias).add(result).add(r.live_count(x));
  if (choice.split_bytes > 0 || choice.shared_bytes > 0) push.add(products).add(arrivals);
  push.add(columns).add(row_words(piece.encoding, columns)).add(static_cast<uint32_t>(piece.num_rows));
  push.add(static_cast<uint32_t>(piece.row_begin)).add(r.desc(out).columns);
  if (choice.shared_bytes > 0) push.add(r.list().rows_of(x));
  if (!end.constants.empty()) push.add(end.slot).to(kPushNorms).add(end.parts);
  const View reads[] = {end.x, piece.view, end.squares, end.factor};
  const View writes[] = {written, products, arrivals, piece.row_begin == 0 ? end.next_factor : View{}};
  r.dispatch(choice.kernel, push, choice.groups, reads, writes);
}

// A piece by slices that are written out first; each waits for the one before.
void record_halves(Recorder& r, const Piece& piece, TensorId x, const View& bias, TensorId out,
                   const GatedActivation* activation) {
  const uint32_t rows = r.list().rows_of(x), columns = r.desc(x).columns, each = activation ? 2 : 1;
  const uint64_t tile = wide_shape(r.traits()).tile_rows / each, num_outputs = piece.num_rows / each;
  const uint64_t room = r.resources().halves.bytes / (2ull * each * columns);  // for all, or for two tiles and more
  const uint64_t most = room / tile * tile;
  for (uint64_t first = 0, count; first < num_outputs; first += count) {
    const uint64_t left = num_outputs - first;
    // The last one has a whole tile too.
    count = left <= room ? left : left - most < tile ? most - tile : most;
    const View view = r.resources().halves.part(0, count * each * columns * 2);
    const Piece slice = slice_of(piece, first, count, activation != nullptr, view);
    const HalvesWrite write = halves_write(piece, columns, first, count, activation ? count : 0, view);
    const View reads[] = {piece.view}, writes[] = {view};
    r.dispatch(write.kernel, write.push, write.groups, reads, writes);
    const Choice choice = choose_wide(r.traits(), slice, rows, columns, bias.bytes > 0, activation, 1);
    const View products = r.resources().products.part(0, choice.shared_bytes);
    const View arrivals = r.resources().arrivals.part(0, choice.num_arrivals() * 4);
    const View result = r.tensor(out);
    dispatch(r, choice, slice, x, bias.bytes > 0 ? bias : result, out, products, arrivals, result, result);
  }
}

}  // namespace

HalvesWrite halves_write(const Piece& piece, uint32_t columns, uint64_t first, uint64_t num_first, uint64_t num_second,
                         const View& to) {
  constexpr uint32_t kRows = 8, kUnits = 32;  // of a group; twin: shaders/write_halves.comp
  Push push;
  push.add(piece.view).add(to).add(columns).add(row_words(piece.encoding, columns));
  push.add(static_cast<uint32_t>(first)).add(static_cast<uint32_t>(num_first));
  push.add(static_cast<uint32_t>(piece.num_rows / 2 + first));
  return {{"write_halves", kRows * kUnits, {layout_constant(piece)}},
          push,
          {ceil_div(columns / unit_columns(piece.encoding), kUnits),
           static_cast<uint32_t>((num_first + num_second) / kRows)}};
}

bool can_write_halves(const Traits& traits, const Piece& piece, uint64_t columns) {
  return is_quantized(piece.encoding) && takes_wide(traits, copy_of(piece), wide_shape(traits).tile_cols,
                                                    static_cast<uint32_t>(columns), 8, DType::kF16, false, false);
}

// Measured on an H200, with copies on an H100 (docs/performance.md).
uint32_t halves_rows_min(const Piece& piece) {
  const bool is_k = piece.encoding >= Encoding::kQ4_K;
  if (piece.f16_copy.bytes == 0) return is_k ? 320 : 1024;
  return is_k ? 128 : piece.encoding == Encoding::kQ8_0 ? 256 : kF16CopiesRowsMin;
}

Status record(Recorder& r, const Matmul& op) {
  const uint32_t columns = r.desc(op.x).columns, rows = r.list().rows_of(op.x);
  if (columns % 32 != 0)
    return make_error(ErrorCode::kUnsupported, "vulkan: matmul: expected columns in multiples of 32, found {}",
                      columns);
  const View out = r.tensor(op.out);
  View bias = out;
  const bool with_bias = r.weights().bias(op.group) >= 0;
  if (with_bias) {
    auto vector = r.weights().vector(r.weights().bias(op.group));
    if (!vector) return vector.error();
    bias = *vector;
  }
  // Slices first: the others then run beside each other.
  std::vector<Piece> pieces;
  for (const Piece& piece : r.weights().group(op.group)) {
    if (!takes_halves(r, piece, rows, columns, r.desc(op.out).columns, r.desc(op.x).dtype, false))
      pieces.push_back(piece);
    else if (piece.f16_copy.bytes > 0)
      pieces.push_back(copy_of(piece));
    else
      record_halves(r, piece, op.x, with_bias ? bias : View{}, op.out, nullptr);
  }
  std::vector<Choice> choices;
  const bool batch_invariant = r.list().batch_invariant;
  for (const Piece& piece : pieces)
    choices.push_back(choose(r.traits(), piece, rows, columns, r.desc(op.out).columns, r.desc(op.x).dtype, with_bias,
                             batch_invariant));
  const uint32_t splits = choices.empty()   ? 1
                          : batch_invariant ? invariant_splits(r.traits(), &choices)
                                            : num_splits(r.traits(), choices);
  uint64_t products_first = 0, arrivals_first = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    Choice& choice = choices[i];
    uint64_t products_bytes = choice.shared_bytes;
    if (choice.shared_bytes == 0) {
      choice.groups.z = splits;
      products_bytes = splits > 1 ? choice.num_arrivals() * splits * choice.split_bytes : 0;
    }
    View products, arrivals;
    if (products_bytes > 0) {
      products = r.resources().products.part(products_first, products_bytes);
      arrivals = r.resources().arrivals.part(arrivals_first, choice.num_arrivals() * 4);
      products_first += products.bytes;
      arrivals_first += arrivals.bytes;
    }
    // Pieces write different columns of out, so they need no barrier between each other: each claims one byte range
    // that no other piece claims.
    dispatch(r, choice, pieces[i], op.x, bias, op.out, products, arrivals, out, i == 0 ? out : View{});
  }
  r.norm_state().end(op.x);
  LLMRT_CHECK(products_first <= r.resources().products.bytes && arrivals_first <= r.resources().arrivals.bytes,
              "matmul: sums that workgroups hand over");
  return {};
}

bool can_fuse(const Recorder& r, const Matmul& matmul, const GatedActivation& activation) {
  const std::vector<Piece>& pieces = r.weights().group(matmul.group);
  const uint32_t rows = r.list().rows_of(matmul.x), columns = r.desc(matmul.x).columns;
  const TensorDesc &x = r.desc(matmul.x), &out = r.desc(activation.out);
  if (activation.x != matmul.out || columns % 32 != 0 || pieces.size() != 1 || r.weights().bias(matmul.group) >= 0)
    return false;
  if (takes_lanes(r.traits())) return out.dtype == DType::kF32;
  return out.dtype == DType::kF16 && out.columns % 4 == 0 &&
         (takes_fragment(r.traits(), pieces[0], rows, x.dtype, r.list().batch_invariant) ||
          takes_halves(r, pieces[0], rows, columns, out.columns, x.dtype, true) ||
          takes_wide(r.traits(), pieces[0], rows, columns, out.columns, x.dtype, true, r.list().batch_invariant));
}

Status record_fused(Recorder& r, const Matmul& matmul, const GatedActivation& activation) {
  Piece piece = r.weights().group(matmul.group)[0];
  const View out = r.tensor(activation.out);
  const uint32_t rows = r.list().rows_of(matmul.x), columns = r.desc(matmul.x).columns;
  const DType x = r.desc(matmul.x).dtype;
  const bool batch_invariant = r.list().batch_invariant;
  const bool takes = takes_halves(r, piece, rows, columns, r.desc(activation.out).columns, x, true);
  if (takes && piece.f16_copy.bytes > 0) {
    piece = copy_of(piece);
  } else if (takes) {
    record_halves(r, piece, matmul.x, View{}, activation.out, &activation);
    r.norm_state().end(matmul.x);
    return {};
  }
  const Choice choice = takes_lanes(r.traits()) ? choose_lanes(piece, rows, x, false, &activation, batch_invariant)
                        : takes_fragment(r.traits(), piece, rows, x, batch_invariant)
                            ? choose_fragment(r.traits(), piece, rows, columns, false, &activation, 1)
                            : choose_wide(r.traits(), piece, rows, columns, false, &activation, 1);
  const View products = r.resources().products.part(0, choice.shared_bytes);
  const View arrivals = r.resources().arrivals.part(0, choice.shared_bytes > 0 ? choice.num_arrivals() * 4 : 0);
  dispatch(r, choice, piece, matmul.x, out, activation.out, products, arrivals, out, out);
  r.norm_state().end(matmul.x);
  return {};
}

bool can_fuse(const Recorder& r, const Matmul& matmul, const Rope& rope, const KvWrite& write) {
  const KvDType dtype = r.resources().pools[write.kv_group].group.dtype;
  const auto fits = [&](const Piece& piece) {
    return takes_fragment(r.traits(), piece, r.list().rows_of(matmul.x), r.desc(matmul.x).dtype,
                          r.list().batch_invariant) &&
           piece.row_begin % rope.head_dim == 0 && piece.num_rows % rope.head_dim == 0;
  };
  return r.list().rows_of(matmul.x) <= r.traits().fragment.n && rope.qkv == matmul.out && write.qkv == matmul.out &&
         rope.rope_dim == rope.head_dim && rope.head_dim % 16 == 0 &&
         (dtype == KvDType::kF16 || dtype == KvDType::kBF16) && r.desc(matmul.x).columns % 32 == 0 &&
         std::ranges::all_of(r.weights().group(matmul.group), fits);
}

Status record_fused(Recorder& r, const Matmul& matmul, const Rope& rope, const KvWrite& write) {
  const KvPool& pool = r.resources().pools[write.kv_group];
  const NormEnd end = norm_end(r, matmul.x);
  const View out = r.tensor(matmul.out), data = pool.device.data[write.layer];
  const View positions = r.tensor(rope.positions), kv_slots = r.tensor(write.kv_slots);
  const uint32_t columns = r.desc(matmul.x).columns;
  auto freqs = r.weights().vector(rope.freqs);
  if (!freqs) return freqs.error();
  const bool with_bias = r.weights().bias(matmul.group) >= 0;
  auto bias = with_bias ? r.weights().vector(r.weights().bias(matmul.group)) : Result<View>(out);
  if (!bias) return bias.error();
  bool is_first = true;
  for (const Piece& piece : r.weights().group(matmul.group)) {
    const double share = static_cast<double>(piece.num_rows) / r.desc(matmul.out).columns;
    Choice choice = choose_few(r.traits(), piece, r.list().rows_of(matmul.x), columns, with_bias, nullptr, share, &rope,
                               kv_constant(pool.group.dtype));
    end.add_to(&choice);
    Push push;
    push.add(end.x).add(piece.view).add(*bias).add(out).add(r.live_count(matmul.x)).add(columns);
    push.add(row_words(piece.encoding, columns)).add(static_cast<uint32_t>(piece.num_rows));
    push.add(static_cast<uint32_t>(piece.row_begin)).add(r.desc(matmul.out).columns).add(end.slot);
    push.add(positions).add(kv_slots).add(*freqs).add(data);
    push.add(rope.num_heads).add(rope.num_kv_heads).add(rope.head_dim).add(pool.group.block_tokens);
    push.add(rope.magnitude).to(kPushNorms).add(end.parts);
    // As in record: pieces write apart, and the first claims it all.
    const View reads[] = {end.x, piece.view, positions, kv_slots, end.squares, end.factor};
    const View writes[] = {out, data, end.next_factor};
    r.dispatch(choice.kernel, push, choice.groups, reads, std::span(writes).first(is_first ? 3 : 0));
    is_first = false;
  }
  r.norm_state().end(matmul.x);
  return {};
}

bool can_leave_norm(const Recorder& r, uint32_t idx) {
  const std::vector<Op>& ops = r.list().ops;
  if (idx + 2 >= ops.size()) return false;
  const Matmul *matmul = std::get_if<Matmul>(&ops[idx]), *next = std::get_if<Matmul>(&ops[idx + 2]);
  const RmsNorm* norm = std::get_if<RmsNorm>(&ops[idx + 1]);
  if (!matmul || !norm || !next || norm->delta != matmul->out || next->x != norm->out) return false;
  // What a matmul reads may live as long as an activation right behind it.
  const bool activates = idx + 3 < ops.size() && std::holds_alternative<GatedActivation>(ops[idx + 3]);
  const int last = r.last_op(norm->out) - static_cast<int>(idx);
  const uint32_t rows = r.list().rows_of(matmul->x), columns = r.desc(norm->out).columns;
  // In matmul_fragment of 16-bit weights it costs more than the dispatch (docs/performance.md).
  const auto takes = [&](const Matmul& op) {
    const uint32_t x_columns = r.desc(op.x).columns;
    return x_columns % 32 == 0 && std::ranges::all_of(r.weights().group(op.group), [&](const Piece& piece) {
             return (is_quantized(piece.encoding) || takes_row(r.traits(), piece, rows, x_columns, false, 1, false)) &&
                    takes_fragment(r.traits(), piece, rows, r.desc(op.x).dtype, r.list().batch_invariant);
           });
  };
  return r.norm_state().slot >= 0 && r.last_op(matmul->out) == static_cast<int>(idx) + 1 &&
         (last == 2 || (last == 3 && activates)) && rows <= r.traits().fragment.n &&
         columns == r.resources().config.hidden_columns && columns % (4 * r.traits().fragment.m) == 0 &&
         r.weights().group(matmul->group).size() == 1 && r.weights().bias(matmul->group) < 0 && takes(*matmul) &&
         takes(*next);
}

namespace {
uint64_t parts_bytes(const Recorder& r, const Matmul& matmul, const Choice& choice) {
  return uint64_t{choice.parts} * r.list().rows_of(matmul.x) * r.desc(matmul.out).columns * 4;
}

// A matmul that can leave parts: the weights that it reads, and how.
struct PartsMatmul {
  Piece piece;
  Choice choice;
};
std::optional<PartsMatmul> parts_matmul(const Recorder& r, const Matmul& op) {
  const std::vector<Piece>& pieces = r.weights().group(op.group);
  const uint32_t rows = r.list().rows_of(op.x), columns = r.desc(op.x).columns, out_columns = r.desc(op.out).columns;
  const DType x = r.desc(op.x).dtype;
  if (pieces.size() != 1 || r.weights().bias(op.group) >= 0 || takes_few(r.traits(), pieces[0], rows) ||
      columns % 32 != 0)
    return {};
  const bool takes_copy = takes_halves(r, pieces[0], rows, columns, out_columns, x, false);
  if (takes_copy && pieces[0].f16_copy.bytes == 0) return {};
  const Piece piece = takes_copy ? copy_of(pieces[0]) : pieces[0];
  if (takes_fragment(r.traits(), piece, rows, x, r.list().batch_invariant))
    return PartsMatmul{piece, choose_batch(r.traits(), piece, rows, columns, false, nullptr, 1)};
  if (takes_wide(r.traits(), piece, rows, columns, out_columns, x, false, r.list().batch_invariant))
    return PartsMatmul{piece, choose_wide(r.traits(), piece, rows, columns, false, nullptr, 1)};
  return {};
}
}  // namespace

bool can_leave_parts(const Recorder& r, uint32_t idx) {
  constexpr uint32_t kQuadsMax = 16;  // that an invocation of the norm's kernel has under way
  const std::vector<Op>& ops = r.list().ops;
  if (idx + 1 >= ops.size()) return false;
  const Matmul* matmul = std::get_if<Matmul>(&ops[idx]);
  const RmsNorm* norm = std::get_if<RmsNorm>(&ops[idx + 1]);
  if (!matmul || !norm || norm->delta != matmul->out || r.last_op(matmul->out) != static_cast<int>(idx) + 1)
    return false;
  const uint32_t quads = norm_quads(r.traits(), r.desc(matmul->out).columns);
  const std::optional<PartsMatmul> found = quads > 0 ? parts_matmul(r, *matmul) : std::nullopt;
  return found && found->choice.parts > 1 && found->choice.parts * quads <= kQuadsMax &&
         parts_bytes(r, *matmul, found->choice) <= r.resources().products.bytes;
}

Status record_parts(Recorder& r, const Matmul& matmul) {
  auto [piece, choice] = *parts_matmul(r, matmul);
  const View parts = r.resources().products.part(0, parts_bytes(r, matmul, choice));
  choice.kernel.constants.push_back(1);
  dispatch(r, choice, piece, matmul.x, parts, matmul.out, View{}, View{}, parts, parts);
  r.norm_state().end(matmul.x);
  r.parts_state() = {matmul.out, parts, choice.parts};
  return {};
}

Status record_fused(Recorder& r, const Matmul& matmul, const RmsNorm& norm) {
  const Piece& piece = r.weights().group(matmul.group)[0];
  const View x = r.tensor(matmul.x), residual = r.tensor(norm.x);
  const uint32_t columns = r.desc(matmul.x).columns;
  auto weight = r.weights().vector(norm.weight);
  if (!weight) return weight.error();
  const NormParts parts = r.norm_parts();
  NormState& state = r.norm_state();
  Choice choice = choose_few(r.traits(), piece, r.list().rows_of(matmul.x), columns, false, nullptr, 1);
  choice.kernel.constants.push_back(1);
  Push push;
  push.add(x).add(piece.view).to(kPushCount).add(r.live_count(matmul.x)).add(columns);
  push.add(row_words(piece.encoding, columns)).add(static_cast<uint32_t>(piece.num_rows)).add(0u);
  push.add(r.desc(matmul.out).columns).add(static_cast<uint32_t>(state.slot));
  push.to(kPushResidual).add(residual).add(*weight).add(parts.x).to(kPushNorms).add(parts.all);
  const View reads[] = {x, piece.view, parts.factors[state.slot]}, writes[] = {residual, parts.squares, parts.x};
  r.dispatch(choice.kernel, push, choice.groups, reads, writes);
  state.left = norm.out;
  state.eps = norm.eps;
  return {};
}

}  // namespace llmrt::vulkan
