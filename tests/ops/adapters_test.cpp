// adapter_shrink and adapter_expand: ranks 1 to 128, parts missing, rows of none, of one and of many adapters mixed.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/base/checked_math.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/test_devices.h"

namespace llmrt::optest {
namespace {

// Numbers that f16 and bf16 both have.
std::vector<double> random_numbers(std::mt19937_64& rng, size_t count, double deviation) {
  return random_normal(rng, count, deviation, DType::kBF16);
}

// ranks: of each segment of the group.
AdapterOf random_adapter(const Suite& suite, uint32_t slot, WeightGroupId group_id, const std::vector<uint32_t>& ranks,
                         std::mt19937_64& rng) {
  const WeightGroup& group = suite.weights.groups[static_cast<size_t>(group_id)];
  AdapterOf adapter{slot, group_id, {}};
  for (size_t p = 0; p < group.segments.size(); ++p) {
    AdapterPart part;
    part.rank = ranks[p];
    part.num_rows = static_cast<uint32_t>(group.segments[p].num_rows);
    part.a = random_numbers(rng, size_t{part.rank} * group.columns, 1 / std::sqrt(group.columns));
    part.b = random_numbers(rng, size_t{part.rank} * part.num_rows, 1 / std::sqrt(std::max(part.rank, 1u)));
    part.scale = p % 2 == 0 ? 2.0f : 0.375f;
    adapter.parts.push_back(std::move(part));
  }
  return adapter;
}

// slots[r]: of row r's adapter, -1 = none. Rows of a slot are told in random order, in items of at most `item_rows`.
template <class Inputs>
void add_items(const std::vector<int>& slots, uint32_t item_rows, std::mt19937_64& rng, Inputs* inputs) {
  std::vector<uint32_t> order(slots.size());
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), rng);
  for (int slot = 0; slot <= std::ranges::max(slots); ++slot) {
    uint32_t in_item = item_rows;
    for (const uint32_t row : order) {
      if (slots[row] != slot) continue;
      if (in_item == item_rows) {
        inputs->adapter_items.push_back(
            {static_cast<uint32_t>(slot), static_cast<uint32_t>(inputs->adapter_rows.size()), 0});
        in_item = 0;
      }
      inputs->adapter_rows.push_back({row, row % 3 == 0 ? 0.5f : 1.0f});
      ++inputs->adapter_items.back().num_rows;
      ++in_item;
    }
  }
}

struct Shape {
  WeightGroupId group;
  DType dtype;
  Rows rows;
  uint32_t bucket, item_rows = kAdapterItemRows;
};

// out += B A x for rows with `slots`; with `only_shrink` y = A x, of one adapter that every row has.
Case adapter_case(const Suite& suite, const Shape& shape, const std::vector<int>& slots,
                  std::vector<AdapterOf> adapters, bool only_shrink, std::mt19937_64& rng) {
  const WeightGroup& group = suite.weights.groups[static_cast<size_t>(shape.group)];
  const uint32_t live = static_cast<uint32_t>(slots.size()), n = static_cast<uint32_t>(group.rows);
  const uint32_t k = static_cast<uint32_t>(group.columns);
  Case test_case;
  uint32_t rank_max = 0;
  for (const AdapterOf& adapter : adapters) {
    uint32_t rank = 0;
    for (const AdapterPart& part : adapter.parts) rank += round_up(part.rank, kAdapterRankStep);
    rank_max = std::max(rank_max, rank);
  }
  test_case.variant = dtype_name(shape.dtype);
  test_case.name = fmt::format("adapters {} rows {} of {} n {} k {} rank {} {} {}", test_case.variant, live,
                               shape.bucket, n, k, rank_max, rows_name(shape.rows), only_shrink ? "shrink" : "");
  Step step;
  OpList* list = &step.forward;
  if (shape.rows == Rows::kTokens) {
    for (uint32_t r = 0; r < live; ++r) {
      step.add_row(r, 0, 1);
      step.forward_inputs.rows.back().adapter_id = static_cast<uint32_t>(slots[r] + 1);
    }
    step.set_bucket(shape.bucket);
    if (live > 0) add_items(slots, shape.item_rows, rng, &step.forward_inputs);
  } else {
    list = &step.set_rows(Rows::kSampled, live, shape.bucket);
    if (live > 0) add_items(slots, shape.item_rows, rng, &step.sample_inputs);
  }
  const TensorId x = step.input(shape.rows, "x", k, shape.dtype, random_normal(rng, size_t{live} * k, 1, shape.dtype));
  if (only_shrink) {
    const TensorId y = step.output(shape.rows, "y", rank_max, DType::kF32, Tolerance::kMatmul, shape.dtype, 1);
    list->ops = {AdapterShrink{x, shape.group, y}};
  } else {
    const TensorId y = list->add_tensor({"y", shape.rows, rank_max + 8, DType::kF32});
    const TensorId out =
        step.inout(shape.rows, "out", n, DType::kF32, random_normal(rng, size_t{live} * n), Tolerance::kMatmul);
    step.last_output().math = shape.dtype;
    step.last_output().scale = 1;
    list->ops = {AdapterShrink{x, shape.group, y}, AdapterExpand{y, shape.group, out}};
  }
  test_case.adapters = std::move(adapters);
  test_case.steps = {std::move(step)};
  return test_case;
}

