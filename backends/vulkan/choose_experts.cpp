#include "backends/vulkan/choose_experts.h"

#include <algorithm>
#include <bit>

#include "backends/vulkan/choose_matmul.h"
#include "backends/vulkan/kernels/experts.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

constexpr uint32_t kItemRowsMin = 4;

// The piece that rows [first, first + num_rows) of a group lie in as a whole.
Result<Piece> piece_of(const GroupPieces& group, const char* op, const char* what, uint64_t first, uint64_t num_rows) {
  for (const Piece& piece : group.pieces)
    if (piece.row_begin <= first && first + num_rows <= piece.row_begin + piece.num_rows) return piece;
  return make_error(ErrorCode::kUnsupported,
                    "vulkan: {}: expected all experts' rows of {} in one piece, found {} pieces", op, what,
                    group.pieces.size());
}

uint32_t width_of(const Piece& piece) {
  return piece.encoding == Encoding::kF32 ? 4 : unit_columns(piece.encoding);
}

bool is_one(const ExpertProduct& product) {
  return product.num_experts > 0 && product.rows == product.per_row && !product.batch_invariant;
}

// Every expert that has rows may leave one item that is not full.
ExpertItems items_for(const ExpertProduct& product, uint32_t rows_max) {
  ExpertItems items;
  items.rows_max = rows_max;
  if (product.num_experts == 0) {
    items.kind = ItemKind::kOfMatrix;
    items.items_max = ceil_div(product.rows, rows_max);
    return items;
  }
  if (is_one(product)) {
    items.kind = ItemKind::kOfOne;
    items.items_max = product.rows;
    return items;
  }
  items.items_max = std::min(product.rows, product.num_experts + product.rows / rows_max);
  items.rows_first = 4 + 4 * items.items_max;
  return items;
}

ExpertConstants constants_of(const ExpertProduct& product, const ExpertItems& items) {
  return {.layout = layout_constant(product.weight),
          .x_dtype = static_cast<uint32_t>(product.x),
          .items = static_cast<uint32_t>(items.kind),
          .out_dtype = static_cast<uint32_t>(product.out),
          .gated = product.gated,
          .activation = static_cast<uint32_t>(product.activation),
          .bias = product.bias,
          .ragged = product.columns % width_of(product.weight) != 0,
          .term = product.term};
}

ExpertChoice choose_expert_vector(const Target& target, const ExpertProduct& product) {
  const Traits& traits = target.traits;
  const Tuning& tuning = target.tuning;
  const bool is_router = product.num_experts == 0;
  const uint32_t cols = product.rows == product.per_row                       ? 1
                        : is_router && product.rows > tuning.router_many_rows ? tuning.router_vector_cols
                                                                              : tuning.expert_vector_cols;
  const ExpertItems items = items_for(product, cols);
  const bool has_subgroups = traits.tier >= Tier::kSubgroup;
  const uint32_t teams = has_subgroups ? 4 : 1, group_size = has_subgroups ? teams * traits.subgroup_size : 64;
  ExpertVectorKernel::Constants constants{constants_of(product, items), tuning.expert_vector_outputs, items.rows_max};
  return {{make_kernel<ExpertVectorKernel>(group_size, constants),
           {ceil_div(product.outputs, teams * tuning.expert_vector_outputs), items.items_max}},
          items};
}

// Products in f16, whole units, and outputs that are stored by fours.
bool takes_halves(const ExpertProduct& product) {
  const bool in_f16 = product.is_up ? product.out == DType::kF16 : product.x == DType::kF16;
  return in_f16 && product.weight.encoding != Encoding::kF32 && product.columns % width_of(product.weight) == 0 &&
         product.outputs % 4 == 0;
}

uint32_t mean_rows(const ExpertProduct& product) {
  return ceil_div(product.rows, std::max(product.num_experts, 1u));
}

// In batch-invariant lists it has all rows: the order of its sums does not depend on how many there are.
bool takes_expert_fragment(const Target& target, const ExpertProduct& product) {
  if (target.traits.fragment.m == 0 || !takes_halves(product)) return false;
  const Encoding encoding = product.weight.encoding;
  const uint32_t most = !is_quantized(encoding) || encoding == Encoding::kQ8_0
                            ? target.tuning.expert_fragment_wide_mean_rows_max
                            : std::end(target.tuning.expert_matrices)[-1].mean_rows_max;
  return product.batch_invariant || product.columns % 64 != 0 || mean_rows(product) <= most;
}

// One row's experts: a workgroup has them all.
bool joins_slots(const Target& target, const ExpertProduct& product) {
  return !product.is_up && is_one(product) && product.per_row <= target.tuning.expert_join_subgroups &&
         !target.traits.is_cpu;
}

