// running_sum: rows of several texts go on from their records. What must come out is added up here from the texts
// alone, without slots, tables or records; the reference is held to that, and each device to the reference.
#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "core/backend/validating.h"
#include "tests/ops/op_harness.h"
#include "tests/reference/backend.h"

namespace llmrt::optest {
namespace {

// A sequence: its length, and what it has added up in each layer.
struct Text {
  uint32_t num_tokens = 0;
  std::vector<std::vector<double>> sums = {};
};

// The next tokens of a text, in a step.
struct Row {
  Text* text;
  uint32_t slot, num_tokens;
};

std::vector<std::byte> f32_bytes(const std::vector<double>& numbers) {
  const std::vector<float> narrow(numbers.begin(), numbers.end());
  std::vector<std::byte> bytes(narrow.size() * sizeof(float));
  std::memcpy(bytes.data(), narrow.data(), bytes.size());
  return bytes;
}

// Below 2, in steps of 1/1024: f16 holds them, and f32 their sums in any order.
std::vector<double> random_steps(std::mt19937_64& rng, size_t count) {
  std::vector<double> numbers(count);
  for (double& x : numbers) x = static_cast<double>(rng() % 4095) / 1024 - 2047.0 / 1024;
  return numbers;
}

KvGroup states_of(uint32_t columns, uint32_t num_layers) {
  return {
      .num_layers = num_layers, .block_tokens = 48, .num_blocks = 9, .num_host_blocks = 4, .state_columns = columns};
}

// A case that grows by steps, and its expected outcome. Records hold random numbers at first.
class Script {
 public:
  Script(const std::string& what, const KvGroup& states, std::mt19937_64& rng) : states_(states), rng_(rng) {
    test_case_.name = fmt::format("running_sum {} D {} layers {}", what, states.state_columns, states.num_layers);
    test_case_.variant = what;
    test_case_.groups = {states};
    test_case_.kv = {random_kv(states, rng)};
    expected_.kv = test_case_.kv;
  }

  // Behind a group of blocks, of one head as wide as a record. Its queries are 0 and its values the numbers that layer
  // 0 of the states adds up, so attention gives their mean.
  void put_behind_blocks(uint32_t num_blocks) {
    test_case_.groups.insert(
        test_case_.groups.begin(),
        {.num_layers = 1, .num_kv_heads = 1, .head_dim = states_.state_columns, .num_blocks = num_blocks});
    test_case_.kv.insert(test_case_.kv.begin(), KvBytes());
    expected_.kv = test_case_.kv;
  }

  uint32_t group() const { return static_cast<uint32_t>(test_case_.groups.size()) - 1; }

  Step& add_step(const std::vector<Row>& rows, uint32_t bucket) {
    Step& step = test_case_.steps.emplace_back();
    expected_.tensors.emplace_back();
    step.forward.ops = {UpdateRows{}};
    for (const Row& row : rows) step.add_row(row.slot, row.text->num_tokens, row.num_tokens);
    step.set_bucket(bucket);
    const std::vector<double> first = random_steps(rng_, size_t{live(step)} * states_.state_columns);
    if (group() > 0) add_attention(rows, first, &step);
    for (uint32_t layer = states_.num_layers; layer-- > 1;)
      add_sum(rows, layer, random_steps(rng_, first.size()), &step);
    add_sum(rows, 0, first, &step);
    for (const Row& row : rows) row.text->num_tokens += row.num_tokens;
    return step;
  }

  // From here on nothing but later rows of the text writes the record (host records follow the device's).
  void expect_record(uint32_t record, const Text& text) {
    for (uint32_t layer = 0; layer < states_.num_layers; ++layer)
      expected_.kv[group()][layer][record] = f32_bytes(text.sums[layer]);
  }

  const Case& test_case() const { return test_case_; }
  const Outcome& expected() const { return expected_; }

 private:
  static uint32_t live(const Step& step) { return static_cast<uint32_t>(step.forward_inputs.tokens.size()); }

  // Padding rows are not compared.
  void expect(const Step& step, TensorId out, std::vector<double> numbers) {
    numbers.resize(size_t{step.forward.num_tokens} * states_.state_columns);
    expected_.tensors.back()[out] = f32_bytes(numbers);
  }

  void add_sum(const std::vector<Row>& rows, uint32_t layer, const std::vector<double>& values, Step* step) {
    const uint32_t columns = states_.state_columns;
    const TensorId x = step->input(Rows::kTokens, fmt::format("x{}", layer), columns, DType::kF32, values);
    const TensorId out =
        step->output(Rows::kTokens, fmt::format("out{}", layer), columns, DType::kF32, Tolerance::kExact);
    step->forward.ops.push_back(RunningSum{x, group(), layer, out});
    std::vector<double> sums;
    for (const Row& row : rows) {
      row.text->sums.resize(states_.num_layers);
      std::vector<double>& sum = row.text->sums[layer];
      sum.resize(columns);
      for (uint32_t t = 0; t < row.num_tokens; ++t)
        for (uint32_t c = 0; c < columns; ++c) {
          sum[c] += values[sums.size()];
          sums.push_back(sum[c]);
        }
    }
    expect(*step, out, std::move(sums));
  }