constexpr DType kInputDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

}  // namespace

TEST_CASE("adapters of every rank change the rows that have them", "[adapters]") {
  auto rng = test_rng("adapters ranks");
  Suite suite;
  suite.slots_max = 80;
  const WeightGroupId group = suite.add_group({suite.add_weight(Encoding::kF16, 67, 96, rng)}, false, rng);
  for (const DType dtype : kInputDTypes)
    for (const uint32_t rank : {1u, 2u, 7u, 8u, 16u, 17u, 32u, 64u, 100u, 128u})
      for (const auto& [rows, bucket] : {std::pair{1u, 1u}, {3u, 4u}, {66u, 80u}}) {
        const Shape shape{group, dtype, Rows::kTokens, bucket};
        const std::vector<int> slots(rows, 0);
        std::vector<AdapterOf> adapters = {random_adapter(suite, 0, group, {rank}, rng)};
        suite.cases.push_back(adapter_case(suite, shape, slots, adapters, true, rng));
        suite.cases.push_back(adapter_case(suite, shape, slots, adapters, false, rng));
      }
  run(suite);
}

TEST_CASE("adapters of packed groups lack parts", "[adapters]") {
  auto rng = test_rng("adapters parts");
  Suite suite;
  suite.slots_max = 80;
  const auto weight = [&](uint64_t rows, uint64_t columns) {
    return suite.add_weight(Encoding::kF16, rows, columns, rng);
  };
  const WeightGroupId qkv = suite.add_group({weight(256, 320), weight(64, 320), weight(64, 320)}, true, rng);
  const WeightGroupId gate_up = suite.add_group({weight(77, 64), weight(77, 64)}, false, rng);
  const WeightGroupId four =
      suite.add_group({weight(8, 40), weight(1, 40), weight(130, 40), weight(3, 40)}, false, rng);
  for (const DType dtype : kInputDTypes)
    for (const Rows rows : {Rows::kTokens, Rows::kSampled})
      for (const auto& [live, bucket] : {std::pair{0u, 1u}, {1u, 1u}, {5u, 8u}, {70u, 80u}}) {
        const std::vector<int> slots(live, 1);
        for (const auto& ranks : std::initializer_list<std::vector<uint32_t>>{{16, 16, 16}, {8, 0, 8}, {0, 0, 3}})
          suite.cases.push_back(adapter_case(suite, {qkv, dtype, rows, bucket}, slots,
                                             {random_adapter(suite, 1, qkv, ranks, rng)}, false, rng));
        suite.cases.push_back(adapter_case(suite, {gate_up, dtype, rows, bucket}, slots,
                                           {random_adapter(suite, 1, gate_up, {0, 24}, rng)}, false, rng));
        suite.cases.push_back(adapter_case(suite, {four, dtype, rows, bucket}, slots,
                                           {random_adapter(suite, 1, four, {1, 8, 128, 5}, rng)}, false, rng));
      }
  run(suite);
}

