// Kernels that expand weights themselves and sum tiles: matmul_matrix on matrix units, matmul_tile, matmul_pairs and
// matmul_dots without; and matmul_vector and matmul_lanes, which share no tile.
#include <algorithm>

#include "backends/vulkan/choose_matmul.h"
#include "backends/vulkan/kernels/matmul_dots.h"
#include "backends/vulkan/kernels/matmul_lanes.h"
#include "backends/vulkan/kernels/matmul_matrix.h"
#include "backends/vulkan/kernels/matmul_pairs.h"
#include "backends/vulkan/kernels/matmul_tile.h"
#include "backends/vulkan/kernels/matmul_vector.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

// The tile of many rows: time goes by rounds of the device.
MatrixTile choose_large_tile(const Target& target, const Product& product) {
  const LargeTile* best = nullptr;
  double least = 0;
  for (const LargeTile& candidate : target.tuning.matrix_large_tiles) {
    const double cost = product.is_quantized() ? candidate.quantized_cost : candidate.cost;
    const MatrixTile& tile = candidate.tile;
    const uint32_t cores = target.traits.num_cores;
    const uint32_t tiles = ceil_div(product.rows, tile.cols) * ceil_div(product.num_rows(), tile.rows);
    const uint32_t splits = std::max(1u, cores / tiles);
    const double time = cost * ceil_div(tiles * splits, cores) / splits;
    if (cost == 0 || (best && time >= least)) continue;
    best = &candidate;
    least = time;
  }
  return best->tile;
}

// Batch-invariant: without slices, which are an order of sums of their own, and small enough for the totals of serial
// splits.
MatrixTile choose_matrix_tile(const Target& target, const Product& product) {
  const Tuning& tuning = target.tuning;
  const uint32_t rows = product.rows;
  const bool small = has_small_lanes(target.traits);
  if (rows <= 16) {
    MatrixTile tile = small ? tuning.matrix_small_tile_16 : tuning.matrix_tile_16;
    tile.slices = product.columns % 128 == 0 && !product.batch_invariant ? 2 : 1;
    return tile;
  }
  if (small) return rows <= 32 ? tuning.matrix_small_tile_32 : tuning.matrix_small_tile_64;
  if (rows <= 32) return tuning.matrix_tile_32;
  if (rows <= 64 || product.batch_invariant) return tuning.matrix_tile_64;
  return is_nvidia(target.traits) ? choose_large_tile(target, product) : tuning.matrix_large_tiles[0].tile;
}

VectorShape vector_shape(const Target& target, const Product& product) {
  const Traits& traits = target.traits;
  const Tuning& tuning = target.tuning;
  const bool quantized = product.is_quantized();
  // A unit of quants becomes 32 numbers for each row.
  if (has_small_lanes(traits) && (quantized || product.rows > 2)) return {traits.lane_registers / 64, 1};
  if (has_small_lanes(traits)) return tuning.vector_small_lanes_float;
  if (has_small_simds(traits) && quantized) return tuning.vector_small_simds_quantized;
  if (product.rows > 2) return product.rows <= 4 ? tuning.vector_4_rows : tuning.vector_more_rows;
  return quantized ? tuning.vector_quantized : tuning.vector_float;
}

SumTile sum_tile(const Target& target, const Product& product) {
  const Traits& traits = target.traits;
  const Tuning& tuning = target.tuning;
  const bool has_registers =
      is_nvidia(traits) || traits.is_cpu || (traits.simd_registers > 0 && !has_small_simds(traits));
  if (product.batch_invariant) return tuning.sums_invariant;
  if (!has_registers || traits.shared_bytes < tuning.sums_more_rows.shared_bytes())
    return product.rows <= 32 ? tuning.sums_small_32_rows : tuning.sums_small_more_rows;
  return product.rows <= 16 ? tuning.sums_16_rows : product.rows <= 32 ? tuning.sums_32_rows : tuning.sums_more_rows;
}

// Numbers of small floats are no integers.
bool takes_dots(Encoding encoding) {
  return is_quantized(encoding) && encoding != Encoding::kMXFP4 && encoding != Encoding::kFP8;
}

}  // namespace

bool takes_lanes(const Traits& traits) {
  return traits.cpu_kernels && traits.subgroup_size == 8;
}

