// Several matrices of rows of x: matmul_batch. The steps of all tiles are dealt out to groups, each with a run of them.
#include <algorithm>
#include <span>

#include "backends/vulkan/choose_matmul.h"
#include "backends/vulkan/kernels/matmul_batch.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

struct BatchCut {
  uint32_t col_tiles, groups;
  uint32_t parts;        // groups that have an equal part of each tile; 0: they have unequal ones
  uint64_t group_bytes;  // that a group hands over at most: its sums of the tiles where it begins and ends
  bool is_whole;         // tiles are hardly larger than the weight
};

BatchCut cut_batch(const Target& target, const Product& product, const BatchShape& shape) {
  const Traits& traits = target.traits;
  const uint32_t num_rows = product.num_rows(), unit = unit_columns(product.piece.encoding);
  const uint32_t tile_rows = shape.tile_rows(traits);
  const uint32_t tile_cols = shape.matrices * traits.fragment.n;
  const uint32_t tile_steps = ceil_div(product.columns / unit, shape.lane_columns / unit * traits.fragment.row_lanes);
  const uint32_t row_tiles = ceil_div(num_rows, tile_rows), steps = row_tiles * tile_steps;
  BatchCut cut{};
  cut.col_tiles = ceil_div(product.rows, tile_cols);
  cut.group_bytes = 2ull * tile_rows * tile_cols * 4 * cut.col_tiles;
  const double room = std::min(static_cast<double>(traits.num_cores * shape.core_groups) / cut.col_tiles,
                               static_cast<double>(uint64_t{traits.num_cores} * kSplitBytesCore / cut.group_bytes));
  const uint32_t groups_max =
      std::max(1u, std::min(static_cast<uint32_t>(product.share * room), steps / target.tuning.batch_steps_min));
  // A few groups less, where each then has an equal part of one tile.
  const uint32_t group_steps = ceil_div(steps, groups_max);
  cut.parts = tile_steps % group_steps == 0 ? tile_steps / group_steps : 0;
  cut.groups = cut.parts > 0 ? steps / group_steps : groups_max;
  cut.is_whole = row_tiles * tile_rows - num_rows <= num_rows / target.tuning.batch_whole_share;
  return cut;
}

// The shape with its numbers of matrices and columns set.
BatchShape with_matrices(BatchShape shape, uint32_t matrices, Encoding encoding) {
  if (shape.matrices == 0) shape.matrices = matrices;
  if (shape.lane_columns == 0) shape.lane_columns = unit_columns(encoding);
  return shape;
}

// For encodings with much to decode: the first shape that gives groups equal parts.
BatchShape k_shape(const Target& target, const Product& product, uint32_t matrices) {
  const Tuning& tuning = target.tuning;
  const size_t first = matrices <= tuning.batch_k_first_matrices_max ? 0 : 1;
  for (const BatchShape& candidate : std::span(tuning.batch_k).subspan(first)) {
    const BatchShape shape = with_matrices(candidate, matrices, product.piece.encoding);
    const BatchCut cut = cut_batch(target, product, shape);
    if (cut.parts > 0 && cut.is_whole) return shape;
  }
  return tuning.batch_k[first];
}

BatchShape choose_shape(const Target& target, const Product& product, uint32_t matrices, uint32_t tiles) {
  const Traits& traits = target.traits;
  const Tuning& tuning = target.tuning;
  const Encoding encoding = product.piece.encoding;
  const bool quantized = product.is_quantized(), is_q4_0 = encoding == Encoding::kQ4_0 || encoding == Encoding::kMXFP4;
  if (traits.is_cpu) return tuning.cpu_batch;
  if (matrices <= 2) return quantized ? tuning.batch_2_quantized : tuning.batch_2_float;
  if ((product.is_k() || (is_of_bytes(encoding) && matrices <= 4)) && tiles == 1)
    return k_shape(target, product, matrices);
  if (matrices == 3 && is_q4_0) return tuning.batch_3_q4_0;
  if (matrices == 4 && is_q4_0) {
    const BatchShape& many = tuning.batch_4_q4_0_many_tiles;
    return product.piece.num_rows / many.tile_rows(traits) >= traits.num_cores ? many : tuning.batch_4_q4_0;
  }
  if (matrices <= 4 && !quantized) return tuning.batch_4_float;
  if (!quantized && matrices >= 6 && tiles == 1) return tuning.batch_6_float;
  return matrices <= 6 && tiles == 1 ? tuning.batch_6 : tuning.batch_more;
}

BatchShape batch_shape(const Target& target, const Product& product) {
  const uint32_t all_matrices = ceil_div(product.rows, target.traits.fragment.n);
  const uint32_t tiles = ceil_div(all_matrices, target.tuning.batch_matrices_max);
  const uint32_t matrices = ceil_div(all_matrices, tiles);
  return with_matrices(choose_shape(target, product, matrices, tiles), matrices, product.piece.encoding);
}

}  // namespace

// More than one tile of rows was measured with NVIDIA's driver alone.
bool takes_fragment(const Target& target, const Product& product) {
  const Tuning& tuning = target.tuning;
  const uint32_t tile_rows = target.traits.fragment.n * tuning.batch_matrices_max;
  const uint32_t half_tiles = !is_nvidia(target.traits) ? 2
                              : product.is_quantized()  ? tuning.batch_quantized_half_tiles_max
                                                        : tuning.batch_float_half_tiles_max;
  return product.rows <= half_tiles * tile_rows / 2 && !product.batch_invariant && product.x == DType::kF16 &&
         product.fits_f16();
}

MatmulChoice choose_batch(const Target& target, const Product& product, const Ends& ends) {
  const Traits& traits = target.traits;
  const Fragment& fragment = traits.fragment;
  const BatchShape shape = batch_shape(target, product);
  const BatchCut cut = cut_batch(target, product, shape);
  const uint32_t unit = unit_columns(product.piece.encoding);
  const uint32_t lane_units = shape.lane_columns / unit, row_units = product.columns / unit;
  MatmulChoice choice{{make_kernel<MatmulBatchKernel>(shape.subgroups * traits.subgroup_size,
                                                      {.layout = layout_constant(product.piece),
                                                       .bias = ends.bias,
                                                       .subgroups = shape.subgroups,
                                                       .m = fragment.m,
                                                       .n = fragment.n,
                                                       .k = fragment.k,
                                                       .row_lanes = fragment.row_lanes,
                                                       .tail = row_units % (lane_units * fragment.row_lanes) != 0,
                                                       .activate = ends.activates(),
                                                       .activation = ends.activation_constant(),
                                                       .parts = shape.parts,
                                                       .matrices = shape.matrices,
                                                       .step_units = lane_units,
                                                       .leaves_parts = ends.leaves_parts}),
                       {cut.groups, cut.col_tiles}}};
  choice.push = PushKind::kRuns;
  choice.shared_bytes = cut.groups > 1 ? cut.groups * cut.group_bytes : 16;  // one has whole tiles alone
  choice.group_arrivals = shape.subgroups;
  choice.parts = cut.parts;
  return choice;
}

MatmulChoice choose_fragment(const Target& target, const Product& product, const Ends& ends) {
  return takes_few(target, product.piece, product.rows) ? choose_few(target, product, ends)
                                                        : choose_batch(target, product, ends);
}

}  // namespace llmrt::vulkan
