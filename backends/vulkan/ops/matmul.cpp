// Which matmul kernel for how many rows, and one dispatch for each piece of the group.
#include <algorithm>

#include "backends/vulkan/recorder.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

constexpr uint32_t kVectorRowsMax = 8, kVectorRowsMaxBesideMatrix = 3;
constexpr uint32_t kTile = 64;  // twin: shaders/matmul_tile.comp

struct Choice {
  Kernel kernel;
  Groups groups;
  // matmul_matrix: how many workgroups may share the columns of a tile, the bytes that each then hands over, and how
  // many of them fill a core; and tiles that all numbers of rows count alike (0: no matrix units)
  uint32_t splits_max = 1, split_bytes = 0, core_groups = 1, invariant_tiles = 0;
  uint64_t shared_bytes = 0;  // of matmul_batch: sums of tiles that several groups make
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

// The matrix units' tile for so many rows of x: the fastest measured on an H200 (docs/performance.md). Times
// there rise in waves as if groups of a multiprocessor had some 48 KB of shared memory in all, so a tile of few rows is
// small enough for two of them. Batch-invariant: without slices, which are an order of sums of their own, and small
// enough for the totals of serial splits.
Choice choose_matrix(const Traits& traits, const Piece& piece, uint32_t rows, uint32_t columns, bool bias,
                     bool batch_invariant) {
  const bool is_nvidia = traits.driver.starts_with("NVIDIA");
  const Tile tile = rows <= 16   ? Tile{64, 16, 16, 16, columns % 128 == 0 && !batch_invariant ? 2u : 1u, 2}
                    : rows <= 32 ? Tile{128, 32, 16, 32, 1, 2}
                    : rows <= 64 || batch_invariant ? Tile{128, 64, 32, 32, 1, 2}
                    : is_nvidia                     ? choose_large_tile(traits, piece, rows)
                                                    : Tile{128, 128, 32, 64};
  const uint32_t subgroups = tile.rows / tile.part_rows * (tile.cols / tile.part_cols) * tile.slices;
  return {{"matmul_matrix",
           subgroups * traits.subgroup_size,
           {static_cast<uint32_t>(piece.encoding), bias, tile.rows, tile.cols, tile.part_rows, tile.part_cols,
            tile.slices, traits.matrix_m, traits.matrix_n, traits.matrix_k, tile.ahead}},
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
// of x: f16 2,638 GB/s with 1 x 8 (4 x 1: 2,153), q4_0 best with 2 x 2.
struct VectorShape {
  uint32_t team_rows, unroll;
};
VectorShape vector_shape(Encoding encoding, uint32_t rows) {
  if (rows > 2) return {rows <= 4 ? 4u : 2u, 1};
  if (!is_quantized(encoding)) return {1, 8};
  return {2, 2};
}

bool takes_fragment(const Traits& traits, const Piece& piece, uint32_t rows, DType x, bool batch_invariant) {
  return !traits.cpu_kernels && rows <= traits.fragment.n && !batch_invariant && x == DType::kF16 &&
         piece.encoding != Encoding::kF32;
}

// Subgroups of a group, the fewer the more groups there are, and steps ahead: the fastest measured on an H200
// (docs/performance.md). A processor's compiler takes minutes over many subgroups.
Choice choose_fragment(const Traits& traits, const Piece& piece, uint32_t columns, bool bias,
                       const GatedActivation* activation) {
  const Fragment& shape = traits.fragment;
  const uint32_t encoding = static_cast<uint32_t>(piece.encoding), num_rows = static_cast<uint32_t>(piece.num_rows);
  const uint32_t groups = activation ? ceil_div(num_rows / 2, shape.m / 2) : ceil_div(num_rows, shape.m);
  const bool quantized = is_quantized(piece.encoding), is_k = piece.encoding >= Encoding::kQ4_K;
  const bool is_small = quantized && piece.encoding != Encoding::kQ8_0;
  const uint32_t subgroups = traits.is_cpu                                ? 2
                             : groups < 2 * traits.num_cores && !is_k     ? 16
                             : groups >= 8 * traits.num_cores && is_small ? 4
                                                                          : 8;
  const uint32_t unit_columns = !quantized ? 8 : piece.encoding == Encoding::kQ8_0 ? 16 : 32;
  const bool tail = columns / unit_columns % shape.row_lanes != 0;
  return {{"matmul_fragment",
           subgroups * traits.subgroup_size,
           {encoding, bias, quantized ? 1u : 2u, subgroups, shape.m, shape.n, shape.k, shape.row_lanes, tail,
            activation != nullptr, activation ? static_cast<uint32_t>(activation->activation) : 0}},
          {groups}};
}

bool takes_batch(const Traits& traits, const Piece& piece, uint32_t rows, DType x, bool batch_invariant) {
  return !traits.cpu_kernels && rows > traits.fragment.n && rows <= traits.fragment.n * 8 && !batch_invariant &&
         x == DType::kF16 && piece.encoding != Encoding::kF32;
}

Choice choose_batch(const Traits& traits, const Piece& piece, uint32_t rows, uint32_t columns, bool bias,
                    const GatedActivation* activation, double share = 1) {
  const Fragment& shape = traits.fragment;
  const uint32_t encoding = static_cast<uint32_t>(piece.encoding), num_rows = static_cast<uint32_t>(piece.num_rows);
  const uint32_t needed = ceil_div(rows, shape.n);
  uint32_t matrices = needed <= 2 ? 2 : needed <= 4 ? 4 : 8;
  const uint32_t unit_columns = !is_quantized(piece.encoding) ? 8 : piece.encoding == Encoding::kQ8_0 ? 16 : 32;
  uint32_t subgroups = 8, parts = 1, units = (matrices <= 2 ? 64 : 32) / unit_columns,
           core_groups = matrices > 4 ? 1 : 2;
  if (traits.is_cpu) {
    subgroups = 2;
    units = 1;
    matrices = std::min(matrices, 2u);
  }
  const uint32_t row_units = columns / unit_columns, step_units = units * shape.row_lanes;
  const uint32_t tile_rows = subgroups * parts * shape.m, tile_cols = matrices * shape.n,
                 tile_bytes = tile_rows * tile_cols * 4;
  const uint32_t tiles = activation ? ceil_div(num_rows / 2, tile_rows / 2) : ceil_div(num_rows, tile_rows);
  const uint32_t steps = tiles * ceil_div(row_units, step_units), cols = ceil_div(rows, tile_cols);
  const uint32_t room = traits.num_cores * kSplitBytesCore / (2 * tile_bytes * cols);
  const uint32_t groups = std::max(
      1u, std::min({static_cast<uint32_t>(std::min(traits.num_cores * core_groups, room) * share), steps / 4}));
  return {
      {"matmul_batch",
       subgroups * traits.subgroup_size,
       {encoding, bias, subgroups, shape.m, shape.n, shape.k, shape.row_lanes, row_units % step_units != 0,
        activation != nullptr, activation ? static_cast<uint32_t>(activation->activation) : 0, parts, matrices, units}},
      {groups, cols},
      1,
      0,
      1,
      0,
      uint64_t{groups} * cols * 2 * tile_bytes};
}

// `rows` of x against the rows of a piece. The constants' order is each shader's.
Choice choose(const Traits& traits, const Piece& piece, uint32_t rows, uint32_t columns, DType x, bool bias,
              bool batch_invariant, double share) {
  if (takes_batch(traits, piece, rows, x, batch_invariant))
    return choose_batch(traits, piece, rows, columns, bias, nullptr, share);
  if (takes_fragment(traits, piece, rows, x, batch_invariant))
    return choose_fragment(traits, piece, columns, bias, nullptr);
  const uint32_t encoding = static_cast<uint32_t>(piece.encoding), num_rows = static_cast<uint32_t>(piece.num_rows);
  const uint32_t x_dtype = static_cast<uint32_t>(x);
  if (traits.cpu_kernels && traits.subgroup_size == 8) {
    const uint32_t cols = batch_invariant ? 4 : std::min(rows, 4u), lane_rows = cols == 1 ? 4 : 2;
    return {{"matmul_lanes", 8, {encoding, lane_rows, cols, x_dtype, bias}},
            {ceil_div(num_rows, 8 * lane_rows), ceil_div(rows, cols)}};
  }
  // Matrix units multiply f16: f32 factors keep their precision elsewhere.
  if (traits.tier >= Tier::kMatrix && x == DType::kF16 && piece.encoding != Encoding::kF32 && columns % 64 == 0 &&
      (rows > kVectorRowsMaxBesideMatrix || batch_invariant))
    return choose_matrix(traits, piece, rows, columns, bias, batch_invariant);
  if (rows <= kVectorRowsMax && !batch_invariant) {
    const auto [team_rows, unroll] = vector_shape(piece.encoding, rows);
    const uint32_t teams = traits.tier >= Tier::kSubgroup ? 4 : 1;
    const uint32_t group_size = traits.tier >= Tier::kSubgroup ? teams * traits.subgroup_size : 64;
    return {{"matmul_vector", group_size, {encoding, team_rows, rows, x_dtype, bias, unroll}},
            {ceil_div(num_rows, teams * team_rows)}};
  }
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
  const std::vector<Piece>& pieces = r.weights().group(op.group);
  std::vector<Choice> choices;
  const bool batch_invariant = r.list().batch_invariant;
  uint64_t all_rows = 0;
  for (const Piece& piece : pieces) all_rows += piece.num_rows;
  for (const Piece& piece : pieces)
    choices.push_back(choose(r.traits(), piece, rows, columns, r.desc(op.x).dtype, with_bias, batch_invariant,
                             static_cast<double>(piece.num_rows) / static_cast<double>(all_rows)));
  const uint32_t splits = batch_invariant ? invariant_splits(r.traits(), &choices) : num_splits(r.traits(), choices);
  uint64_t products_first = 0, arrivals_first = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    Choice& choice = choices[i];
    View products, arrivals;
    if (choice.shared_bytes > 0) {
      products = r.resources().products.part(products_first, choice.shared_bytes);
      arrivals = r.resources().arrivals.part(arrivals_first, choice.groups.x * choice.groups.y * 4ull);
      products_first += products.bytes;
      arrivals_first += arrivals.bytes;
    } else if (choice.groups.z = splits; splits > 1) {
      const uint64_t tiles = uint64_t{choice.groups.x} * choice.groups.y, bytes = tiles * splits * choice.split_bytes;
      products = r.resources().products.part(products_first, bytes);
      arrivals = r.resources().arrivals.part(arrivals_first, tiles * 4);
      products_first += bytes;
      arrivals_first += tiles * 4;
    }
    Push push;
    push.add(x).add(piece.view).add(bias).add(out).add(r.live_count(op.x));
    if (choice.split_bytes > 0 || choice.shared_bytes > 0) push.add(products).add(arrivals);
    push.add(columns).add(row_words(piece.encoding, columns)).add(static_cast<uint32_t>(piece.num_rows));
    push.add(static_cast<uint32_t>(piece.row_begin)).add(r.desc(op.out).columns);
    if (choice.shared_bytes > 0) push.add(rows);
    // Pieces write different columns of out, so they need no barrier between each other: each claims one byte range
    // that no other piece claims.
    const View reads[] = {x, piece.view};
    const View writes[] = {i == 0 ? out : View{}, products, arrivals};
    r.dispatch(choice.kernel, push, choice.groups, reads, writes);
  }
  return {};
}

bool can_fuse(const Recorder& r, const Matmul& matmul, const GatedActivation& activation) {
  const std::vector<Piece>& pieces = r.weights().group(matmul.group);
  return activation.x == matmul.out && r.desc(activation.out).dtype == DType::kF16 &&
         r.desc(activation.out).columns % 4 == 0 && r.desc(matmul.x).columns % 32 == 0 && pieces.size() == 1 &&
         r.weights().bias(matmul.group) < 0 &&
         (takes_fragment(r.traits(), pieces[0], r.list().rows_of(matmul.x), r.desc(matmul.x).dtype,
                         r.list().batch_invariant) ||
          takes_batch(r.traits(), pieces[0], r.list().rows_of(matmul.x), r.desc(matmul.x).dtype,
                      r.list().batch_invariant));
}

Status record_fused(Recorder& r, const Matmul& matmul, const GatedActivation& activation) {
  const Piece& piece = r.weights().group(matmul.group)[0];
  const View x = r.tensor(matmul.x), out = r.tensor(activation.out);
  const uint32_t columns = r.desc(matmul.x).columns;
  const uint32_t rows = r.list().rows_of(matmul.x);
  const bool batch = takes_batch(r.traits(), piece, rows, r.desc(matmul.x).dtype, false);
  const Choice choice = batch ? choose_batch(r.traits(), piece, rows, columns, false, &activation)
                              : choose_fragment(r.traits(), piece, columns, false, &activation);
  Push push;
  push.add(x).add(piece.view).add(out).add(out).add(r.live_count(matmul.x));
  View products, arrivals;
  if (batch) {
    products = r.resources().products.part(0, choice.shared_bytes);
    arrivals = r.resources().arrivals.part(0, choice.groups.x * choice.groups.y * 4ull);
    push.add(products).add(arrivals);
  }
  push.add(columns).add(row_words(piece.encoding, columns)).add(static_cast<uint32_t>(piece.num_rows)).add(0u);
  push.add(r.desc(activation.out).columns).add(rows);
  const View reads[] = {x, piece.view}, writes[] = {out, products, arrivals};
  r.dispatch(choice.kernel, push, choice.groups, reads, writes);
  return {};
}

}  // namespace llmrt::vulkan