ExpertChoice choose_expert_fragment(const Target& target, const ExpertProduct& product) {
  const Traits& traits = target.traits;
  const Tuning& tuning = target.tuning;
  const Fragment& shape = traits.fragment;
  uint32_t matrices = 1;
  for (const ExpertMatrices& step : tuning.expert_matrices) {
    matrices = step.matrices;
    if (mean_rows(product) <= step.mean_rows_max) break;
  }
  if (traits.is_cpu) matrices = std::min(matrices, tuning.cpu_expert_matrices_max);
  const ExpertItems items = items_for(product, matrices * shape.n);
  const uint32_t units = product.columns / width_of(product.weight), steps = ceil_div(units, shape.row_lanes);
  const uint32_t most = traits.is_cpu ? tuning.cpu_expert_subgroups : tuning.expert_subgroups;
  uint32_t subgroups = std::clamp(std::bit_floor(steps / tuning.expert_subgroup_steps_min), 1u, most);
  const bool joins = joins_slots(target, product);
  if (joins) subgroups = product.per_row * std::max(tuning.expert_join_subgroups / product.per_row, 1u);
  const bool stages = items.kind == ItemKind::kOfOne && product.x == DType::kF32;
  const uint32_t tile_outputs = product.gated ? shape.m / 2 : shape.m;
  const bool is_ahead = !is_quantized(product.weight.encoding) || is_one(product);
  const ExpertFragmentKernel::Constants constants{constants_of(product, items),
                                                  is_ahead ? 2u : 1u,
                                                  subgroups,
                                                  shape.m,
                                                  shape.n,
                                                  shape.k,
                                                  shape.row_lanes,
                                                  units % shape.row_lanes != 0,
                                                  matrices,
                                                  stages ? product.columns / 8 : 0,
                                                  joins ? product.per_row : 0};
  return {{make_kernel<ExpertFragmentKernel>(subgroups * traits.subgroup_size, constants),
           {ceil_div(product.outputs, tile_outputs), joins ? 1 : items.items_max}},
          items,
          joins};
}

bool takes_expert_matrix(const Target& target, const ExpertProduct& product) {
  if (target.traits.tier < Tier::kMatrix || !takes_halves(product) || product.columns % 64 != 0) return false;
  return product.batch_invariant || mean_rows(product) > target.tuning.vector_rows_max_beside_matrix;
}

ExpertChoice choose_expert_matrix(const Target& target, const ExpertProduct& product) {
  const Traits& traits = target.traits;
  const Tuning& tuning = target.tuning;
  const bool are_many = mean_rows(product) > tuning.expert_tile_mean_rows_max;
  const MatrixTile tile = !is_nvidia(traits) ? tuning.expert_small_tile
                          : are_many         ? tuning.expert_tile_more_rows
                                             : tuning.expert_tile;
  const ExpertItems items = items_for(product, tile.cols);
  const uint32_t subgroups = tile.rows / tile.part_rows * (tile.cols / tile.part_cols);
  const ExpertMatrixKernel::Constants constants{constants_of(product, items),
                                                tile.rows,
                                                tile.cols,
                                                tile.part_rows,
                                                tile.part_cols,
                                                traits.matrix_m,
                                                traits.matrix_n,
                                                traits.matrix_k};
  const uint32_t tile_outputs = product.gated ? tile.rows / 2 : tile.rows;
  return {{make_kernel<ExpertMatrixKernel>(subgroups * traits.subgroup_size, constants),
           {ceil_div(product.outputs, tile_outputs), items.items_max}},
          items};
}

}  // namespace

Result<ExpertProduct> product_of(const Setting& setting, const ExpertGateUp& op) {
  const GroupPieces& group = setting.weights.group(op.group);
  const uint32_t ffn = setting.desc(op.out).columns;
  const uint64_t all = uint64_t{op.num_experts} * ffn;
  ExpertProduct product;
  const bool has_up = has_other_half(op.activation);
  if (!has_up) {
    auto rows = piece_of(group, "expert_gate_up", "experts", 0, all);
    if (!rows) return rows.error();
    product.weight = product.up = *rows;
  } else if (op.by_expert) {
    auto rows = piece_of(group, "expert_gate_up", "gate and up", 0, 2 * all);
    if (!rows) return rows.error();
    product.weight = product.up = *rows;
    product.up_first = ffn;
  } else {
    auto gate = piece_of(group, "expert_gate_up", "gate", 0, all);
    if (!gate) return gate.error();
    auto up = piece_of(group, "expert_gate_up", "up", all, all);
    if (!up) return up.error();
    if (layout_constant(*gate) != layout_constant(*up))
      return make_error(ErrorCode::kUnsupported, "vulkan: expert_gate_up: expected up in gate's encoding {}, found {}",
                        encoding_name(gate->encoding), encoding_name(up->encoding));
    product.weight = *gate;
    product.up = *up;
    product.up_first = static_cast<uint32_t>(all - up->row_begin);
  }
  product.expert_rows = has_up && op.by_expert ? 2 * ffn : ffn;
  product.num_experts = op.num_experts;
  product.outputs = ffn;
  product.columns = setting.desc(op.x).columns;
  product.rows = setting.list.rows_of(op.ids);
  product.per_row = setting.list.routed_per_row;
  product.x = setting.desc(op.x).dtype;
  product.out = setting.desc(op.out).dtype;
  product.is_up = true;
  product.gated = has_up;
  product.term = op.term != kNoTensor;
  product.bias = group.bias >= 0;
  product.batch_invariant = setting.list.batch_invariant;
  product.activation = op.activation;
  return product;
}