  void add_attention(const std::vector<Row>& rows, const std::vector<double>& values, Step* step) {
    const uint32_t columns = states_.state_columns;
    std::vector<double> means, qkv_values;
    for (const Row& row : rows) {
      std::vector<double> sum = row.text->num_tokens > 0 ? row.text->sums[0] : std::vector<double>(columns);
      for (uint32_t t = 0; t < row.num_tokens; ++t)
        for (uint32_t c = 0; c < columns; ++c) {
          sum[c] += values[means.size()];
          means.push_back(sum[c] / (row.text->num_tokens + t + 1));
        }
    }
    for (size_t t = 0; t < live(*step); ++t) {
      qkv_values.resize(qkv_values.size() + columns);  // q
      const std::vector<double> key = random_normal(rng_, columns);
      qkv_values.insert(qkv_values.end(), key.begin(), key.end());
      qkv_values.insert(qkv_values.end(), values.begin() + t * columns, values.begin() + (t + 1) * columns);
    }
    const auto number = [&](const char* name) {
      return step->forward.add_tensor({name, Rows::kTokens, 1, DType::kI32, Storage::kArena});
    };
    const TensorId kv_slots = number("kv_slots");
    const TensorId qkv = step->input(Rows::kTokens, "qkv", 3 * columns, DType::kF32, qkv_values);
    const TensorId out = step->output(Rows::kTokens, "attended", columns, DType::kF32, Tolerance::kAttention);
    step->forward.ops.push_back(PrepareRows{number("tokens"), number("positions"), number("row_slots"), {kv_slots}});
    step->forward.ops.push_back(KvWrite{qkv, kv_slots, 0, 0, 1, 1, columns});
    step->forward.ops.push_back(PagedAttention{qkv, out, 0, 0, 1, 1, columns, 0.1f, 0, 0});
    for (uint32_t r = 0; r < rows.size(); ++r) step->add_prompt_items(r);
    expect(*step, out, std::move(means));
  }

