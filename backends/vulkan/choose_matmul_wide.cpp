// Many rows of x: matmul_wide, and quantised weights that it multiplies as f16, from a copy or written out in each step
// (shaders/write_halves.comp).
#include <algorithm>

#include "backends/vulkan/choose_matmul.h"
#include "backends/vulkan/kernels/matmul_wide.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

const WideShape& wide_shape(const Target& target) {
  return target.traits.is_cpu ? target.tuning.cpu_wide : target.tuning.wide;
}

// Rows [first, first + num_rows) of a piece in f16; with an activation those of gate, and as many of up.
Piece slice_of(const Piece& piece, uint64_t first, uint64_t num_rows, bool activates, const View& view) {
  return {Encoding::kF16, true, piece.row_begin + first, activates ? 2 * num_rows : num_rows, view};
}

}  // namespace

// More rows than takes_fragment. Tiles must be whole somewhere in the weight and in x, and matrices lie on 16 bytes of
// what is written. Encodings with more to decode spill registers, and matmul_matrix is faster.
bool takes_wide(const Target& target, const Product& product, bool activates) {
  const Traits& traits = target.traits;
  const Fragment& fragment = traits.fragment;
  const WideShape& shape = wide_shape(target);
  const Piece& piece = product.piece;
  const uint32_t outputs = product.num_rows() / (activates ? 2 : 1);
  const bool is_light = piece.encoding == Encoding::kF16 || piece.encoding == Encoding::kBF16 ||
                        is_of_bytes(piece.encoding) || piece.encoding == Encoding::kQ4_0 ||
                        piece.encoding == Encoding::kMXFP4;
  return fragment.m > 0 && traits.has_int64 && !product.batch_invariant && product.x == DType::kF16 && is_light &&
         product.fits_f16() && product.columns % (fragment.row_lanes * unit_columns(piece.encoding)) == 0 &&
         outputs % fragment.m == 0 && piece.num_rows >= shape.tile_rows(traits) && piece.row_begin % 8 == 0 &&
         product.out_columns % 8 == 0 && product.rows % fragment.n == 0 && product.rows >= shape.tile_cols(traits);
}

MatmulChoice choose_wide(const Target& target, const Product& product, const Ends& ends) {
  const Traits& traits = target.traits;
  const Fragment& fragment = traits.fragment;
  const Encoding encoding = product.piece.encoding;
  const WideShape& shape = wide_shape(target);
  const uint32_t row_tiles = ceil_div(product.num_rows(), shape.tile_rows(traits));
  const uint32_t col_tiles = ceil_div(product.rows, shape.tile_cols(traits));
  const uint64_t group_bytes = 2ull * shape.tile_rows(traits) * shape.tile_cols(traits) * 4 * col_tiles;
  const uint64_t room = std::min<uint64_t>(traits.num_cores * target.tuning.wide_core_groups / col_tiles,
                                           uint64_t{traits.num_cores} * kSplitBytesCore / group_bytes);
  const uint32_t groups_max = std::max(1u, static_cast<uint32_t>(product.share * static_cast<double>(room)));
  // A few groups less than have room, where then none has parts of two tiles.
  uint32_t groups = groups_max;
  for (uint32_t fewer = groups_max; fewer > 0 && fewer * 8 >= groups_max * (8 - target.tuning.wide_idle_eighths);
       --fewer)
    if (row_tiles % fewer == 0 || fewer % row_tiles == 0) {
      groups = fewer;
      break;
    }
  groups = std::min(groups, row_tiles * (product.columns / (fragment.row_lanes * unit_columns(encoding))));
  MatmulChoice choice{{make_kernel<MatmulWideKernel>(shape.subgroups * traits.subgroup_size,
                                                     {.layout = layout_constant(product.piece),
                                                      .bias = ends.bias,
                                                      .subgroups = shape.subgroups,
                                                      .m = fragment.m,
                                                      .n = fragment.n,
                                                      .k = fragment.k,
                                                      .row_lanes = fragment.row_lanes,
                                                      .activate = ends.activates(),
                                                      .activation = ends.activation_constant(),
                                                      .parts = shape.parts,
                                                      .matrices = shape.matrices,
                                                      .columns = product.columns,
                                                      .row_bytes = row_words(encoding, product.columns) * 4,
                                                      .shares = row_tiles % groups != 0,
                                                      .leaves_parts = ends.leaves_parts}),
                       {groups, col_tiles}}};
  choice.push = PushKind::kRuns;
  choice.shared_bytes = groups > 1 ? groups * group_bytes : 16;
  choice.group_arrivals = shape.subgroups;
  choice.parts = groups % row_tiles == 0 ? groups / row_tiles : 0;
  return choice;
}

Piece copy_of(const Piece& piece) {
  return slice_of(piece, 0, piece.num_rows, false, piece.f16_copy);
}

bool can_write_halves(const Target& target, const Piece& piece, uint64_t columns) {
  return is_quantized(piece.encoding) && !piece.is_beyond_f16 &&
         takes_wide(target,
                    {.piece = copy_of(piece),
                     .rows = wide_shape(target).tile_cols(target.traits),
                     .columns = static_cast<uint32_t>(columns),
                     .out_columns = 8,
                     .x = DType::kF16,
                     .batch_invariant = false},
                    false);
}

bool takes_halves(const Setting& setting, const Product& product, bool activates) {
  const Target& target = setting.target;
  const Piece& piece = product.piece;
  const uint64_t slice_rows_min = target.tuning.halves_slice_tiles_min * wide_shape(target).tile_rows(target.traits);
  const bool has_room =
      setting.halves_bytes >= std::min<uint64_t>(2 * piece.num_rows, slice_rows_min) * product.columns;
  Product in_f16 = product;
  in_f16.piece = copy_of(piece);
  return can_write_halves(target, piece, product.columns) &&
         product.rows >= halves_rows_min(target.tuning, piece.encoding, piece.has_copy()) &&
         (piece.has_copy() || has_room) && takes_wide(target, in_f16, activates);
}

// A piece by slices that are written out first; each waits for the one before.
std::vector<PieceLaunch> choose_slices(const Setting& setting, const Product& product, const Ends& ends) {
  const Piece& piece = product.piece;
  const uint32_t each = ends.activation ? 2 : 1;
  const uint64_t tile = wide_shape(setting.target).tile_rows(setting.traits()) / each,
                 num_outputs = piece.num_rows / each;
  const uint64_t room = setting.halves_bytes / (2ull * each * product.columns);  // for all, or two tiles and more
  const uint64_t most = room / tile * tile;
  std::vector<PieceLaunch> launches;
  for (uint64_t first = 0, count; first < num_outputs; first += count) {
    const uint64_t left = num_outputs - first;
    // The last one has a whole tile too.
    count = left <= room ? left : left - most < tile ? most - tile : most;
    const View view{0, nullptr, 0, count * each * product.columns * 2};
    PieceLaunch launch;
    launch.piece = slice_of(piece, first, count, ends.activates(), view);
    launch.slice = HalvesSlice{first, count, ends.activation ? count : 0};
    launch.source = piece;
    Product slice = product;
    slice.piece = launch.piece;
    slice.share = 1;
    launch.choice = choose_wide(setting.target, slice, ends);
    launch.products_bytes = launch.choice.shared_bytes;
    launch.arrivals_bytes = launch.choice.num_arrivals() * 4;
    launches.push_back(std::move(launch));
  }
  return launches;
}

}  // namespace llmrt::vulkan
