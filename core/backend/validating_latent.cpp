// Shapes of latent attention's ops.
#include "core/backend/validating_shapes.h"

namespace llmrt::validating {
namespace {

// The pool of an op, and the sizes that kernels take.
template <class T>
void check_rows(ShapeHelpers& shapes, const T& op) {
  const std::string& where = shapes.where;
  const uint32_t row = op.rank + op.rope_dim;
  if (op.num_heads == 0) shapes.report.fail(where, "num_heads", "at least 1", 0);
  if (op.rank == 0 || op.rank % 16 != 0) shapes.report.fail(where, "rank", "a multiple of 16", op.rank);
  if (op.rope_dim == 0 || op.rope_dim % 16 != 0) shapes.report.fail(where, "rope_dim", "a multiple of 16", op.rope_dim);
  if (!shapes.report.below(where, "kv_group", op.kv_group, shapes.limits.groups.size())) return;
  const KvGroup& group = shapes.limits.groups[op.kv_group];
  if (group.is_state()) return shapes.report.fail(where, "kv_group", "one of blocks", "one of states");
  if (!group.keys_only) shapes.report.fail(where, "kv_group", "one of keys only", "one of keys and values");
  shapes.report.below(where, "layer", op.layer, group.num_layers);
  if (group.num_kv_heads != 1) shapes.report.fail(where, "kv_group: num_kv_heads", 1, group.num_kv_heads);
  if (row != group.head_dim) shapes.report.fail(where, "rank + rope_dim", group.head_dim, row);
}

}  // namespace

void check(ShapeHelpers& shapes, const LatentRows& op) {
  const uint32_t row = op.rank + op.rope_dim;
  check_rows(shapes, op);
  shapes.f32("q", op.q, Rows::kTokens, op.num_heads * (op.nope + op.rope_dim));
  shapes.f32("kv", op.kv, Rows::kTokens, row);
  shapes.i32("positions", op.positions, Rows::kTokens, 1);
  shapes.i32("kv_slots", op.kv_slots, Rows::kTokens, 1);
  shapes.f32_vector("norm", op.norm, op.rank);
  shapes.f32_vector("freqs", op.freqs, op.rope_dim / 2);
  shapes.f32("query", op.query, Rows::kTokens, op.num_heads * row);
}

void check(ShapeHelpers& shapes, const HeadMatmul& op) {
  const WeightGroup& group = shapes.limits.weights.groups[static_cast<size_t>(op.group)];
  const uint32_t heads = op.num_heads;
  if (heads == 0 || group.rows % heads != 0)
    return shapes.report.fail(shapes.where, "num_heads", fmt::format("a part of {} rows", group.rows), heads);
  const uint64_t rows = group.rows / heads;
  if (group.bias >= 0) shapes.report.fail(shapes.where, "group", "no bias", "one");
  if (group.segments.size() != 1) shapes.report.fail(shapes.where, "group: tensors", 1, group.segments.size());
  shapes.any_float("x", op.x, Rows::kTokens, kAnyColumns);
  shapes.any_float("out", op.out, Rows::kTokens, kAnyColumns);
  const uint32_t x_columns = shapes.desc(op.x).columns, out_columns = shapes.desc(op.out).columns;
  if (x_columns % heads != 0 || x_columns / heads < group.columns)
    shapes.report.fail(shapes.where, "x columns", fmt::format("{} heads of at least {}", heads, group.columns),
                       x_columns);
  if (out_columns % heads != 0 || out_columns / heads < rows)
    shapes.report.fail(shapes.where, "out columns", fmt::format("{} heads of at least {}", heads, rows), out_columns);
  if (op.fills_out != (out_columns == group.rows))
    shapes.report.fail(shapes.where, "fills_out", out_columns == group.rows, op.fills_out);
}

void check(ShapeHelpers& shapes, const ExpandLatent& op) {
  check_rows(shapes, op);
  const auto check_group = [&](const char* field, int32_t id, uint32_t dim) {
    const WeightGroup& group = shapes.limits.weights.groups[static_cast<size_t>(id)];
    if (group.columns != op.rank)
      shapes.report.fail(shapes.where, fmt::format("{}: columns", field), op.rank, group.columns);
    if (group.segments.size() != 1)
      shapes.report.fail(shapes.where, fmt::format("{}: tensors", field), 1, group.segments.size());
    if (dim == 0 || group.rows % dim != 0 || uint64_t{op.head_first} + op.num_heads > group.rows / dim)
      shapes.report.fail(shapes.where, fmt::format("{}: rows", field),
                         fmt::format("{} of each of at least {} heads", dim, uint64_t{op.head_first} + op.num_heads),
                         group.rows);
  };
  check_group("key_group", op.key_group, op.nope);
  check_group("value_group", op.value_group, op.value_dim);
  if (!shapes.report.below(shapes.where, "expanded_group", op.expanded_group, shapes.limits.groups.size())) return;
  const KvGroup& group = shapes.limits.groups[op.expanded_group];
  if (!group.is_expanded) return shapes.report.fail(shapes.where, "expanded_group", "one for expanded keys", "a cache");
  if (group.head_dim != op.key_dim()) shapes.report.fail(shapes.where, "nope + rope_dim", group.head_dim, op.key_dim());
  shapes.report.at_most(shapes.where, "value_dim", op.value_dim, group.head_dim);
  shapes.report.at_most(shapes.where, "num_heads", op.num_heads, group.num_blocks);
}

void check(ShapeHelpers& shapes, const LatentAttention& op) {
  check_rows(shapes, op);
  shapes.f32("query", op.query, Rows::kTokens, op.num_heads * op.row_dim());
  shapes.any_float("out", op.out, Rows::kTokens, op.num_heads * op.rank);
  shapes.report.at_most(shapes.where, "num_heads", op.num_heads, shapes.limits.state.heads_max);
  shapes.report.at_most(shapes.where, "rank", op.rank, shapes.limits.state.head_dim_max);
}

}  // namespace llmrt::validating
