// At most one matrix of rows of x: matmul_fragment, or matmul_row for one row in whole turns.
#include <algorithm>
#include <bit>

#include "backends/vulkan/choose_matmul.h"
#include "backends/vulkan/kernels/matmul_fragment.h"
#include "backends/vulkan/kernels/matmul_row.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

// The shape of matmul_row: subgroups of a group, columns of a turn, tiles of weight rows, groups, tiles of one group,
// and the number of tiles that it has room for.
struct RowShape {
  uint32_t subgroups, turn_columns, tiles, groups, group_tiles, room;
};

RowShape row_shape(const Target& target, const Product& product, bool activates) {
  const Traits& traits = target.traits;
  const Encoding encoding = product.piece.encoding;
  const uint32_t m = traits.fragment.m, columns = product.columns;
  const bool is_float = !product.is_quantized();
  const uint32_t subgroups_max = traits.is_cpu           ? target.tuning.cpu_row_subgroups_max
                                 : is_of_bytes(encoding) ? target.tuning.row_q8_0_subgroups_max
                                                         : target.tuning.row_subgroups_max;
  const uint32_t turn_columns = (is_float ? 2 : 1) * traits.fragment.n * unit_columns(encoding);
  // Each subgroup has turns of every tile of floats.
  const uint32_t subgroups = is_float ? std::clamp(columns / turn_columns, 1u, subgroups_max) : subgroups_max;
  // Each lane has at most one quad of what the group stores.
  const uint32_t lane_tiles = 4 * subgroups * traits.subgroup_size / m, tile_bytes = m * 4;
  const uint32_t used_bytes = columns * 9 / 4 + 512 + (is_float ? 0 : subgroups * tile_bytes);
  const uint32_t free_bytes = traits.shared_bytes - std::min(used_bytes, traits.shared_bytes);
  const uint32_t room = std::min(free_bytes / (is_float ? subgroups * tile_bytes : tile_bytes), lane_tiles);
  const uint32_t tiles = activates ? ceil_div(product.num_rows() / 2, m / 2) : ceil_div(product.num_rows(), m);
  const uint32_t rounds = ceil_div(tiles, std::max(traits.num_cores * room, 1u));
  const uint32_t groups = std::clamp(traits.num_cores * rounds, 1u, tiles);
  return {subgroups, turn_columns, tiles, groups, ceil_div(tiles, groups), room};
}

MatmulChoice choose_row(const Target& target, const Product& product, const Ends& ends) {
  const Traits& traits = target.traits;
  const Fragment& fragment = traits.fragment;
  const RowShape shape = row_shape(target, product, ends.activates());
  MatmulChoice choice{
      {make_kernel<MatmulRowKernel>(shape.subgroups * traits.subgroup_size, {.layout = layout_constant(product.piece),
                                                                             .bias = ends.bias,
                                                                             .columns = product.columns,
                                                                             .subgroups = shape.subgroups,
                                                                             .m = fragment.m,
                                                                             .n = fragment.n,
                                                                             .k = fragment.k,
                                                                             .row_lanes = fragment.row_lanes,
                                                                             .all_tiles = shape.tiles,
                                                                             .activate = ends.activates(),
                                                                             .activation = ends.activation_constant(),
                                                                             .rope = ends.rope_pairing(),
                                                                             .pool_dtype = ends.pool_dtype,
                                                                             .groups = shape.groups,
                                                                             .leaves_norm = ends.leaves_norm,
                                                                             .norm_eps = ends.norm_eps_bits()}),
       {shape.groups}}};
  choice.push = PushKind::kEnds;
  return choice;
}

}  // namespace

uint32_t Ends::rope_pairing() const {
  return rope ? rope_constant(*rope) : 0;
}
uint32_t Ends::norm_eps_bits() const {
  return std::bit_cast<uint32_t>(norm_eps);
}

// With NVIDIA's driver matmul_batch takes less time from few rows of 16-bit weights on.
bool takes_few(const Target& target, const Piece& piece, uint32_t rows) {
  const uint32_t n = target.traits.fragment.n;
  const bool is_measured = is_nvidia(target.traits) && !is_quantized(piece.encoding);
  return rows <= (is_measured ? std::min(n, target.tuning.few_float_rows_max) : n);
}

// Lanes have at most one quad each of what leaves a norm. Where a model's layers differ, in K mixes, q, k and v would
// have kernels of three kinds, and a layer's kernels no longer fit in a core's instruction cache: that costs more than
// is gained.
bool takes_row(const Target& target, const Product& product, bool activates, bool turns) {
  const Traits& traits = target.traits;
  const Fragment& fragment = traits.fragment;
  const bool is_mix = product.share < 1 || (turns && product.is_k());
  if (product.rows != 1 || is_mix || !traits.has_int64 || fragment.sum_run * fragment.row_lanes != fragment.n)
    return false;
  const RowShape shape = row_shape(target, product, activates);
  return product.columns % shape.turn_columns == 0 &&
         product.columns <= 4 * fragment.m * shape.subgroups * traits.subgroup_size && shape.group_tiles <= shape.room;
}

// The fewer groups there are, the more subgroups a group has.
MatmulChoice choose_few(const Target& target, const Product& product, const Ends& ends) {
  if (takes_row(target, product, ends.activates(), ends.rope != nullptr)) return choose_row(target, product, ends);
  const Traits& traits = target.traits;
  const Tuning& tuning = target.tuning;
  const Fragment& shape = traits.fragment;
  const uint32_t num_rows = product.num_rows();
  const uint32_t groups = ends.activation ? ceil_div(num_rows / 2, shape.m / 2) : ceil_div(num_rows, shape.m);
  const bool quantized = product.is_quantized(), is_k = product.is_k();
  const bool is_small = quantized && !is_of_bytes(product.piece.encoding);
  const bool are_few = groups < tuning.few_groups_few_per_core * traits.num_cores && !is_k;
  const bool are_many = groups >= tuning.few_groups_many_per_core * traits.num_cores && is_small;
  const uint32_t subgroups = traits.is_cpu ? tuning.cpu_few_subgroups
                             : are_few     ? tuning.few_subgroups_few_groups
                             : are_many    ? tuning.few_subgroups_many_groups
                                           : tuning.few_subgroups;
  const bool has_few_subgroups = subgroups == tuning.few_subgroups_many_groups;
  const bool is_ahead = !quantized || (product.rows == 1 && ends.activation && has_few_subgroups && !is_k);
  MatmulChoice choice{{make_kernel<MatmulFragmentKernel>(
                           subgroups * traits.subgroup_size,
                           {.layout = layout_constant(product.piece),
                            .bias = ends.bias,
                            .ahead = is_ahead ? 2u : 1u,
                            .subgroups = subgroups,
                            .m = shape.m,
                            .n = shape.n,
                            .k = shape.k,
                            .row_lanes = shape.row_lanes,
                            .tail = product.columns / unit_columns(product.piece.encoding) % shape.row_lanes != 0,
                            .activate = ends.activates(),
                            .activation = ends.activation_constant(),
                            .rope = ends.rope_pairing(),
                            .pool_dtype = ends.pool_dtype,
                            .leaves_norm = ends.leaves_norm,
                            .norm_eps = ends.norm_eps_bits()}),
                       {groups}}};
  choice.push = PushKind::kEnds;
  return choice;
}

}  // namespace llmrt::vulkan