TEST_CASE("adapters of many kinds run in one step", "[adapters]") {
  auto rng = test_rng("adapters mixed");
  Suite suite;
  suite.slots_max = 400;
  const WeightGroupId first = suite.add_group({suite.add_weight(Encoding::kF16, 192, 256, rng)}, false, rng);
  const WeightGroupId second = suite.add_group({suite.add_weight(Encoding::kF16, 40, 2056, rng)}, false, rng);
  for (const DType dtype : kInputDTypes)
    for (const WeightGroupId group : {first, second})
      for (const Rows rows : {Rows::kTokens, Rows::kSampled})
        for (const auto& [live, num_slots, item_rows] :
             {std::tuple{33u, 32, 64u}, {64u, 4, 64u}, {130u, 1, 64u}, {200u, 7, 5u}, {300u, 64, 64u}}) {
          if (live > 256 && rows == Rows::kSampled) continue;
          std::vector<int> slots(live);
          for (int& slot : slots) slot = static_cast<int>(rng() % static_cast<uint64_t>(num_slots + 1)) - 1;
          std::vector<AdapterOf> adapters;
          // A slot whose adapter leaves the group as it is, and ranks as they come.
          for (int slot = 0; slot < num_slots; ++slot)
            adapters.push_back(random_adapter(suite, static_cast<uint32_t>(slot), group,
                                              {slot % 5 == 4 ? 0u : 1 + static_cast<uint32_t>(rng() % 64)}, rng));
          suite.cases.push_back(adapter_case(suite, {group, dtype, rows, round_up(live, 16u), item_rows}, slots,
                                             std::move(adapters), false, rng));
        }
  run(suite);
}

namespace {

// A device with the suite's weights and room for its cases.
std::unique_ptr<Backend> open_for(const std::string& device, const Suite& suite) {
  auto opened = open_test_device(device);
  INFO(device << ": " << (opened ? "" : opened.error().message));
  REQUIRE(opened.ok());
  REQUIRE((*opened)->load_weights(suite.weights, {}).ok());
  REQUIRE((*opened)->create_state(state_config(suite, **opened)).ok());
  return *std::move(opened);
}

}  // namespace

TEST_CASE("what an adapter adds to a row does not depend on its neighbours", "[adapters]") {
  auto rng = test_rng("adapters alone");
  Suite suite;
  suite.slots_max = 400;
  const WeightGroupId group = suite.add_group(
      {suite.add_weight(Encoding::kF16, 130, 2056, rng), suite.add_weight(Encoding::kF16, 62, 2056, rng)}, false, rng);
  const std::vector<AdapterOf> adapters = {random_adapter(suite, 0, group, {40, 8}, rng),
                                           random_adapter(suite, 1, group, {16, 16}, rng)};
  uint32_t num_tried = 0;
  for (const std::string& device : test_devices()) {
    auto opened = open_test_device(device);
    REQUIRE(opened.ok());
    for (const DType dtype : {(*opened)->caps().activation_dtype, DType::kF32}) {
      const std::vector<double> x = random_normal(rng, 2056, 1, dtype), out = random_normal(rng, 192);
      suite.cases.clear();
      for (const auto& [live, bucket] : {std::pair{1u, 1u}, {7u, 8u}, {33u, 64u}, {300u, 320u}}) {
        std::vector<int> slots(live);
        for (int& slot : slots) slot = static_cast<int>(rng() % 3) - 1;
        const uint32_t place = live / 2;  // of the row that all have
        slots[place] = 0;
        Case& made = suite.cases.emplace_back(
            adapter_case(suite, {group, dtype, Rows::kTokens, bucket}, slots, adapters, false, rng));
        for (AdapterRow& row : made.steps[0].forward_inputs.adapter_rows) row.scale = 1;
        for (Fill& fill : made.steps[0].fills) {
          const std::vector<double>& numbers = fill.values.size() == live * x.size() ? x : out;
          std::ranges::copy(numbers, fill.values.begin() + static_cast<int64_t>(place * numbers.size()));
        }
      }
      const auto backend = open_for(device, suite);
      std::vector<std::byte> alone;
      for (const Case& test_case : suite.cases) {
        INFO(device << ": " << test_case.name);
        const auto outcome = execute(*backend, test_case, suite.weights.groups.size());
        REQUIRE(outcome.ok());
        const Step& step = test_case.steps[0];
        const std::vector<std::byte>& found = outcome->tensors[0].at(std::get<AdapterExpand>(step.forward.ops[1]).out);
        const size_t row_bytes = out.size() * sizeof(float), place = step.forward_inputs.rows.size() / 2;
        const auto row = std::span(found).subspan(place * row_bytes, row_bytes);
        if (alone.empty()) alone.assign(row.begin(), row.end());
        CHECK(std::ranges::equal(row, alone));
      }
      ++num_tried;
    }
  }
  if (num_tried == 0) SKIP("no device");
}

