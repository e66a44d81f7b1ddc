// The launches of steps that multiply: push constants, and which ranges they read and write.
#include "backends/vulkan/emitter.h"
#include "backends/vulkan/kernels/matmul_push.h"
#include "backends/vulkan/kernels/write_halves.h"

namespace llmrt::vulkan {
namespace {

// How a kernel reads x: as it is, or as the norm that it ends.
struct Input {
  View x, parts, squares, factor, next_factor;
  uint32_t slot = 0;
};
Input input_of(const Emitter& e, TensorId x, const NormEnd& end) {
  if (!end.is_open()) return {.x = e.tensor(x)};
  const NormParts parts = norm_parts(e.resources());
  return {parts.x,
          parts.all,
          parts.squares,
          parts.factors[end.slot],
          parts.factors[1 - end.slot],
          static_cast<uint32_t>(end.slot)};
}

// What the launches of one step have in common. `out`: the tensor whose columns count; `result`: where it goes.
struct Operands {
  TensorId x, out;
  Input input;
  View bias, result;
};

// The bias, or `other` where the group has none.
Result<View> bias_of(const Emitter& e, WeightGroupId group, const View& other) {
  const WeightId bias = e.weights().group(group).bias;
  if (bias < 0) return other;
  return e.weights().vector(bias);
}

PushBytes push_of(const Emitter& e, const PieceLaunch& launch, const Operands& o, const View& products,
                  const View& arrivals) {
  const Piece& piece = launch.piece;
  const uint32_t columns = e.desc(o.x).columns, words = row_words(piece.encoding, columns);
  const uint32_t num_rows = static_cast<uint32_t>(piece.num_rows), first = static_cast<uint32_t>(piece.row_begin);
  const uint32_t out_columns = e.desc(o.out).columns;
  const View count = e.live_count(o.x);
  LLMRT_CHECK(o.input.parts.bytes == 0 || launch.choice.push == PushKind::kEnds, "a kernel that ends no norms");
  const auto fill = [&](auto push) {
    push.x = o.input.x;
    push.weight = piece.view;
    push.bias = o.bias;
    push.result = o.result;
    push.count = count;
    push.columns = columns;
    push.row_words = words;
    push.num_rows = num_rows;
    push.result_first = first;
    push.result_columns = out_columns;
    if constexpr (requires { push.products; }) {
      push.products = products;
      push.arrivals = arrivals;
    }
    if constexpr (requires { push.x_rows; }) push.x_rows = e.list().rows_of(o.x);
    if constexpr (requires { push.norms; }) {
      push.norm_slot = o.input.slot;
      push.norms = o.input.parts;
    }
    return PushBytes(push);
  };
  switch (launch.choice.push) {
    case PushKind::kPlain:
      return fill(MatmulPush{});
    case PushKind::kSplit:
      return fill(MatmulSplitPush{});
    case PushKind::kRuns:
      return fill(MatmulRunsPush{});
    case PushKind::kEnds:
      return fill(MatmulEndsPush{});
  }
  return {};
}

// One piece. `written`: what it claims of the result; pieces that write apart claim it once, so that no barrier stands
// between them.
void emit_piece(Emitter& e, const PieceLaunch& launch, const Operands& o, const View& written) {
  const View products = e.resources().products.part(launch.products_first, launch.products_bytes);
  const View arrivals = e.resources().arrivals.part(launch.arrivals_first, launch.arrivals_bytes);
  const View reads[] = {o.input.x, launch.piece.view, o.input.squares, o.input.factor};
  const View writes[] = {written, products, arrivals, launch.piece.row_begin == 0 ? o.input.next_factor : View{}};
  const bool hands_over = launch.products_bytes > 0;
  Launch& made =
      e.launch(launch.choice, push_of(e, launch, o, hands_over ? products : View{}, hands_over ? arrivals : View{}),
               reads, writes);
  made.products_bytes = launch.products_bytes;
  made.arrivals_bytes = launch.arrivals_bytes;
}

void emit_pieces(Emitter& e, std::vector<PieceLaunch> launches, const Operands& o) {
  bool is_first = true;
  for (PieceLaunch& launch : launches) {
    if (launch.slice) {
      const View place = e.resources().halves.part(0, launch.piece.view.bytes);
      const Launch made = write_halves(launch.source, e.desc(o.x).columns, *launch.slice, place);
      e.launch({made.kernel, made.groups}, made.push, {{launch.source.view}}, {{place}});
      launch.piece.view = place;
    }
    emit_piece(e, launch, o, launch.slice || is_first ? o.result : View{});
    if (!launch.slice) is_first = false;
  }
}

}  // namespace

Status emit(Emitter& e, const MatmulStep& step) {
  const Matmul& op = e.op<Matmul>(step.matmul);
  auto launches = choose_matmul(e.setting(), op, step.x.eps);
  if (!launches) return launches.error();
  const View out = e.tensor(op.out);
  auto bias = bias_of(e, op.group, out);
  if (!bias) return bias.error();
  emit_pieces(e, std::move(*launches), {op.x, op.out, input_of(e, op.x, step.x), *bias, out});
  return {};
}

Status emit(Emitter& e, const GatedMatmulStep& step) {
  const Matmul& op = e.op<Matmul>(step.matmul);
  const GatedActivation& activation = e.op<GatedActivation>(step.activation);
  const View out = e.tensor(activation.out);
  emit_pieces(e, choose_gated(e.setting(), op, activation, step.x.eps),
              {op.x, activation.out, input_of(e, op.x, step.x), out, out});
  return {};
}

Status emit(Emitter& e, const PartsMatmulStep& step) {
  const Matmul& op = e.op<Matmul>(step.matmul);
  PieceLaunch launch = *choose_parts(e.setting(), op);
  const View parts = e.resources().products.part(0, parts_bytes(e.setting(), op, launch.choice));
  launch.products_bytes = launch.arrivals_bytes = 0;
  emit_piece(e, launch, {op.x, op.out, input_of(e, op.x, {}), parts, parts}, parts);
  return {};
}

Status emit(Emitter& e, const NormedMatmulStep& step) {
  const Matmul& op = e.op<Matmul>(step.matmul);
  const RmsNorm& norm = e.op<RmsNorm>(step.norm);
  auto weight = e.weights().vector(norm.weight);
  if (!weight) return weight.error();
  const Product product = product_of(e.setting(), op, e.weights().group(op.group).pieces[0]);
  const Piece& piece = product.piece;
  const View x = e.tensor(op.x), residual = e.tensor(norm.x);
  const NormParts parts = norm_parts(e.resources());
  MatmulEndsPush push{};
  push.x = x;
  push.weight = piece.view;
  push.count = e.live_count(op.x);
  push.columns = product.columns;
  push.row_words = row_words(piece.encoding, product.columns);
  push.num_rows = product.num_rows();
  push.result_columns = product.out_columns;
  push.norm_slot = step.slot;
  push.kv_slots = residual;
  push.freqs = *weight;
  push.data = parts.x;
  push.norms = parts.all;
  const View reads[] = {x, piece.view, parts.factors[step.slot]}, writes[] = {residual, parts.squares, parts.x};
  e.launch(choose_few(e.setting().target, product, {.leaves_norm = true}), PushBytes(push), reads, writes);
  return {};
}

Status emit(Emitter& e, const QkvMatmulStep& step) {
  const Matmul& op = e.op<Matmul>(step.matmul);
  const Rope& rope = e.op<Rope>(step.rope);
  const KvWrite& write = e.op<KvWrite>(step.kv_write);
  const KvPool& pool = e.resources().pools[write.kv_group];
  const Input input = input_of(e, op.x, step.x);
  const View out = e.tensor(op.out), data = pool.device.data[write.layer];
  const View positions = e.tensor(rope.positions), kv_slots = e.tensor(write.kv_slots);
  auto freqs = e.weights().vector(rope.freqs);
  if (!freqs) return freqs.error();
  auto bias = bias_of(e, op.group, out);
  if (!bias) return bias.error();
  const Ends ends{.bias = e.weights().group(op.group).bias >= 0,
                  .rope = &rope,
                  .pool_dtype = kv_constant(pool.group.dtype),
                  .norm_eps = step.x.eps};
  bool is_first = true;
  for (const Piece& piece : e.weights().group(op.group).pieces) {
    Product product = product_of(e.setting(), op, piece);
    product.share = static_cast<double>(piece.num_rows) / product.out_columns;
    const MatmulEndsPush push{.x = input.x,
                              .weight = piece.view,
                              .bias = *bias,
                              .result = out,
                              .count = e.live_count(op.x),
                              .columns = product.columns,
                              .row_words = row_words(piece.encoding, product.columns),
                              .num_rows = product.num_rows(),
                              .result_first = static_cast<uint32_t>(piece.row_begin),
                              .result_columns = product.out_columns,
                              .norm_slot = input.slot,
                              .positions = positions,
                              .kv_slots = kv_slots,
                              .freqs = *freqs,
                              .data = data,
                              .num_heads = rope.num_heads,
                              .num_kv_heads = rope.num_kv_heads,
                              .head_dim = rope.head_dim,
                              .block_tokens = pool.group.block_tokens,
                              .magnitude = rope.magnitude,
                              .norms = input.parts};
    // Pieces write apart, and the first claims it all.
    const View reads[] = {input.x, piece.view, positions, kv_slots, input.squares, input.factor};
    const View writes[] = {out, data, input.next_factor};
    e.launch(choose_few(e.setting().target, product, ends), PushBytes(push), reads,
             std::span(writes).first(is_first ? 3 : 0));
    is_first = false;
  }
  return {};
}

}  // namespace llmrt::vulkan