Result<ExpertProduct> product_of(const Setting& setting, const ExpertDown& op) {
  const GroupPieces& group = setting.weights.group(op.group);
  const uint32_t width = setting.desc(op.out).columns;
  auto rows = piece_of(group, "expert_down", "down", 0, uint64_t{op.num_experts} * width);
  if (!rows) return rows.error();
  ExpertProduct product;
  product.weight = product.up = *rows;
  product.expert_rows = width;
  product.num_experts = op.num_experts;
  product.outputs = width;
  product.columns = setting.desc(op.x).columns;
  product.rows = setting.list.rows_of(op.ids);
  product.per_row = setting.list.routed_per_row;
  product.x = setting.desc(op.x).dtype;
  product.bias = group.bias >= 0;
  product.batch_invariant = setting.list.batch_invariant;
  return product;
}

Result<ExpertProduct> product_of(const Setting& setting, const RouteExperts& op) {
  const std::vector<Piece>& pieces = setting.weights.tensor(op.weight);
  if (pieces.size() != 1 || pieces[0].encoding != Encoding::kF32)
    return make_error(ErrorCode::kUnsupported,
                      "vulkan: route_experts: expected a router of f32 in one piece, found {} "
                      "in {} pieces",
                      encoding_name(pieces.empty() ? Encoding::kF32 : pieces[0].encoding), pieces.size());
  ExpertProduct product;
  product.weight = product.up = pieces[0];
  product.outputs = product.expert_rows = static_cast<uint32_t>(pieces[0].num_rows);
  product.columns = setting.desc(op.x).columns;
  product.rows = setting.list.rows_of(op.x);
  product.batch_invariant = setting.list.batch_invariant;
  return product;
}

bool rounds_x(const Target& target, const ExpertProduct& product) {
  return product.is_up && product.x == DType::kF32 && !is_one(product) &&
         (takes_expert_fragment(target, product) || takes_expert_matrix(target, product));
}

ExpertChoice choose_experts(const Target& target, const ExpertProduct& product) {
  if (takes_expert_fragment(target, product)) return choose_expert_fragment(target, product);
  if (takes_expert_matrix(target, product)) return choose_expert_matrix(target, product);
  return choose_expert_vector(target, product);
}

uint32_t scores_rows(const Setting& setting, uint32_t num_experts, uint32_t rows) {
  // Parts are whole items: products have room for 64 rows of as many experts as there may be.
  static_assert(kSplitBytesCore >= 64 * kExpertsMax * 4);
  return static_cast<uint32_t>(std::min<uint64_t>(setting.products_bytes / (num_experts * 4) / 64 * 64, rows));
}

uint32_t sums_outputs(const Setting& setting, const ExpertProduct& product) {
  const uint64_t fit = setting.products_bytes / (uint64_t{product.rows} * 4) / 4 * 4;
  const uint64_t most = std::min<uint64_t>(fit, product.outputs);
  // Equal parts, in multiples that kernels' tiles are made of where there is room.
  const uint64_t parts = ceil_div<uint64_t>(product.outputs, std::max<uint64_t>(most, 1));
  const uint64_t step = most >= 128 ? 128 : 4;
  return static_cast<uint32_t>(std::min(round_up(ceil_div<uint64_t>(product.outputs, parts), step), most));
}

// Items have room for kItemRowsMin rows at least where there are several.
uint64_t routes_bytes_max(uint32_t rows) {
  const uint64_t routed = uint64_t{rows} * kExpertsUsedMax;
  return (4 + 4 * (kExpertsMax + routed / kItemRowsMin) + routed) * 4;
}

uint64_t routed_x_bytes_max(const WeightPieces& weights, uint32_t rows) {
  uint64_t columns = 0;
  for (const GroupPieces& group : weights.groups)
    if (group.num_experts > 0) columns = std::max(columns, group.columns);
  return rows * columns * 2;
}

uint32_t sort_lanes(const Traits& traits) {
  return traits.cpu_kernels ? 8 : 256;
}

uint32_t route_lanes(const Traits& traits) {
  return traits.tier >= Tier::kSubgroup ? traits.subgroup_size : 64;
}

}  // namespace llmrt::vulkan
