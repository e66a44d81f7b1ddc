// route_experts, expert_gate_up, expert_down: every rule of routing, every encoding, one row to prompts, all rows to
// one expert and none to most, ties, scores that are not numbers.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "tests/ops/op_harness.h"

namespace llmrt::optest {
namespace {

// Small integers: products and sums of them are exact in f32 in any order, so that equal scores are equal everywhere.
double small_integer(std::mt19937_64& rng) {
  return static_cast<double>(rng() % 9) - 4;
}

struct RouteShape {
  const char* what;
  RoutingRule rule;
  uint32_t num_experts, used, columns;
  bool bias = false, correction = false, shared_gate = false;
};

WeightId add_matrix(Suite* suite, uint64_t rows, uint64_t columns, const std::vector<float>& values) {
  const WeightId id = suite->add_f32(values);
  suite->weights.tensors[static_cast<size_t>(id)].rows = rows;
  suite->weights.tensors[static_cast<size_t>(id)].columns = columns;
  return id;
}

RouteExperts add_router(Suite* suite, const RouteShape& shape, std::mt19937_64& rng) {
  // A power of two that leaves scores of a few units.
  const double unit = std::exp2(-std::round(std::log2(5 * std::sqrt(shape.columns))));
  const auto values = [&](size_t count, double scale) {
    std::vector<float> all(count);
    for (float& value : all) value = static_cast<float>(small_integer(rng) * scale);
    return all;
  };
  RouteExperts op{};
  op.rule = shape.rule;
  op.weight =
      add_matrix(suite, shape.num_experts, shape.columns, values(size_t{shape.num_experts} * shape.columns, unit));
  op.bias = shape.bias ? suite->add_f32(values(shape.num_experts, 0.25)) : -1;
  // Far apart, so that sums with probabilities do not come near each other.
  op.correction = shape.correction ? suite->add_f32(values(shape.num_experts, 2)) : -1;
  op.shared_gate = shape.shared_gate ? suite->add_f32(values(shape.columns, unit)) : -1;
  return op;
}

Case route_case(const RouteShape& shape, RouteExperts op, Rows rows_kind, uint32_t rows, uint32_t bucket,
                std::mt19937_64& rng) {
  Case test_case;
  test_case.variant = shape.what;
  test_case.name = fmt::format("route_experts {} E {} k {} D {} rows {} of {} {}", shape.what, shape.num_experts,
                               shape.used, shape.columns, rows, bucket, rows_name(rows_kind));
  Step step;
  OpList& list = step.set_rows(rows_kind, rows, bucket);
  list.routed_per_row = shape.used + shape.rule.num_shared;
  std::vector<double> values(size_t{rows} * shape.columns);
  for (double& value : values) value = small_integer(rng);
  if (rows > 2) values[2 * size_t{shape.columns}] = std::nan("");
  op.x = step.input(rows_kind, "x", shape.columns, DType::kF32, values);
  op.ids = step.output_in(list, Rows::kRouted, "ids", 1, DType::kI32, Tolerance::kExact);
  op.weights = step.output_in(list, Rows::kRouted, "weights", 1, DType::kF32, Tolerance::kRotation);
  step.last_output().scale = 0.1;
  list.ops = {op};
  test_case.steps = {std::move(step)};
  return test_case;
}

std::vector<RouteShape> route_shapes() {
  using enum ExpertScoring;
  const RoutingRule softmax{.scoring = kSoftmax, .renormalise = true};
  std::vector<RouteShape> shapes = {
      {"softmax", softmax, 128, 8, 96},
      {"softmax, as they are", {.scoring = kSoftmax}, 60, 4, 33},
      {"softmax of the chosen", {.scoring = kSoftmaxOfChosen}, 32, 4, 180, true},
      {"sigmoid", {.scoring = kSigmoid, .renormalise = true, .scale = 2.5f}, 64, 6, 64, false, true},
      {"groups", {.scoring = kSigmoid, .renormalise = true, .scale = 1.5f, .groups = 8, .groups_used = 3}, 64, 8, 64},
      {"softmax in groups", {.scoring = kSoftmax, .groups = 4, .groups_used = 2}, 32, 5, 64},
      {"sqrt softplus", {.scoring = kSqrtSoftplus, .renormalise = true}, 40, 3, 128},
      {"one", softmax, 1, 1, 32},
      {"all", softmax, 8, 8, 32},
      {"many", softmax, 513, 10, 256},
  };
  shapes.push_back({"shared", softmax, 16, 4, 64});
  shapes.back().rule.num_shared = 2;
  shapes.push_back({"shared by a gate", softmax, 16, 4, 64});
  shapes.back().rule.num_shared = 1;
  shapes.back().shared_gate = true;
  return shapes;
}

}  // namespace

TEST_CASE("route_experts chooses the best experts of each row", "[route_experts]") {
  auto rng = test_rng("route_experts");
  Suite suite;
  for (const RouteShape& shape : route_shapes()) {
    const RouteExperts op = add_router(&suite, shape, rng);
    for (auto [rows, bucket] : {std::pair{0u, 1u}, {1u, 1u}, {7u, 8u}, {70u, 128u}})
      suite.cases.push_back(route_case(shape, op, Rows::kTokens, rows, bucket, rng));
    suite.cases.push_back(route_case(shape, op, Rows::kSampled, 5, 8, rng));
  }
  run(suite);
}

// What the comparison above must find: ids and weights by another rule than that of the case.
TEST_CASE("a part of the rule that is left out, another order and other ties are told", "[route_experts]") {
  std::mt19937_64 rng(5);  // fixed: a correction far above the others could hide what groups leave out
  Suite suite;
  RouteShape shape{"faults", {.scoring = ExpertScoring::kSigmoid, .renormalise = true, .scale = 2.5f}, 32, 4, 64};
  shape.rule.groups = 4;
  shape.rule.groups_used = 2;
  shape.bias = shape.correction = true;
  const RouteExperts op = add_router(&suite, shape, rng);
  suite.cases.push_back(route_case(shape, op, Rows::kTokens, 24, 24, rng));
  const Case& right = suite.cases.front();
  const Outcome expected = reference_outcome(suite, right);
  CHECK(compare(right, expected, reference_outcome(suite, right), Caps{}).empty());
  const std::function<void(RouteExperts&)> faults[] = {
      [](RouteExperts& wrong) { wrong.rule.renormalise = false; },
      [](RouteExperts& wrong) { wrong.rule.scale = 1; },
      [](RouteExperts& wrong) { wrong.rule.groups = wrong.rule.groups_used = 1; },
      [](RouteExperts& wrong) { wrong.correction = -1; },
      [](RouteExperts& wrong) { wrong.bias = -1; },
      [](RouteExperts& wrong) { wrong.rule.scoring = ExpertScoring::kSoftmax; }};
  for (size_t i = 0; i < std::size(faults); ++i) {
    INFO("fault " << i);
    Case changed = right;
    faults[i](std::get<RouteExperts>(changed.steps[0].forward.ops[0]));
    CHECK_FALSE(compare(right, expected, reference_outcome(suite, changed), Caps{}).empty());
  }
}

TEST_CASE("of experts with equal scores the lower ids are chosen", "[route_experts]") {
  auto rng = test_rng("route ties");
  Suite suite;
  const RouteShape shape{"ties", {.scoring = ExpertScoring::kSoftmax, .renormalise = true}, 40, 6, 32};
  RouteExperts op{};
  op.rule = shape.rule;
  std::vector<float> rows(size_t{shape.num_experts} * shape.columns, 0.25f);
  op.weight = add_matrix(&suite, shape.num_experts, shape.columns, rows);
  op.bias = op.correction = op.shared_gate = -1;
  suite.cases.push_back(route_case(shape, op, Rows::kTokens, 2, 2, rng));
  Case& ties = suite.cases.front();
  const TensorId ids = ties.steps[0].outputs[0].tensor, weights = ties.steps[0].outputs[1].tensor;
  ties.check_tensors = [=](const Outcome&, const Outcome& actual) {
    std::vector<std::string> failures;
    for (uint32_t k = 0; k < 2 * 6; ++k) {
      int32_t id = -1;
      float weight = 0;
      std::memcpy(&id, actual.tensors[0].at(ids).data() + k * 4, 4);
      std::memcpy(&weight, actual.tensors[0].at(weights).data() + k * 4, 4);
      if (id != static_cast<int32_t>(k % 6)) failures.push_back(fmt::format("place {}: found expert {}", k, id));
      if (std::abs(weight - 1.0f / 6) > 1e-5f) failures.push_back(fmt::format("place {}: found weight {}", k, weight));
    }
    return failures;
  };
  run(suite);
}

namespace {

// Which experts the rows of a case go to.
enum class Spread { kEven, kOne, kFew };
constexpr const char* kSpreadNames[] = {"evenly", "one", "few"};

std::vector<double> random_ids(uint32_t num_experts, uint32_t used, uint32_t rows, Spread spread,
                               std::mt19937_64& rng) {
  std::vector<double> ids;
  std::vector<uint32_t> order(num_experts);
  std::iota(order.begin(), order.end(), 0);
  for (uint32_t t = 0; t < rows; ++t) {
    if (t == 0 || spread == Spread::kEven) std::ranges::shuffle(order, rng);
    if (spread == Spread::kFew) std::shuffle(order.begin(), order.begin() + std::min(num_experts, used + 1), rng);
    ids.insert(ids.end(), order.begin(), order.begin() + used);
  }
  return ids;
}

struct ExpertShape {
  Encoding encoding;
  uint32_t num_experts, used, width, ffn;
  bool by_expert = false, bias = false;
  Activation activation = Activation::kSilu;
};

struct ExpertGroups {
  WeightGroupId gate_up, down;
};

ExpertGroups add_experts(Suite* suite, const ExpertShape& shape, std::mt19937_64& rng) {
  const uint64_t rows = uint64_t{shape.num_experts} * shape.ffn;
  const double deviation = 1 / std::sqrt(shape.width);
  const auto matrix = [&](uint64_t n) { return suite->add_weight(shape.encoding, n, shape.width, rng, deviation); };
  ExpertGroups groups;
  const bool is_one = !has_other_half(shape.activation);
  groups.gate_up = suite->add_group(is_one            ? std::vector{matrix(rows)}
                                    : shape.by_expert ? std::vector{matrix(2 * rows)}
                                                      : std::vector{matrix(rows), matrix(rows)},
                                    shape.bias, rng);
  groups.down = suite->add_group({suite->add_weight(shape.encoding, uint64_t{shape.num_experts} * shape.width,
                                                    shape.ffn, rng, 1 / std::sqrt(shape.ffn))},
                                 shape.bias, rng);
  for (const WeightGroupId id : {groups.gate_up, groups.down})
    suite->weights.groups[static_cast<size_t>(id)].num_experts = shape.num_experts;
  return groups;
}

std::string shape_name(const ExpertShape& shape, uint32_t rows, uint32_t bucket, Spread spread) {
  return fmt::format("{} E {} k {} D {} F {}{}{}{} rows {} of {} to {}", encoding_name(shape.encoding),
                     shape.num_experts, shape.used, shape.width, shape.ffn, shape.by_expert ? " by expert" : "",
                     shape.bias ? " bias" : "", has_other_half(shape.activation) ? "" : " squared relu", rows, bucket,
                     kSpreadNames[static_cast<int>(spread)]);
}

struct ExpertRun {
  Rows kind = Rows::kTokens;
  uint32_t rows = 1, bucket = 1;
  Spread spread = Spread::kEven;
  bool batch_invariant = false;
  DType math = DType::kF16;
};

Case gate_up_case(const ExpertShape& shape, WeightGroupId group, const ExpertRun& how, std::mt19937_64& rng) {
  Case test_case;
  test_case.variant = encoding_name(shape.encoding);
  test_case.name = "expert_gate_up " + shape_name(shape, how.rows, how.bucket, how.spread);
  Step step;
  OpList& list = step.set_rows(how.kind, how.rows, how.bucket);
  list.routed_per_row = shape.used;
  list.batch_invariant = how.batch_invariant;
  const TensorId x = step.input(how.kind, "x", shape.width, DType::kF32,
                                random_normal(rng, size_t{how.rows} * shape.width, 1, how.math));
  const TensorId ids = step.input_in(list, Rows::kRouted, "ids", 1, DType::kI32,
                                     random_ids(shape.num_experts, shape.used, how.rows, how.spread, rng));
  const TensorId out = step.output_in(list, Rows::kRouted, "out", shape.ffn, how.math, Tolerance::kMatmul, how.math);
  step.last_output().scale = 1;
  // A product of two sums is off by the error of each times the other, which may be several times as large as most.
  step.last_output().slack = how.math == DType::kF16 ? 2e-3 : 0;
  step.last_output().of_quantized = is_quantized(shape.encoding);
  list.ops = {ExpertGateUp{x, ids, group, shape.num_experts, shape.by_expert, shape.activation, out}};
  test_case.steps = {std::move(step)};
  return test_case;
}

Case down_case(const ExpertShape& shape, WeightGroupId group, const ExpertRun& how, std::mt19937_64& rng) {
  Case test_case;
  test_case.variant = encoding_name(shape.encoding);
  test_case.name = "expert_down " + shape_name(shape, how.rows, how.bucket, how.spread);
  Step step;
  OpList& list = step.set_rows(how.kind, how.rows, how.bucket);
  list.routed_per_row = shape.used;
  list.batch_invariant = how.batch_invariant;
  const size_t routed = size_t{how.rows} * shape.used;
  const TensorId x =
      step.input_in(list, Rows::kRouted, "x", shape.ffn, how.math, random_normal(rng, routed * shape.ffn, 1, how.math));
  const TensorId ids = step.input_in(list, Rows::kRouted, "ids", 1, DType::kI32,
                                     random_ids(shape.num_experts, shape.used, how.rows, how.spread, rng));
  const TensorId weights =
      step.input_in(list, Rows::kRouted, "weights", 1, DType::kF32, random_normal(rng, routed, 1, DType::kF32));
  const TensorId out = step.output_in(list, how.kind, "out", shape.width, DType::kF32, Tolerance::kMatmul, how.math);
  step.last_output().scale = 1;
  step.last_output().of_quantized = is_quantized(shape.encoding);
  list.ops = {ExpertDown{x, ids, weights, group, shape.num_experts, out}};
  test_case.steps = {std::move(step)};
  return test_case;
}

void add_cases(Suite* suite, const ExpertShape& shape, const std::vector<ExpertRun>& runs, std::mt19937_64& rng) {
  const ExpertGroups groups = add_experts(suite, shape, rng);
  for (const ExpertRun& how : runs) {
    suite->cases.push_back(gate_up_case(shape, groups.gate_up, how, rng));
    suite->cases.push_back(down_case(shape, groups.down, how, rng));
  }
}

}  // namespace

TEST_CASE("experts of every encoding multiply the rows that go to them", "[experts]") {
  auto rng = test_rng("experts");
  Suite suite;
  for (const Encoding encoding : all_encodings()) {
    const std::vector<ExpertRun> runs = {{.rows = 1, .bucket = 1},
                                         {.rows = 3, .bucket = 4},
                                         {.rows = 30, .bucket = 32, .spread = Spread::kFew},
                                         {.rows = 3, .bucket = 4, .math = DType::kF32},
                                         {.rows = 30, .bucket = 32, .spread = Spread::kFew, .math = DType::kF32}};
    add_cases(&suite, {encoding, 6, 2, 256, 256}, runs, rng);
  }
  run(suite);
}

TEST_CASE("experts of odd shapes, with biases, clamped, and rows spread in every way", "[experts]") {
  auto rng = test_rng("experts odd");
  Suite suite;
  const std::vector<ExpertShape> shapes = {
      {Encoding::kQ4_0, 5, 3, 160, 96, false, true, Activation::kClampedSilu},
      {Encoding::kF16, 9, 4, 72, 40, true, true, Activation::kGelu},
      {Encoding::kQ8_0, 16, 4, 96, 224, true},
      {Encoding::kF32, 3, 1, 33, 17},
      {Encoding::kQ4_K, 40, 8, 512, 256},
      {Encoding::kQ8_0, 16, 4, 96, 224, false, false, Activation::kSquaredRelu},
      {Encoding::kQ4_0, 5, 3, 160, 96, false, true, Activation::kSquaredRelu},
      {Encoding::kF32, 3, 1, 33, 18, false, false, Activation::kSquaredRelu},
  };
  std::vector<ExpertRun> runs;
  for (const Spread spread : {Spread::kEven, Spread::kOne, Spread::kFew})
    for (auto [rows, bucket] : {std::pair{0u, 1u}, {1u, 1u}, {2u, 2u}, {8u, 8u}, {17u, 32u}, {130u, 256u}})
      runs.push_back({.rows = rows, .bucket = bucket, .spread = spread});
  runs.push_back({.kind = Rows::kSampled, .rows = 5, .bucket = 8});
  runs.push_back({.rows = 20, .bucket = 32, .batch_invariant = true});
  runs.push_back({.rows = 20, .bucket = 32, .math = DType::kF32});
  for (const ExpertShape& shape : shapes) add_cases(&suite, shape, runs, rng);
  run(suite);
}

// More scratch than a backend holds: it cuts the rows, and the outputs.
TEST_CASE("experts multiply more rows than their scratch holds at once", "[experts][large]") {
  auto rng = test_rng("experts many");
  Suite suite;
  const ExpertShape many_columns{Encoding::kQ4_0, 40, 32, 2304, 32}, many_outs{Encoding::kQ4_0, 16, 8, 2560, 32};
  suite.cases.push_back(
      gate_up_case(many_columns, add_experts(&suite, many_columns, rng).gate_up, {.rows = 1000, .bucket = 1024}, rng));
  suite.cases.push_back(
      down_case(many_outs, add_experts(&suite, many_outs, rng).down, {.rows = 2000, .bucket = 2048}, rng));
  run(suite);
}

// A row's numbers do not depend on the rows beside it: the first row of a batch has the bits that it has alone.
TEST_CASE("in batch-invariant lists a row of experts has the same bits whatever is beside it", "[experts]") {
  auto rng = test_rng("experts invariant");
  Suite suite;
  const ExpertShape shape{Encoding::kQ4_0, 8, 3, 256, 128};
  const ExpertGroups groups = add_experts(&suite, shape, rng);
  Case many = gate_up_case(shape, groups.gate_up, {.rows = 40, .bucket = 64, .batch_invariant = true}, rng);
  Case alone = gate_up_case(shape, groups.gate_up, {.rows = 1, .bucket = 1, .batch_invariant = true}, rng);
  for (size_t i = 0; i < alone.steps[0].fills.size(); ++i)
    std::copy_n(many.steps[0].fills[i].values.begin(), alone.steps[0].fills[i].values.size(),
                alone.steps[0].fills[i].values.begin());
  Case both = many;
  both.name += ", then alone";
  both.steps.push_back(alone.steps[0]);
  const TensorId out = both.steps[0].outputs[0].tensor;
  both.check_tensors = [out](const Outcome&, const Outcome& actual) {
    std::vector<std::string> failures;
    const auto& whole = actual.tensors[0].at(out);
    const auto& one = actual.tensors[1].at(out);
    const size_t bytes = 3 * 128 * 2;
    if (!std::equal(one.begin(), one.begin() + bytes, whole.begin()))
      failures.push_back("row 0: other bits than alone");
    return failures;
  };
  suite.cases = {std::move(both)};
  run(suite);
}

// Two layers in one list, each with its own routes, and the same list with other rows: what a device keeps of a step's
// routes is its own layer's, and recorded commands take what comes.
TEST_CASE("layers of experts in one list go by their own routes, step after step", "[experts]") {
  auto rng = test_rng("experts layers");
  Suite suite;
  const ExpertShape shape{Encoding::kQ4_0, 16, 4, 256, 128};
  const ExpertGroups groups = add_experts(&suite, shape, rng);
  const RoutingRule rule{.scoring = ExpertScoring::kSoftmax, .renormalise = true};
  const RouteExperts router = add_router(&suite, {"layers", rule, shape.num_experts, shape.used, shape.width}, rng);
  for (const DType math : {DType::kF32, DType::kF16}) {
    for (const uint32_t bucket : {1u, 8u, 64u, 256u}) {
      Case test_case;
      test_case.variant = encoding_name(shape.encoding);
      test_case.name = fmt::format("experts in two layers, {} rows, {}", bucket, dtype_name(math));
      for (const uint32_t rows : {bucket, (bucket + 1) / 2, bucket}) {
        Step step;
        OpList& list = step.set_rows(Rows::kTokens, rows, bucket);
        list.routed_per_row = shape.used;
        for (const std::string layer : {"0", "1"}) {
          std::vector<double> values(size_t{rows} * shape.width);
          for (double& value : values) value = small_integer(rng);
          RouteExperts route = router;
          route.x = step.input(Rows::kTokens, "x" + layer, shape.width, DType::kF32, values);
          route.ids = step.output_in(list, Rows::kRouted, "ids" + layer, 1, DType::kI32, Tolerance::kExact);
          route.weights = step.output_in(list, Rows::kRouted, "weights" + layer, 1, DType::kF32, Tolerance::kRotation);
          step.last_output().scale = 0.1;
          const TensorId gated = list.add_tensor({"gated" + layer, Rows::kRouted, shape.ffn, math, Storage::kArena});
          const TensorId out =
              step.output_in(list, Rows::kTokens, "out" + layer, shape.width, DType::kF32, Tolerance::kMatmul, math);
          step.last_output().scale = 1;
          step.last_output().of_quantized = true;
          // What is multiplied last has been rounded once more, and gates multiply two errors.
          step.last_output().slack = math == DType::kF16 ? 2e-3 : 1e-5;
          list.ops.push_back(route);
          list.ops.push_back(
              ExpertGateUp{route.x, route.ids, groups.gate_up, shape.num_experts, false, shape.activation, gated});
          list.ops.push_back(ExpertDown{gated, route.ids, route.weights, groups.down, shape.num_experts, out});
        }
        test_case.steps.push_back(std::move(step));
      }
      suite.cases.push_back(std::move(test_case));
    }
  }
  run(suite);
}

}  // namespace llmrt::optest