  const KvGroup states_;
  std::mt19937_64& rng_;
  Case test_case_;
  Outcome expected_;
};

// The reference against the scripts, then each device against the reference.
void check(const std::vector<Script>& scripts) {
  Suite suite;
  for (const Script& script : scripts) suite.cases.push_back(script.test_case());
  const auto backend = make_validating(make_reference_backend());
  REQUIRE(backend->load_weights(suite.weights, {}).ok());
  REQUIRE(backend->create_state(state_config(suite, *backend)).ok());
  for (const Script& script : scripts) {
    const auto outcome = execute(*backend, script.test_case());
    INFO(script.test_case().name << ": " << (outcome ? "" : outcome.error().message));
    REQUIRE(outcome.ok());
    CHECK(compare(script.test_case(), script.expected(), *outcome, backend->caps()) == std::vector<std::string>());
  }
  run(suite);
}

constexpr uint32_t kColumns[] = {1, 33, 128, 257};

}  // namespace

TEST_CASE("running_sum adds up each row from its record, or from nothing at position 0", "[running_sum]") {
  auto rng = test_rng("running_sum");
  std::vector<Script> scripts;
  for (const uint32_t columns : kColumns) {
    for (const uint32_t num_layers : {1u, 3u}) {
      Script& script = scripts.emplace_back("rows", states_of(columns, num_layers), rng);
      Text a, b, c, d;
      Step& first = script.add_step({{&a, 3, 5}, {&b, 0, 1}, {&c, 2, 67}}, 128);
      first.patch_table(3, 0, {4});
      first.patch_table(0, 0, {0});
      first.patch_table(2, 0, {8});
      script.add_step({}, 4);
      Step& third = script.add_step({{&c, 2, 1}, {&d, 7, 2}, {&a, 3, 3}}, 8);
      third.patch_table(7, 0, {1});
      script.add_step({{&b, 0, 1}}, 1);
      script.add_step({{&b, 0, 1}, {&c, 2, 1}}, 2);
      script.expect_record(4, a);
      script.expect_record(0, b);
      script.expect_record(8, c);
      script.expect_record(1, d);
    }
  }
  check(scripts);
}

TEST_CASE("branches and snapshots are copies of a record that go their own ways", "[running_sum][copy_blocks]") {
  auto rng = test_rng("running_sum branches");
  std::vector<Script> scripts;
  for (const uint32_t columns : kColumns) {
    Script& script = scripts.emplace_back("branches", states_of(columns, 2), rng);
    Text trunk;
    script.add_step({{&trunk, 1, 20}}, 32).patch_table(1, 0, {5});
    const Text snapshot = trunk;
    Text branch = snapshot, late = snapshot;
    Step& fork = script.add_step({{&branch, 4, 3}, {&trunk, 1, 1}}, 4);
    fork.add_update(RowUpdateKind::kCopySlot, 4, 1, 0);
    fork.patch_table(4, 0, {2});
    fork.memory.ops = {CopyBlocks{0}};
    fork.forward_inputs.block_copies = {{5, 2, 48}, {5, 7, 48}};
    Step& hit = script.add_step({{&trunk, 1, 2}, {&late, 6, 9}, {&branch, 4, 1}}, 16);
    hit.patch_table(6, 0, {0});
    hit.memory.ops = {CopyBlocks{0}};
    hit.forward_inputs.block_copies = {{7, 0, 48}};
    script.expect_record(5, trunk);
    script.expect_record(2, branch);
    script.expect_record(7, snapshot);
    script.expect_record(0, late);
  }
  check(scripts);
}

TEST_CASE("a record goes to the host's pool and comes back elsewhere", "[running_sum][store_blocks][load_blocks]") {
  auto rng = test_rng("running_sum host");
  std::vector<Script> scripts;
  for (const uint32_t columns : kColumns) {
    Script& script = scripts.emplace_back("host", states_of(columns, 2), rng);
    Text a, b;
    script.add_step({{&a, 1, 10}}, 16).patch_table(1, 0, {3});
    const Text stored = a;
    Step& preemption = script.add_step({{&b, 1, 4}}, 4);  // takes slot and record at once
    preemption.memory.ops = {StoreBlocks{0}, LoadBlocks{0}, CopyBlocks{0}};
    preemption.forward_inputs.block_stores = {{3, 2, 48}};
    Text branch = a;
    Step& resumption = script.add_step({{&b, 1, 1}, {&branch, 2, 3}, {&a, 5, 2}}, 8);
    resumption.patch_table(5, 0, {6});
    resumption.patch_table(2, 0, {8});
    resumption.memory.ops = {StoreBlocks{0}, LoadBlocks{0}, CopyBlocks{0}};
    resumption.forward_inputs.block_loads = {{2, 6, 48}};
    resumption.forward_inputs.block_copies = {{6, 8, 48}};  // of what the load brought
    script.expect_record(9 + 2, stored);
    script.expect_record(3, b);
    script.expect_record(6, a);
    script.expect_record(8, branch);
  }
  check(scripts);
}

TEST_CASE("a new row begins from nothing in a record that another one left", "[running_sum]") {
  auto rng = test_rng("running_sum reuse");
  std::vector<Script> scripts;
  for (const uint32_t columns : kColumns) {
    Script& script = scripts.emplace_back("reuse", states_of(columns, 2), rng);
    Text gone, text;
    script.add_step({{&gone, 0, 5}}, 8).patch_table(0, 0, {4});
    Step& next = script.add_step({{&text, 9, 2}}, 2);
    next.add_update(RowUpdateKind::kClear, 0, 0, 0);
    next.patch_table(9, 0, {4});
    script.add_step({{&text, 9, 1}}, 1);
    script.expect_record(4, text);
  }
  check(scripts);
}

// The tables of a row in both groups, with equal ids in both; a branch copies a record, and the tokens of a block.
TEST_CASE("states and blocks of one list keep apart", "[running_sum][kv_write][paged_attention]") {
  auto rng = test_rng("running_sum beside blocks");
  std::vector<Script> scripts;
  for (const uint32_t columns : {64u, 128u}) {
    Script& script = scripts.emplace_back("beside blocks", states_of(columns, 2), rng);
    script.put_behind_blocks(9);
    Text a, b;
    Step& first = script.add_step({{&a, 2, 15}}, 16);
    first.patch_table(2, 0, {7}, 0);
    first.patch_table(2, 0, {1}, 1);
    Step& second = script.add_step({{&a, 2, 5}, {&b, 0, 1}}, 8);
    second.patch_table(2, 1, {3}, 0);
    second.patch_table(0, 0, {1}, 0);
    second.patch_table(0, 0, {7}, 1);
    Text branch = a;
    Step& third = script.add_step({{&branch, 5, 2}, {&b, 0, 1}, {&a, 2, 1}}, 4);
    third.add_update(RowUpdateKind::kCopySlot, 5, 2, 0);
    third.patch_table(5, 1, {8}, 0);
    third.patch_table(5, 0, {6}, 1);
    third.memory.ops = {CopyBlocks{0}, CopyBlocks{1}};
    third.forward_inputs.block_copies = {{1, 6, 48, 1}, {3, 8, 4, 0}};
    script.add_step({{&a, 2, 1}, {&branch, 5, 1}, {&b, 0, 1}}, 4);
    script.expect_record(1, a);
    script.expect_record(7, b);
    script.expect_record(6, branch);
  }
  check(scripts);
}

}  // namespace llmrt::optest