TEST_CASE("adapters are written behind the steps before and in front of those to come", "[adapters]") {
  auto rng = test_rng("adapters order");
  Suite suite;
  const WeightGroupId group = suite.add_group({suite.add_weight(Encoding::kF32, 64, 64, rng)}, false, rng);
  // Version v adds 10^v to each number: the sum tells which ones the steps had.
  const auto version = [&](int v) {
    AdapterPart part;
    part.rank = 1;
    part.num_rows = 64;
    part.scale = static_cast<float>(std::pow(10, v));
    part.a.assign(64, 1 / 64.0);
    part.b.assign(64, 1);
    return AdapterOf{0, group, {part}};
  };
  uint32_t num_tried = 0;
  for (const std::string& device : test_devices()) {
    auto opened = open_test_device(device);
    REQUIRE(opened.ok());
    const DType dtype = (*opened)->caps().activation_dtype;
    suite.cases = {adapter_case(suite, {group, dtype, Rows::kTokens, 1}, {0}, {version(0)}, false, rng)};
    Step& step = suite.cases[0].steps[0];
    for (AdapterRow& row : step.forward_inputs.adapter_rows) row.scale = 1;
    const TensorId x = std::get<AdapterShrink>(step.forward.ops[0]).x;
    const TensorId out = std::get<AdapterExpand>(step.forward.ops[1]).out;
    step.fills = {{x, std::vector<double>(64, 1)}, {out, std::vector<double>(64, 0)}};
    INFO(device);
    const auto backend = open_for(device, suite);
    // Behind the adapter bytes that are written too, more than what may be on their way at a time.
    const std::vector<std::byte> idle(40 << 20);
    AdapterPoolBytes pool = adapter_pool({version(0)}, 1, dtype);
    const uint64_t idle_at = pool.bytes.size();
    pool.config.bytes = idle_at + idle.size();
    REQUIRE(backend->create_adapter_pool(pool.config).ok());
    const MemoryReport report = backend->memory();
    CHECK(report.adapter_bytes >= (device.starts_with("reference") ? 0 : pool.config.bytes));
    const SealedList list(step.forward);
    REQUIRE(backend->prepare(list).ok());
    REQUIRE(backend->write_tensor(list, x, bytes_before(step, x)).ok());
    REQUIRE(backend->write_tensor(list, out, bytes_before(step, out)).ok());
    std::vector<uint32_t> words;
    pack(step.forward_inputs, &words);
    std::vector<Ticket> tickets;
    constexpr int kSteps = 6;
    for (int v = 0; v < kSteps; ++v) {
      if (v % 3 == 2) REQUIRE(backend->write_adapter_pool(idle_at, idle).ok());
      pool.bytes = adapter_pool({version(v)}, 1, dtype).bytes;
      // An entry without ranks first: the later bytes of a place are those that stay.
      REQUIRE(backend->write_adapter_pool(0, std::vector<std::byte>(sizeof(AdapterEntry))).ok());
      REQUIRE(backend->write_adapter_pool(0, pool.bytes).ok());
      std::ranges::fill(pool.bytes, std::byte{0xff});  // they have been copied
      if (tickets.size() == kInFlightMax) {
        REQUIRE(backend->wait(tickets.front()).ok());
        tickets.erase(tickets.begin());
      }
      const auto ticket = backend->submit({.forward = &list, .forward_inputs = words});
      REQUIRE(ticket.ok());
      tickets.push_back(*ticket);
    }
    for (const Ticket ticket : tickets) REQUIRE(backend->wait(ticket).ok());
    std::vector<std::byte> bytes(step.forward.bytes_of(out));
    REQUIRE(backend->read_tensor(list, out, bytes).ok());
    for (size_t n = 0; n < 64; ++n) {
      float number;
      std::memcpy(&number, bytes.data() + n * sizeof(number), sizeof(number));
      CHECK(number == 111111);
    }
    // A pool that is made again holds nothing.
    REQUIRE(backend->create_adapter_pool(pool.config).ok());
    const auto again = backend->submit({.forward = &list, .forward_inputs = words});
    REQUIRE(again.ok());
    REQUIRE(backend->wait(*again).ok());
    std::vector<std::byte> unchanged(bytes.size());
    REQUIRE(backend->read_tensor(list, out, unchanged).ok());
    CHECK(unchanged == bytes);
    ++num_tried;
  }
  if (num_tried == 0) SKIP("no device");
}

