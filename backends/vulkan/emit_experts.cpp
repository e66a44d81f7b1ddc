// The launches of expert ops: scores and choice, rows sorted by expert, products, weighted sums.
#include <algorithm>

#include "backends/vulkan/choose_experts.h"
#include "backends/vulkan/emitter.h"
#include "backends/vulkan/kernels/experts.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

Result<View> vector_or(const Emitter& e, WeightId id, const View& other) {
  if (id < 0) return other;
  return e.weights().vector(id);
}

// What a product reads and writes, beside its weights.
struct ExpertOperands {
  View x, items, bias, result, count, weights = {}, term = {};
};

void emit_product(Emitter& e, const ExpertProduct& product, const ExpertChoice& choice, const ExpertOperands& o,
                  uint32_t output_first, uint32_t bias_up) {
  const ExpertPush push{.x = o.x,
                        .weight = product.weight.view,
                        .up = product.up.view,
                        .bias = o.bias,
                        .result = o.result,
                        .items = o.items,
                        .count = o.count,
                        .columns = product.columns,
                        .row_words = row_words(product.weight.encoding, product.columns),
                        .num_outputs = product.outputs,
                        .output_first = output_first,
                        .expert_rows = product.expert_rows,
                        .up_first = product.up_first,
                        .bias_up = bias_up,
                        .per_row = product.per_row,
                        .x_per_row = product.is_up ? product.per_row : 1,
                        .rows_first = choice.items.rows_first,
                        .result_columns = product.outputs,
                        .weights = choice.joins ? o.weights : o.x,
                        .term = product.term ? o.term : o.x};
  e.launch(choice.kernel, PushBytes(push), {{o.x, product.weight.view, product.up.view, o.items, o.weights, o.term}},
           {{o.result}});
}

// Where Resources::routes has the items of a list's routed rows, and x in f16.
View items_place(const Emitter& e, const ExpertItems& items, uint32_t rows) {
  LLMRT_CHECK(items.bytes(rows) <= routes_bytes_max(e.resources().config.step_tokens_max) ||
                  items.bytes(rows) <= routes_bytes_max(e.resources().config.sample_rows_max),
              "experts: routes");
  return e.resources().routes.part(0, items.bytes(rows));
}
View rounded_place(const Emitter& e, TensorId x) {
  const StateConfig& config = e.resources().config;
  const uint64_t first = routes_bytes_max(std::max(config.step_tokens_max, config.sample_rows_max));
  const uint64_t bytes = e.list().bytes_of(x) / 2;
  LLMRT_CHECK(first + bytes <= e.resources().routes.bytes, "experts: rows in f16");
  return e.resources().routes.part(first, bytes);
}

// The items of a product, made before it unless they are there. `x`: is rounded to f16 beside it, unless kNoTensor.
View emit_items(Emitter& e, TensorId ids, TensorId x, const ExpertProduct& product, const ExpertItems& items) {
  const View from = e.tensor(ids);
  if (items.kind == ItemKind::kOfOne) return from;
  const View to = items_place(e, items, product.rows);
  if (e.has_items(ids, items, x)) return to;
  const bool rounds = x != kNoTensor;
  const View source = rounds ? e.tensor(x) : View{}, halves = rounds ? rounded_place(e, x) : View{};
  const uint32_t row_octets = rounds ? e.desc(x).columns / 8 : 0, lanes = sort_lanes(e.traits());
  const SortExpertsKernel::Push push{.ids = from,
                                     .items = to,
                                     .count = e.live_count(ids),
                                     .x = rounds ? source : from,
                                     .halves = rounds ? halves : to,
                                     .num_experts = product.num_experts,
                                     .per_row = product.per_row,
                                     .rows_first = items.rows_first,
                                     .row_octets = row_octets};
  const uint32_t octets = rounds ? e.list().rows_of(x) * row_octets : 0;
  e.launch({make_kernel<SortExpertsKernel>(lanes, {.rows_max = items.rows_max}), {1 + ceil_div(octets, lanes)}},
           PushBytes(push), {{from, source}}, {{to, halves}});
  return to;
}

}  // namespace

