// gated_delta and selective_scan: a state of each head, and the row's tokens one after the other.
#include "backends/vulkan/kernels/state_walk.h"

#include "backends/vulkan/choose_recurrent.h"
#include "backends/vulkan/kernels/row_state.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

// What both ops come to.
struct Walk {
  StatePart state;
  ColumnsView query, key, value, alpha, beta;
  int32_t a, dt_bias;
  TensorId out;
  uint32_t num_heads;
  float low, high;
  StateWalkKernel::Constants constants;  // but for the shape of the group
};

StateWalkKernel::Push push_of(Emitter& e, const Walk& walk, const StateViews& state, const View& a,
                              const View& dt_bias) {
  return {.inputs = e.resources().forward_inputs,
          .query = walk.query.first,
          .key = walk.key.first,
          .value = walk.value.first,
          .alpha = walk.alpha.first,
          .beta = walk.beta.first,
          .a = a,
          .dt_bias = dt_bias,
          .records = state.first,
          .tables = state.tables,
          .result = e.tensor(walk.out),
          .query_columns = walk.query.columns,
          .key_columns = walk.key.columns,
          .value_columns = walk.value.columns,
          .alpha_columns = walk.alpha.columns,
          .beta_columns = walk.beta.columns,
          .record_columns = state.record_columns,
          .blocks_row_max = e.resources().config.blocks_row_max,
          .kv_group = walk.state.kv_group,
          .low = walk.low,
          .high = walk.high};
}

// What groups of the walk have in common in the rings of rows that are longer than kRingRowTokens.
void emit_entries(Emitter& e, const Walk& walk, const StateViews& state, const View& a, const View& dt_bias) {
  const StateWalkKernel::Constants& c = walk.constants;
  const StateEntriesKernel::Push push{.inputs = e.resources().forward_inputs,
                                      .key = walk.key.first,
                                      .alpha = walk.alpha.first,
                                      .a = a,
                                      .dt_bias = dt_bias,
                                      .records = state.first,
                                      .tables = state.tables,
                                      .key_columns = walk.key.columns,
                                      .alpha_columns = walk.alpha.columns,
                                      .record_columns = state.record_columns,
                                      .blocks_row_max = e.resources().config.blocks_row_max,
                                      .kv_group = walk.state.kv_group,
                                      .low = walk.low,
                                      .high = walk.high};
  const KernelChoice choice{
      make_kernel<StateEntriesKernel>(e.traits().cpu_kernels ? 8 : 128,
                                      {c.delta, c.key_dim, c.value_dim, c.key_heads, c.shared, c.gates_in_turn}),
      {kRingTokens - 1, state.rows_max}};
  const View reads[] = {walk.key.all, walk.alpha.all, a, dt_bias, state.records, state.tables};
  const View writes[] = {state.records};
  e.launch(choice, PushBytes(push), reads, writes);
}

Status emit_walk(Emitter& e, Walk walk) {
  const auto state = state_views(e, walk.state);
  if (!state) return state.error();
  const auto a = e.weights().vector(walk.a), dt_bias = e.weights().vector(walk.dt_bias);
  if (!a) return a.error();
  if (!dt_bias) return dt_bias.error();
  StateWalkKernel::Constants& constants = walk.constants;
  // The order of sums depends on the shape.
  const bool decodes = e.list().decode_only && !e.list().batch_invariant, has_ring = walk.state.ring_tokens > 0;
  const WalkShape shape =
      (has_ring ? choose_ring_walk : choose_walk)(e.traits(), constants.key_dim, constants.value_dim, decodes);
  if (has_ring && ring_shared_bytes(shape, constants.key_dim) > e.traits().shared_bytes)
    return make_error(ErrorCode::kUnsupported,
                      "vulkan: states of {} keys: expected at least {} bytes of shared memory, found {}",
                      constants.key_dim, ring_shared_bytes(shape, constants.key_dim), e.traits().shared_bytes);
  constants.lanes = shape.lanes;
  constants.parts = shape.parts;
  constants.unrolled = shape.unrolled;
  const char* shader = has_ring ? StateWalkKernel::kRingShader : StateWalkKernel::kShader;
  const KernelChoice choice{make_kernel<StateWalkKernel>(shape.lanes * shape.parts, constants, shader),
                            {ceil_div(constants.value_dim, 4 * shape.lanes), walk.num_heads, state->rows_max}};
  const View reads[] = {walk.query.all, walk.key.all,   walk.value.all, walk.alpha.all, walk.beta.all, *a,
                        *dt_bias,       state->records, state->tables};
  const View writes[] = {e.tensor(walk.out), state->records};
  e.launch(choice, PushBytes(push_of(e, walk, *state, *a, *dt_bias)), reads, writes);
  if (has_ring && !decodes) emit_entries(e, walk, *state, *a, *dt_bias);
  return {};
}

Columns from(Columns columns, uint32_t further) {
  columns.first += further;
  return columns;
}

}  // namespace

Status emit(Emitter& e, const GatedDelta& op) {
  const uint32_t keys = op.key_heads * op.key_dim;
  return emit_walk(e, {.state = op.state,
                       .query = columns_view(e, op.qkv),
                       .key = columns_view(e, from(op.qkv, keys)),
                       .value = columns_view(e, from(op.qkv, 2 * keys)),
                       .alpha = columns_view(e, op.alpha),
                       .beta = columns_view(e, op.beta),
                       .a = op.a,
                       .dt_bias = op.dt_bias,
                       .out = op.out,
                       .num_heads = op.value_heads,
                       .low = op.scale,
                       .high = op.eps,
                       .constants = {.delta = 1,
                                     .key_dim = op.key_dim,
                                     .value_dim = op.value_dim,
                                     .key_heads = op.key_heads,
                                     .shared = op.value_heads / op.key_heads,
                                     .modulo = op.order == KeyHeadOrder::kModulo,
                                     .gates_in_turn = op.gates_in_turn,
                                     .normalise = op.normalise}});
}

Status emit(Emitter& e, const SelectiveScan& op) {
  ColumnsView d = columns_view(e, op.dt);  // where there is none, nothing reads it
  if (op.d >= 0) {
    const auto weight = e.weights().vector(op.d);
    if (!weight) return weight.error();
    d = {*weight, *weight, 0};
  }
  return emit_walk(e, {.state = op.state,
                       .query = columns_view(e, op.c),
                       .key = columns_view(e, op.b),
                       .value = columns_view(e, op.x),
                       .alpha = columns_view(e, op.dt),
                       .beta = d,
                       .a = op.a,
                       .dt_bias = op.dt_bias,
                       .out = op.out,
                       .num_heads = op.num_heads,
                       .low = op.dt_min,
                       .high = op.dt_max,
                       .constants = {.key_dim = op.state_dim,
                                     .value_dim = op.head_dim,
                                     .key_heads = op.num_groups,
                                     .shared = op.num_heads / op.num_groups,
                                     .has_d = op.d >= 0}});
}

}  // namespace llmrt::vulkan