MatmulChoice choose_matrix(const Target& target, const Product& product, const Ends& ends, uint32_t serial) {
  const Traits& traits = target.traits;
  const MatrixTile tile = choose_matrix_tile(target, product);
  const uint32_t subgroups = tile.rows / tile.part_rows * (tile.cols / tile.part_cols) * tile.slices;
  MatmulChoice choice{
      {make_kernel<MatmulMatrixKernel>(subgroups * traits.subgroup_size, {.layout = layout_constant(product.piece),
                                                                          .bias = ends.bias,
                                                                          .tile_rows = tile.rows,
                                                                          .tile_cols = tile.cols,
                                                                          .part_rows = tile.part_rows,
                                                                          .part_cols = tile.part_cols,
                                                                          .slices = tile.slices,
                                                                          .m = traits.matrix_m,
                                                                          .n = traits.matrix_n,
                                                                          .k = traits.matrix_k,
                                                                          .ahead = tile.ahead,
                                                                          .serial = serial}),
       {ceil_div(product.rows, tile.cols), ceil_div(product.num_rows(), tile.rows)}}};
  choice.push = PushKind::kSplit;
  choice.splits_max = product.columns / (64 * tile.slices);
  choice.split_bytes = tile.rows * tile.cols * 4;
  choice.core_groups = tile.cols <= 32 ? 2 : 1;
  choice.invariant_tiles = ceil_div(product.num_rows(), 128u);
  return choice;
}

MatmulChoice choose_vector(const Target& target, const Product& product, const Ends& ends) {
  const Traits& traits = target.traits;
  const auto [team_rows, unroll] = vector_shape(target, product);
  const bool has_subgroups = traits.tier >= Tier::kSubgroup;
  const uint32_t teams = has_subgroups ? 4 : 1, group_size = has_subgroups ? teams * traits.subgroup_size : 64;
  return {{make_kernel<MatmulVectorKernel>(group_size, {.layout = layout_constant(product.piece),
                                                        .rows = team_rows,
                                                        .cols = product.rows,
                                                        .x_dtype = static_cast<uint32_t>(product.x),
                                                        .bias = ends.bias,
                                                        .unroll = unroll}),
           spread(traits, ceil_div(product.num_rows(), teams * team_rows))}};
}

MatmulChoice choose_lanes(const Target& target, const Product& product, const Ends& ends) {
  const Tuning& tuning = target.tuning;
  const uint32_t most = tuning.lanes_cols_max, cols = product.batch_invariant ? most : std::min(product.rows, most);
  const uint32_t lane_rows = cols == 1 ? tuning.lanes_rows_one_col : tuning.lanes_rows;
  const uint32_t lane_outputs = ends.activation ? lane_rows / 2 : lane_rows;
  const uint32_t outputs = product.num_rows() / (ends.activation ? 2 : 1);
  return {{make_kernel<MatmulLanesKernel>(8, {.layout = layout_constant(product.piece),
                                              .rows = lane_rows,
                                              .cols = cols,
                                              .x_dtype = static_cast<uint32_t>(product.x),
                                              .bias = ends.bias,
                                              .activate = ends.activates(),
                                              .activation = ends.activation_constant()}),
           {ceil_div(outputs, 8 * lane_outputs), ceil_div(product.rows, cols)}}};
}

// matmul_pairs computes in packed f16 and matmul_dots in bytes; their results depend on whether a row is one of many.
MatmulChoice choose_tile(const Target& target, const Product& product, const Ends& ends) {
  const Traits& traits = target.traits;
  const SumTile tile = sum_tile(target, product);
  const uint32_t layout = layout_constant(product.piece), group_size = 16 * tile.col_lanes;
  const bool may_round = product.x == DType::kF16 && !product.batch_invariant && product.fits_f16();
  MatmulChoice choice;
  if (may_round && traits.tier == Tier::kDots && takes_dots(product.piece.encoding) && product.columns % 64 == 0)
    choice.kernel = make_kernel<MatmulDotsKernel>(
        group_size, {.layout = layout, .bias = ends.bias, .quads = tile.quads, .col_lanes = tile.col_lanes});
  else if (may_round && traits.packed_f16)
    choice.kernel = make_kernel<MatmulPairsKernel>(
        group_size, {.layout = layout, .bias = ends.bias, .quads = tile.quads, .col_lanes = tile.col_lanes});
  else
    choice.kernel = make_kernel<MatmulTileKernel>(group_size, {.layout = layout,
                                                               .x_dtype = static_cast<uint32_t>(product.x),
                                                               .bias = ends.bias,
                                                               .quads = tile.quads,
                                                               .col_lanes = tile.col_lanes});
  choice.groups = {ceil_div(product.num_rows(), tile.weight_rows()), ceil_div(product.rows, tile.x_rows())};
  choice.push = PushKind::kSplit;
  choice.splits_max =
      product.batch_invariant ? 1 : std::max(product.columns / target.tuning.sums_split_columns_min, 1u);
  choice.split_bytes = tile.weight_rows() * tile.x_rows() * 4;
  choice.core_groups = tile.core_groups();
  return choice;
}

}  // namespace llmrt::vulkan