Status emit(Emitter& e, const RouteExperts& op) {
  auto product = product_of(e.setting(), op);
  if (!product) return product.error();
  const View x = e.tensor(op.x), ids = e.tensor(op.ids), weights = e.tensor(op.weights);
  auto bias = vector_or(e, op.bias, x), correction = vector_or(e, op.correction, x);
  auto gate = vector_or(e, op.shared_gate, x);
  for (const auto* view : {&bias, &correction, &gate})
    if (!*view) return view->error();
  const uint32_t num_experts = product->outputs, rows = product->rows, columns = product->columns;
  const uint32_t chosen = e.list().routed_per_row - op.rule.num_shared;
  const Kernel kernel =
      make_kernel<RouteExpertsKernel>(route_lanes(e.traits()), {.scoring = static_cast<uint32_t>(op.rule.scoring),
                                                                .renormalise = op.rule.renormalise,
                                                                .bias = op.bias >= 0,
                                                                .correction = op.correction >= 0,
                                                                .shared_gate = op.shared_gate >= 0,
                                                                .groups = op.rule.groups,
                                                                .groups_used = op.rule.groups_used,
                                                                .shared = op.rule.num_shared});
  const uint32_t rows_part = scores_rows(e.setting(), num_experts, rows);
  for (uint32_t first = 0; first < rows; first += rows_part) {
    product->rows = std::min(rows_part, rows - first);
    const View scores = e.resources().products.part(0, uint64_t{product->rows} * num_experts * 4);
    ExpertChoice choice = choose_experts(e.setting().target, *product);
    choice.items.rows_first = first;
    emit_product(e, *product, choice,
                 {x.part(uint64_t{first} * columns * 4, uint64_t{product->rows} * columns * 4),
                  {},
                  x,
                  scores,
                  e.live_count(op.x)},
                 0, 0);
    const RouteExpertsKernel::Push push{.scores = scores,
                                        .bias = *bias,
                                        .correction = *correction,
                                        .shared_gate = *gate,
                                        .x = x,
                                        .ids = ids,
                                        .weights = weights,
                                        .count = e.live_count(op.x),
                                        .num_experts = num_experts,
                                        .columns = columns,
                                        .chosen = chosen,
                                        .row_first = first,
                                        .scale = op.rule.scale};
    e.launch({kernel, {product->rows}}, PushBytes(push), {{scores, x}}, {{ids, weights}});
  }
  e.forget_items();
  return {};
}

Status emit(Emitter& e, const ExpertGateUp& op) {
  auto product = product_of(e.setting(), op);
  if (!product) return product.error();
  const View x = e.tensor(op.x), out = e.tensor(op.out);
  auto bias = vector_or(e, e.weights().group(op.group).bias, x);
  if (!bias) return bias.error();
  const bool rounds = rounds_x(e.setting().target, *product);
  if (rounds) product->x = DType::kF16;
  const ExpertChoice choice = choose_experts(e.setting().target, *product);
  const View items = emit_items(e, op.ids, rounds ? op.x : kNoTensor, *product, choice.items);
  const View term = product->term ? e.tensor(op.term) : View{};
  emit_product(e, *product, choice,
               {rounds ? rounded_place(e, op.x) : x, items, *bias, out, e.live_count(op.x), {}, term}, 0,
               op.by_expert ? product->outputs : op.num_experts * product->outputs);
  return {};
}

Status emit(Emitter& e, const ExpertDown& op) {
  auto product = product_of(e.setting(), op);
  if (!product) return product.error();
  const View x = e.tensor(op.x), ids = e.tensor(op.ids), weights = e.tensor(op.weights), out = e.tensor(op.out);
  const WeightId bias_id = e.weights().group(op.group).bias;
  auto bias = vector_or(e, bias_id, x);
  if (!bias) return bias.error();
  const ExpertChoice whole = choose_experts(e.setting().target, *product);
  if (whole.joins) {
    emit_product(e, *product, whole, {x, ids, *bias, out, e.live_count(op.out), weights}, 0, 0);
    return {};
  }
  const uint32_t width = product->outputs, part = sums_outputs(e.setting(), *product);
  if (part == 0)
    return make_error(ErrorCode::kUnsupported,
                      "vulkan: expert_down: expected room for the sums of {} rows, found {} bytes", product->rows,
                      e.resources().products.bytes);
  const uint32_t lanes = e.traits().cpu_kernels ? 8 : 128;
  const bool fours = width % 4 == 0;
  for (uint32_t first = 0; first < width; first += part) {
    product->outputs = std::min(part, width - first);
    const View products = e.resources().products.part(0, uint64_t{product->rows} * product->outputs * 4);
    const ExpertChoice choice = choose_experts(e.setting().target, *product);
    const View items = emit_items(e, op.ids, kNoTensor, *product, choice.items);
    emit_product(e, *product, choice, {x, items, x, products, e.live_count(op.out)}, first, 0);
    const ExpertSumKernel::Push push{.products = products,
                                     .weights = weights,
                                     .ids = ids,
                                     .bias = *bias,
                                     .result = out,
                                     .count = e.live_count(op.out),
                                     .per_row = product->per_row,
                                     .num_outputs = product->outputs,
                                     .output_first = first,
                                     .result_columns = width};
    e.launch({make_kernel<ExpertSumKernel>(lanes, {.bias = bias_id >= 0, .fours = fours}),
              {ceil_div(product->outputs, lanes * (fours ? 4 : 1)), e.list().rows_of(op.out)}},
             PushBytes(push), {{products, weights, ids}}, {{out}});
  }
  return {};
}

}  // namespace llmrt::vulkan