TEST_CASE("a device refuses a pool of adapters that is too large, or too small for its table", "[adapters]") {
  auto rng = test_rng("adapters refused");
  Suite suite;
  const WeightGroupId group = suite.add_group({suite.add_weight(Encoding::kF32, 64, 64, rng)}, false, rng);
  suite.cases = {adapter_case(suite, {group, DType::kF32, Rows::kTokens, 1}, {0},
                              {random_adapter(suite, 0, group, {8}, rng)}, false, rng)};
  uint32_t num_tried = 0;
  for (const std::string& device : test_devices()) {
    if (device.starts_with("reference")) continue;
    INFO(device);
    const auto backend = open_for(device, suite);
    // No list with adapters without a pool.
    const Status without = backend->prepare(SealedList(suite.cases[0].steps[0].forward));
    REQUIRE_FALSE(without.ok());
    CHECK(without.error().message.find("pool") != std::string::npos);
    CHECK_FALSE(backend->write_adapter_pool(0, std::vector<std::byte>(16)).ok());
    const Status large = backend->create_adapter_pool({.bytes = 1ull << 50, .slots_max = 1});
    REQUIRE_FALSE(large.ok());
    CHECK((large.error().code == ErrorCode::kOutOfMemory || large.error().code == ErrorCode::kMissingFeature));
    CHECK_FALSE(backend->create_adapter_pool({.bytes = sizeof(AdapterEntry) - 16, .slots_max = 1}).ok());
    CHECK_FALSE(backend->create_adapter_pool({.bytes = 1 << 20, .slots_max = kAdapterSlotsMax + 1}).ok());
    CHECK(backend->memory().adapter_bytes == 0);
    CHECK(backend->create_adapter_pool({.bytes = 1 << 20, .slots_max = kAdapterSlotsMax}).ok());
    CHECK(backend->memory().adapter_bytes >= 1 << 20);
    CHECK(backend->create_adapter_pool({}).ok());
    CHECK(backend->memory().adapter_bytes == 0);
    ++num_tried;
  }
  if (num_tried == 0) SKIP("no device");
}

TEST_CASE("adapters by hand", "[adapters]") {
  Suite suite;
  auto rng = test_rng("adapters by hand");
  const WeightGroupId group = suite.add_group({suite.add_weight(Encoding::kF32, 2, 8, rng)}, false, rng);
  AdapterOf adapter{
      0, group, {{.rank = 1, .num_rows = 2, .a = {1, 2, 0, 0, 0, 0, 0, -1}, .b = {3, -4}, .scale = 0.5f}}};
  Case test_case = adapter_case(suite, {group, DType::kF32, Rows::kTokens, 2}, {-1, 0}, {adapter}, false, rng);
  Step& step = test_case.steps[0];
  step.forward_inputs.adapter_rows[0].scale = 10;
  const auto& expand = std::get<AdapterExpand>(step.forward.ops[1]);
  step.fills = {{std::get<AdapterShrink>(step.forward.ops[0]).x, {9, 9, 9, 9, 9, 9, 9, 9, 1, 1, 0, 0, 0, 0, 0, 2}},
                {expand.out, {7, 8, 100, 200}}};
  suite.cases = {test_case};
  const Outcome outcome = reference_outcome(suite, test_case);
  float found[4];
  std::memcpy(found, outcome.tensors[0].at(expand.out).data(), sizeof(found));
  // y = 1 + 2 - 2 = 1, times 0.5 and 10.
  const float expected[] = {7, 8, 115, 180};
  for (int i = 0; i < 4; ++i) CHECK(found[i] == expected[i]);
}

}  // namespace llmrt::optest
