// expert_shrink, expert_term, expert_expand, and expert_gate_up with a term: routed rows of many adapters and of none,
// experts that an adapter leaves as they are, A or B that all experts share.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "core/backend/validating.h"
#include "core/base/checked_math.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/test_devices.h"
#include "tests/reference/backend.h"

namespace llmrt::optest {
namespace {

struct Stack {
  WeightGroupId group;
  uint32_t num_experts, used;
  std::vector<uint32_t> part_rows;  // of an expert
  uint32_t columns;

  uint32_t rows() const { return std::accumulate(part_rows.begin(), part_rows.end(), 0u); }
};

Stack add_stack(Suite* suite, uint32_t num_experts, uint32_t used, std::vector<uint32_t> part_rows, uint32_t columns,
                std::mt19937_64& rng) {
  std::vector<WeightId> tensors;
  for (const uint32_t rows : part_rows)
    tensors.push_back(suite->add_weight(Encoding::kF16, uint64_t{num_experts} * rows, columns, rng));
  const WeightGroupId group = suite->add_group(tensors, false, rng);
  suite->weights.groups[static_cast<size_t>(group)].num_experts = num_experts;
  return {group, num_experts, used, std::move(part_rows), columns};
}

struct Reach {
  uint32_t expert_first, num_experts;
  bool shares_a = false, shares_b = false;
};

AdapterOf expert_adapter(const Stack& stack, uint32_t slot, const std::vector<uint32_t>& ranks, const Reach& reach,
                         std::mt19937_64& rng) {
  AdapterOf adapter{slot, stack.group, {}, reach.expert_first, reach.num_experts, reach.shares_a, reach.shares_b};
  const size_t num_a = reach.shares_a ? 1 : reach.num_experts, num_b = reach.shares_b ? 1 : reach.num_experts;
  for (size_t p = 0; p < stack.part_rows.size(); ++p) {
    AdapterPart part;
    part.rank = ranks[p];
    part.num_rows = stack.part_rows[p];
    // Numbers that f16 and bf16 both have.
    part.a = random_normal(rng, num_a * part.rank * stack.columns, 1 / std::sqrt(stack.columns), DType::kBF16);
    part.b =
        random_normal(rng, num_b * part.rank * part.num_rows, 1 / std::sqrt(std::max(part.rank, 1u)), DType::kBF16);
    part.scale = p % 2 == 0 ? 2.0f : 0.375f;
    adapter.parts.push_back(std::move(part));
  }
  return adapter;
}

uint32_t ranks_of(const AdapterOf& adapter) {
  uint32_t ranks = 0;
  for (const AdapterPart& part : adapter.parts) ranks += round_up(part.rank, kAdapterRankStep);
  return ranks;
}

// Distinct experts of each row.
std::vector<double> expert_ids(const Stack& stack, uint32_t rows, std::mt19937_64& rng) {
  std::vector<double> ids;
  std::vector<uint32_t> order(stack.num_experts);
  std::iota(order.begin(), order.end(), 0u);
  for (uint32_t t = 0; t < rows; ++t) {
    std::ranges::shuffle(order, rng);
    ids.insert(ids.end(), order.begin(), order.begin() + stack.used);
  }
  return ids;
}

enum class Chain { kTerm, kExpand };  // shrink, and what follows it

struct ExpertStep {
  Chain chain = Chain::kTerm;
  Rows rows = Rows::kTokens;
  uint32_t bucket = 1;
  DType dtype = DType::kF32;  // of x
  bool batch_invariant = false;
};

// slots[r]: of row r's adapter, -1 = none.
template <class Inputs>
void add_expert_items(const std::vector<int>& slots, Inputs* inputs) {
  for (int slot = 0; slot <= std::ranges::max(slots); ++slot) {
    for (uint32_t row = 0; row < slots.size(); ++row) {
      if (slots[row] != slot) continue;
      if (inputs->adapter_items.empty() || inputs->adapter_items.back().slot != static_cast<uint32_t>(slot) ||
          inputs->adapter_items.back().num_rows == kAdapterItemRows)
        inputs->adapter_items.push_back(
            {static_cast<uint32_t>(slot), static_cast<uint32_t>(inputs->adapter_rows.size()), 0});
      inputs->adapter_rows.push_back({row, row % 3 == 0 ? 0.5f : 1.0f});
      ++inputs->adapter_items.back().num_rows;
    }
  }
}

Case expert_case(const Stack& stack, const ExpertStep& how, const std::vector<int>& slots,
                 std::vector<AdapterOf> adapters, std::mt19937_64& rng) {
  const uint32_t live = static_cast<uint32_t>(slots.size());
  uint32_t ranks = 8;
  for (const AdapterOf& adapter : adapters) ranks = std::max(ranks, ranks_of(adapter));
  Case test_case;
  test_case.variant = dtype_name(how.dtype);
  test_case.name = fmt::format("expert {} {} {} rows {} of {} E {} k {} n {} k {} rank {}",
                               how.chain == Chain::kTerm ? "term" : "expand", test_case.variant, rows_name(how.rows),
                               live, how.bucket, stack.num_experts, stack.used, stack.rows(), stack.columns, ranks);
  Step step;
  OpList* list = &step.forward;
  if (how.rows == Rows::kTokens) {
    for (uint32_t r = 0; r < live; ++r) {
      step.add_row(r, 0, 1);
      step.forward_inputs.rows.back().adapter_id = static_cast<uint32_t>(slots[r] + 1);
    }
    step.set_bucket(how.bucket);
    if (live > 0) add_expert_items(slots, &step.forward_inputs);
  } else {
    list = &step.set_rows(Rows::kSampled, live, how.bucket);
    if (live > 0) add_expert_items(slots, &step.sample_inputs);
  }
  list->routed_per_row = stack.used;
  list->batch_invariant = how.batch_invariant;
  const size_t routed = size_t{live} * stack.used;
  const auto random = [&](size_t count, DType dtype) { return random_normal(rng, count, 1, dtype); };
  const TensorId ids = step.input_in(*list, Rows::kRouted, "ids", 1, DType::kI32, expert_ids(stack, live, rng));
  const TensorId y = list->add_tensor({"y", Rows::kRouted, ranks + 8, DType::kF32});
  if (how.chain == Chain::kTerm) {
    const TensorId x =
        step.input(how.rows, "x", stack.columns, how.dtype, random(size_t{live} * stack.columns, how.dtype));
    const TensorId out =
        step.output_in(*list, Rows::kRouted, "out", stack.rows(), DType::kF32, Tolerance::kMatmul, how.dtype);
    list->ops = {ExpertShrink{x, ids, stack.group, y}, ExpertTerm{y, ids, stack.group, out}};
  } else {
    const TensorId x =
        step.input_in(*list, Rows::kRouted, "x", stack.columns, how.dtype, random(routed * stack.columns, how.dtype));
    const TensorId weights =
        step.input_in(*list, Rows::kRouted, "weights", 1, DType::kF32, random(routed, DType::kF32));
    const TensorId out = step.inout(how.rows, "out", stack.rows(), DType::kF32,
                                    random(size_t{live} * stack.rows(), DType::kF32), Tolerance::kMatmul);
    list->ops = {ExpertShrink{x, ids, stack.group, y}, ExpertExpand{y, ids, weights, stack.group, out}};
  }
  step.last_output().math = how.dtype;
  step.last_output().scale = 1;
  test_case.adapters = std::move(adapters);
  test_case.steps = {std::move(step)};
  return test_case;
}

constexpr DType kExpertDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

}  // namespace

TEST_CASE("adapters on experts of every rank change the routed rows that have them", "[expert_adapters]") {
  auto rng = test_rng("expert adapters ranks");
  Suite suite;
  suite.slots_max = 80;
  const Stack up = add_stack(&suite, 6, 3, {40, 40}, 96, rng), down = add_stack(&suite, 6, 3, {67}, 40, rng);
  for (const DType dtype : kExpertDTypes)
    for (const uint32_t rank : {1u, 8u, 17u, 64u, 128u})
      for (const auto& [rows, bucket] : {std::pair{1u, 1u}, {3u, 4u}, {66u, 80u}}) {
        const std::vector<int> slots(rows, 0);
        const ExpertStep how{Chain::kTerm, Rows::kTokens, bucket, dtype};
        suite.cases.push_back(
            expert_case(up, how, slots, {expert_adapter(up, 0, {rank, (rank + 7) / 2}, {0, 6}, rng)}, rng));
        suite.cases.push_back(expert_case(down, {Chain::kExpand, Rows::kTokens, bucket, dtype}, slots,
                                          {expert_adapter(down, 0, {rank}, {0, 6}, rng)}, rng));
      }
  run(suite);
}

TEST_CASE("adapters change some experts, some parts of them, or all by one matrix", "[expert_adapters]") {
  auto rng = test_rng("expert adapters reach");
  Suite suite;
  suite.slots_max = 80;
  const Stack up = add_stack(&suite, 9, 4, {24, 24}, 64, rng), one = add_stack(&suite, 5, 2, {40}, 72, rng);
  const Stack down = add_stack(&suite, 9, 4, {56}, 24, rng);
  const Reach reaches[] = {{0, 9}, {3, 4}, {8, 1}, {0, 9, true}, {0, 9, false, true}, {2, 7, true, true}};
  for (const Rows rows : {Rows::kTokens, Rows::kSampled})
    for (const bool invariant : {false, true})
      for (const auto& [live, bucket] : {std::pair{0u, 1u}, {1u, 1u}, {7u, 8u}, {40u, 64u}})
        for (const Reach& reach : reaches) {
          std::vector<int> slots(live);
          for (int& slot : slots) slot = static_cast<int>(rng() % 3) - 1;
          for (const auto& ranks : std::initializer_list<std::vector<uint32_t>>{{16, 8}, {0, 24}, {5, 0}})
            suite.cases.push_back(expert_case(
                up, {Chain::kTerm, rows, bucket, DType::kF32, invariant}, slots,
                {expert_adapter(up, 0, ranks, reach, rng), expert_adapter(up, 1, {8, 8}, {0, 9}, rng)}, rng));
          suite.cases.push_back(expert_case(down, {Chain::kExpand, rows, bucket, DType::kF16, invariant}, slots,
                                            {expert_adapter(down, 0, {12}, reach, rng),
                                             // An adapter that leaves the stack as it is.
                                             AdapterOf{1, down.group, {}}},
                                            rng));
          const Reach few{std::min(reach.expert_first, 4u), std::min(reach.num_experts, 1u)};
          suite.cases.push_back(
              expert_case(one, {Chain::kTerm, rows, bucket, DType::kF32, invariant}, slots,
                          {expert_adapter(one, 0, {16}, few, rng), expert_adapter(one, 1, {8}, {0, 5}, rng)}, rng));
        }
  run(suite);
}

TEST_CASE("experts add what adapters make to their products", "[expert_adapters]") {
  auto rng = test_rng("expert terms");
  Suite suite;
  suite.slots_max = 300;
  struct Shape {
    Encoding encoding;
    uint32_t num_experts, used, width, ffn;
    bool by_expert, bias;
    Activation activation;
  };
  const Shape shapes[] = {{Encoding::kQ4_0, 5, 3, 160, 96, false, true, Activation::kClampedSilu},
                          {Encoding::kQ8_0, 6, 2, 256, 256, true, false, Activation::kSilu},
                          {Encoding::kF16, 9, 4, 128, 64, false, false, Activation::kGelu},
                          {Encoding::kF32, 3, 1, 33, 18, false, false, Activation::kSilu},
                          {Encoding::kQ4_K, 6, 2, 256, 128, false, false, Activation::kSquaredRelu},
                          {Encoding::kF32, 3, 2, 33, 18, false, true, Activation::kSquaredRelu}};
  for (const Shape& shape : shapes) {
    const uint64_t rows = uint64_t{shape.num_experts} * shape.ffn;
    const bool has_up = has_other_half(shape.activation);
    const auto matrix = [&](uint64_t n) {
      return suite.add_weight(shape.encoding, n, shape.width, rng, 1 / std::sqrt(shape.width));
    };
    const WeightGroupId group = suite.add_group(!has_up           ? std::vector{matrix(rows)}
                                                : shape.by_expert ? std::vector{matrix(2 * rows)}
                                                                  : std::vector{matrix(rows), matrix(rows)},
                                                shape.bias, rng);
    suite.weights.groups[static_cast<size_t>(group)].num_experts = shape.num_experts;
    for (const DType dtype : {DType::kF16, DType::kF32})
      for (const Rows kind : {Rows::kTokens, Rows::kSampled})
        for (const auto& [live, bucket, invariant] :
             {std::tuple{1u, 1u, false}, {1u, 1u, true}, {7u, 8u, false}, {60u, 64u, false}, {250u, 256u, false}}) {
          Case test_case;
          test_case.variant = encoding_name(shape.encoding);
          test_case.name = fmt::format("expert_gate_up with a term {} D {} F {} {} {} rows {} of {} {}",
                                       test_case.variant, shape.width, shape.ffn, has_up ? "" : "squared relu",
                                       dtype_name(dtype), live, bucket, rows_name(kind));
          Step step;
          OpList& list = step.set_rows(kind, live, bucket);
          list.routed_per_row = shape.used;
          list.batch_invariant = invariant;
          const size_t routed = size_t{live} * shape.used;
          const uint32_t columns = (has_up ? 2 : 1) * shape.ffn;
          const TensorId x =
              step.input(kind, "x", shape.width, DType::kF32, random_normal(rng, size_t{live} * shape.width, 1, dtype));
          const Stack stack{group, shape.num_experts, shape.used, {}, 0};
          const TensorId ids = step.input_in(list, Rows::kRouted, "ids", 1, DType::kI32, expert_ids(stack, live, rng));
          const TensorId term = step.input_in(list, Rows::kRouted, "term", columns, DType::kF32,
                                              random_normal(rng, routed * columns, 1, DType::kF32));
          const TensorId out = step.output_in(list, Rows::kRouted, "out", shape.ffn, dtype, Tolerance::kMatmul, dtype);
          step.last_output().scale = 1;
          step.last_output().slack = dtype == DType::kF16 ? 4e-3 : 0;
          step.last_output().of_quantized = is_quantized(shape.encoding);
          list.ops = {ExpertGateUp{x, ids, group, shape.num_experts, shape.by_expert, shape.activation, out, term}};
          test_case.steps = {std::move(step)};
          suite.cases.push_back(std::move(test_case));
        }
  }
  run(suite);
}

TEST_CASE("what an adapter adds to a row's experts does not depend on its neighbours", "[expert_adapters]") {
  auto rng = test_rng("expert adapters alone");
  Suite suite;
  suite.slots_max = 400;
  const Stack up = add_stack(&suite, 7, 3, {130, 62}, 2056, rng), down = add_stack(&suite, 7, 3, {200}, 520, rng);
  uint32_t num_tried = 0;
  for (const std::string& device : test_devices()) {
    for (const Stack& stack : {up, down}) {
      const Chain chain = &stack == &up || stack.part_rows.size() == 2 ? Chain::kTerm : Chain::kExpand;
      std::vector<AdapterOf> adapters;
      for (uint32_t slot = 0; slot < 2; ++slot) adapters.push_back(expert_adapter(stack, slot, {40, 8}, {0, 7}, rng));
      suite.cases.clear();
      const std::vector<double> x = random_normal(rng, size_t{stack.used} * stack.columns, 1, DType::kF32);
      const std::vector<double> weights = random_normal(rng, stack.used), out = random_normal(rng, stack.rows());
      for (const auto& [live, bucket] : {std::pair{1u, 1u}, {7u, 8u}, {33u, 64u}, {300u, 320u}}) {
        std::vector<int> slots(live);
        for (int& slot : slots) slot = static_cast<int>(rng() % 3) - 1;
        const uint32_t place = live / 2;  // of the row that all have
        slots[place] = 0;
        Case& made = suite.cases.emplace_back(expert_case(stack, {chain, Rows::kTokens, bucket}, slots, adapters, rng));
        Step& step = made.steps[0];
        for (AdapterRow& row : step.forward_inputs.adapter_rows) row.scale = 1;
        for (Fill& fill : step.fills) {
          const std::string& name = step.forward.tensors[static_cast<size_t>(fill.tensor)].name;
          const std::vector<double> ids = {4, 0, 6};
          const std::vector<double>& numbers = name == "x"         ? x
                                               : name == "ids"     ? ids
                                               : name == "weights" ? weights
                                                                   : out;
          const size_t count = fill.values.size() / live;  // of a row
          std::copy_n(numbers.begin(), count, fill.values.begin() + static_cast<int64_t>(place * count));
        }
      }
      auto opened = open_test_device(device);
      REQUIRE(opened.ok());
      REQUIRE((*opened)->load_weights(suite.weights, {}).ok());
      REQUIRE((*opened)->create_state(state_config(suite, **opened)).ok());
      std::vector<std::byte> alone;
      for (const Case& test_case : suite.cases) {
        INFO(device << ": " << test_case.name);
        const auto outcome = execute(**opened, test_case, suite.weights.groups.size());
        REQUIRE(outcome.ok());
        const Step& step = test_case.steps[0];
        const std::vector<std::byte>& found = outcome->tensors[0].at(step.outputs[0].tensor);
        const size_t row_bytes = stack.rows() * sizeof(float) * (chain == Chain::kTerm ? stack.used : 1);
        const auto row = std::span(found).subspan(step.forward_inputs.rows.size() / 2 * row_bytes, row_bytes);
        if (alone.empty()) alone.assign(row.begin(), row.end());
        CHECK(std::ranges::equal(row, alone));
      }
      ++num_tried;
    }
  }
  if (num_tried == 0) SKIP("no device");
}

TEST_CASE("validating refuses entries that no stack of experts has, and lists that would leave one out",
          "[expert_adapters][validating]") {
  auto rng = test_rng("expert adapters validating");
  Suite suite;
  const Stack stack = add_stack(&suite, 6, 2, {32}, 16, rng);
  const Case right = expert_case(stack, {Chain::kExpand, Rows::kTokens, 2, DType::kF32}, {0, -1},
                                 {expert_adapter(stack, 0, {8}, {1, 5}, rng)}, rng);
  suite.cases = {right};
  const auto submit = [&](const std::function<void(AdapterEntry&)>& change, const OpList& forward) {
    const auto backend = make_validating(make_reference_backend());
    REQUIRE(backend->load_weights(suite.weights, {}).ok());
    StateConfig state = state_config(suite, *backend);
    state.arena_bytes += 4096;  // for one more tensor
    REQUIRE(backend->create_state(state).ok());
    AdapterPoolBytes pool = adapter_pool(right.adapters, suite.weights.groups.size(), backend->caps().activation_dtype);
    AdapterEntry entry;
    std::memcpy(&entry, pool.bytes.data(), sizeof(entry));
    change(entry);
    std::memcpy(pool.bytes.data(), &entry, sizeof(entry));
    REQUIRE(backend->create_adapter_pool(pool.config).ok());
    REQUIRE(backend->write_adapter_pool(0, pool.bytes).ok());
    const SealedList list(forward);
    std::vector<uint32_t> words;
    pack(right.steps[0].forward_inputs, &words);
    for (TensorId id = 0; id < static_cast<TensorId>(forward.tensors.size()); ++id)
      if (forward.tensors[static_cast<size_t>(id)].storage == Storage::kPinned)
        REQUIRE(backend->write_tensor(list, id, bytes_before(right.steps[0], id)).ok());
    const auto ticket = backend->submit({.forward = &list, .forward_inputs = words});
    if (!ticket) return ticket.error().message;
    REQUIRE(backend->wait(*ticket).ok());
    return std::string();
  };
  const OpList& list = right.steps[0].forward;
  CHECK(submit([](AdapterEntry&) {}, list).empty());
  const std::pair<const char*, std::function<void(AdapterEntry&)>> lies[] = {
      {"experts: expected at most 6, found 7", [](AdapterEntry& entry) { entry.expert_first = 2; }},
      {"experts: expected at most 6, found 4294967300", [](AdapterEntry& entry) { entry.expert_first = ~0u; }},
      {"num_experts: expected at least 1 of a stack of experts", [](AdapterEntry& entry) { entry.num_experts = 0; }},
      {"a_offset: expected 512 bytes of each expert, found 16", [](AdapterEntry& entry) { entry.a_stride = 1; }},
      {"a_offset: expected at most", [](AdapterEntry& entry) { entry.a_stride = ~0u; }},
      {"b_offset: expected at most", [](AdapterEntry& entry) { entry.b_stride[0] *= 2; }},
      {"row_end: expected 32, found 31", [](AdapterEntry& entry) { entry.row_end[0] = 31; }}};
  for (const auto& [message, change] : lies) {
    INFO(message);
    const std::string found = submit(change, list);
    CHECK_THAT(found, Catch::Matchers::ContainsSubstring(message));
  }
  // The stack multiplied without its adapters.
  OpList without = list;
  const auto& expand = std::get<ExpertExpand>(list.ops[1]);
  const TensorId x = std::get<ExpertShrink>(list.ops[0]).x;
  const TensorId y = without.add_tensor({"shrunk", Rows::kTokens, 8, DType::kF32});
  const WeightGroupId dense = suite.add_group({suite.add_weight(Encoding::kF16, 32, 32, rng)}, false, rng);
  without.ops = {ExpertDown{x, expand.ids, expand.weights, stack.group, 6, expand.out},
                 AdapterShrink{expand.out, dense, y}};
  CHECK_THAT(submit([](AdapterEntry&) {}, without),
             Catch::Matchers::ContainsSubstring("rank: expected 0 for a list without expert_shrink, found 8"));
}

TEST_CASE("adapters on experts by hand", "[expert_adapters]") {
  Suite suite;
  auto rng = test_rng("expert adapters by hand");
  const Stack stack = add_stack(&suite, 3, 2, {1, 1}, 8, rng);
  // Experts 1 and 2 have A of their own, and one B of two parts for both.
  AdapterOf adapter{0, stack.group, {}, 1, 2, false, true};
  adapter.parts = {
      {.rank = 1, .num_rows = 1, .a = {1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0}, .b = {3}, .scale = 2},
      {.rank = 1, .num_rows = 1, .a = {0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5}, .b = {-1}, .scale = 1}};
  Case test_case = expert_case(stack, {Chain::kTerm, Rows::kTokens, 2}, {-1, 0}, {adapter}, rng);
  Step& step = test_case.steps[0];
  step.forward_inputs.adapter_rows[0].scale = 10;
  for (Fill& fill : step.fills) {
    const std::string& name = step.forward.tensors[static_cast<size_t>(fill.tensor)].name;
    if (name == "ids") fill.values = {1, 2, 2, 0};
    if (name == "x") fill.values = {9, 9, 9, 9, 9, 9, 9, 9, 1, 4, 0, 0, 0, 0, 0, 7};
  }
  suite.cases = {test_case};
  const Outcome outcome = reference_outcome(suite, test_case);
  float found[8];
  std::memcpy(found, outcome.tensors[0].at(step.outputs[0].tensor).data(), sizeof(found));
  // Row 1 goes to expert 2: gate 2 * 4 * 3 * 2 * 10, up 5 * 7 * -1 * 10; expert 0 is left as it is.
  const float expected[] = {0, 0, 0, 0, 480, -350, 0, 0};
  for (int i = 0; i < 8; ++i) CHECK(found[i] == expected[i]);
}

}  // namespace llmrt::optest
