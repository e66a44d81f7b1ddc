// Rows of recurrent layers: in batch-invariant lists a text gives the same bits however its tokens are cut into rows
// and whatever other rows are in the steps, on each device against itself; and a step may have more rows than kernels
// take at once, on each device against the reference.
#include <catch2/catch_test_macros.hpp>

#include "core/base/checked_math.h"
#include "tests/ops/recurrent_rules.h"
#include "tests/ops/recurrent_script.h"
#include "tests/ops/test_devices.h"

namespace llmrt::optest {
namespace {

constexpr uint32_t kTextTokens = 70, kFirst = 8;

constexpr DeltaShape kDeltaPlain = {1, 2, 36, 40, KeyHeadOrder::kDivided, false, true, false};
constexpr ScanShape kScanPlain = {2, 36, 1, 72, true, 0, 1e30f, false};

// So many tokens of a text in a step, and behind them some that are taken back.
struct Part {
  uint32_t count, wrong = 0;
};
using Cut = std::vector<Part>;

// The text in such rows, all its steps batch-invariant. beside: other texts in the same steps.
Case invariant_case(const RecurrentRule& rule, const Cut& cut, bool beside) {
  const bool goes_back = rule.ring || rule.conv_width > 0;
  std::mt19937_64 numbers(7);
  RecurrentScript script("cut", rule, false, numbers);
  // Drawn alone, so that it is the same text in every case.
  Text drawn;
  script.add_step({{&drawn, 6, 7, kTextTokens}}, kTextTokens);
  std::mt19937_64 others(beside ? 9 : 8);
  Case test_case = script.test_case();
  const Step whole = test_case.steps[0];
  test_case.steps.clear();
  uint32_t start = 0;
  for (const Part& part : cut) {
    const uint32_t count = part.count, wrong = goes_back ? part.wrong : 0, length = count + wrong;
    Step& step = test_case.steps.emplace_back();
    step.forward.ops = {UpdateRows{}};
    const uint32_t num_others = beside ? 2 + static_cast<uint32_t>(others() % 3) : 0;
    if (beside) {
      step.add_row(1, 0, num_others);
      step.patch_table(1, 0, {2});
    }
    step.add_row(6, start, length);
    step.patch_table(6, 0, {7});
    step.forward.decode_only = length <= 4 && num_others <= 4;
    step.forward.batch_invariant = true;
    step.set_bucket(length + num_others);
    std::vector<Columns> inputs;
    for (uint32_t i = 0; i < rule.inputs.size(); ++i) {
      std::vector<double> rows = random_normal(others, size_t{num_others} * rule.inputs[i]);
      const std::vector<double>& all = whole.fills[i].values;
      rows.insert(rows.end(), all.begin() + static_cast<std::ptrdiff_t>(size_t{start} * rule.inputs[i]),
                  all.begin() + static_cast<std::ptrdiff_t>(size_t{start + count} * rule.inputs[i]));
      const std::vector<double> none = random_normal(others, size_t{wrong} * rule.inputs[i]);
      rows.insert(rows.end(), none.begin(), none.end());
      inputs.push_back(
          {step.input(Rows::kTokens, fmt::format("in{}", i), rule.inputs[i], DType::kF32, std::move(rows))});
    }
    const TensorId out = step.output(Rows::kTokens, "out", rule.out_columns, rule.out_dtype, Tolerance::kRecurrent);
    step.forward.ops.push_back(rule.make_op(inputs, StatePart{0, 1, kFirst, rule.ring_tokens()}, out));
    start += count;
  }
  return test_case;
}

// The text's outputs, then the numbers of its record that count.
std::vector<std::byte> bits_of(const RecurrentRule& rule, const Cut& cut, const Case& test_case,
                               const Outcome& outcome) {
  std::vector<std::byte> bits;
  for (size_t s = 0; s < test_case.steps.size(); ++s) {
    const Step& step = test_case.steps[s];
    const RowRecord& row = step.forward_inputs.rows.back();
    const TensorId out = step.outputs[0].tensor;
    const std::vector<std::byte>& bytes = outcome.tensors[s].at(out);
    const size_t row_bytes = bytes.size() / step.forward.num_tokens;
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(row.token_first * row_bytes);
    bits.insert(bits.end(), begin, begin + static_cast<std::ptrdiff_t>(cut[s].count * row_bytes));
  }
  const auto record = outcome.kv[0][1][7].begin() + kFirst * 4;
  const std::vector<double> none(rule.first_of(static_cast<uint32_t>(rule.inputs.size())));
  const auto add = [&](uint64_t first, const auto& numbers) {
    const auto begin = record + static_cast<std::ptrdiff_t>(first * 4);
    bits.insert(bits.end(), begin, begin + static_cast<std::ptrdiff_t>(numbers.size() * 4));
  };
  rule.record(RecurrentRule::Tokens(kTextTokens, none), rule.first_kept(kTextTokens), RuleFault::kNone, add);
  return bits;
}

// One step of so many rows, of one or two tokens; every third one begins.
Case many_rows_case(const RecurrentRule& rule, uint32_t num_rows, bool decode_only, std::mt19937_64& rng) {
  Case test_case;
  test_case.name = fmt::format("{} {} rows{}", rule.name, num_rows, decode_only ? " that decode" : "");
  const KvGroup states{.num_layers = 1,
                       .block_tokens = 64,
                       .num_blocks = num_rows,
                       .state_columns = round_up(static_cast<uint32_t>(rule.state_numbers), 4u)};
  test_case.groups = {states};
  test_case.kv = {random_kv(states, rng)};
  test_case.state_tolerance = 1e-4;
  Step& step = test_case.steps.emplace_back();
  step.forward.ops = {UpdateRows{}};
  uint32_t num_tokens = 0;
  for (uint32_t row = 0; row < num_rows; ++row) {
    const uint32_t count = decode_only ? 1 : 1 + row % 2;
    step.add_row(row, row % 3 == 0 ? 0 : row, count);
    step.patch_table(row, 0, {num_rows - 1 - row});
    num_tokens += count;
  }
  step.forward.decode_only = decode_only;
  step.set_bucket(num_tokens);
  std::vector<Columns> inputs;
  for (uint32_t i = 0; i < rule.inputs.size(); ++i) {
    std::vector<double> numbers;
    for (uint32_t t = 0; t < num_tokens; ++t) {
      const std::vector<double> token = rule.draw(i, rng);
      numbers.insert(numbers.end(), token.begin(), token.end());
    }
    inputs.push_back({step.input(Rows::kTokens, fmt::format("in{}", i), rule.inputs[i], DType::kF32, numbers)});
  }
  const TensorId out = step.output(Rows::kTokens, "out", rule.out_columns, rule.out_dtype, Tolerance::kRecurrent);
  step.forward.ops.push_back(rule.make_op(inputs, StatePart{0, 0, 0, rule.ring_tokens()}, out));
  return test_case;
}

}  // namespace

TEST_CASE("a step of recurrent layers may have many rows", "[recurrent]") {
  auto rng = test_rng("recurrent many rows");
  Suite suite;
  suite.slots_max = 150;
  for (const bool decode_only : {false, true}) {
    suite.cases.push_back(many_rows_case(conv_rule({20, 4, true, true, false}, &suite, rng), 150, decode_only, rng));
    suite.cases.push_back(many_rows_case(delta_rule({1, 2, 20, 12}, &suite, rng), 150, decode_only, rng));
    suite.cases.push_back(many_rows_case(scan_rule({2, 12, 1, 20}, &suite, rng), 70, decode_only, rng));
  }
  run(suite);
}

TEST_CASE("batch-invariant recurrent layers have the same bits however rows are cut", "[recurrent]") {
  auto rng = test_rng("recurrent bits");
  Suite suite;
  const std::vector<RecurrentRule> rules = {
      conv_rule({20, 4, true, true, false}, &suite, rng), delta_rule({1, 2, 36, 40}, &suite, rng),
      scan_rule({2, 36, 1, 72}, &suite, rng), delta_rule(kDeltaPlain, &suite, rng), scan_rule(kScanPlain, &suite, rng)};
  // The last one goes back from ends on both sides of multiples of 16, by all counts; records without a ring do not.
  const std::vector<Cut> cuts = {{{kTextTokens}},
                                 {{64}, {1}, {1}, {1}, {1}, {1}, {1}},
                                 {{1}, {2}, {3}, {5}, {8}, {13}, {21}, {17}},
                                 {{33}, {37}},
                                 {{10}, {1, 3}, {1, 2}, {2, 1}, {1},    {1, 3}, {1, 3}, {2, 2}, {3, 1}, {8},
                                  {1},  {1},    {31},   {1, 3}, {1, 3}, {1},    {1},    {1},    {1},    {1}}};
  for (const RecurrentRule& rule : rules)
    for (const Cut& cut : cuts)
      for (const bool beside : {false, true}) suite.cases.push_back(invariant_case(rule, cut, beside));
  bool has_device = false;
  for (const std::string& id : test_devices()) {
    const auto backend = open_test_device(id);
    INFO(id << ": " << (backend ? "" : backend.error().message));
    REQUIRE(backend.ok());
    if (std::ranges::count((*backend)->unsupported(), "gated_delta")) continue;
    has_device = true;
    REQUIRE((*backend)->load_weights(suite.weights, {}).ok());
    REQUIRE((*backend)->create_state(state_config(suite, **backend)).ok());
    std::vector<std::byte> first;
    for (size_t i = 0; i < suite.cases.size(); ++i) {
      const Case& test_case = suite.cases[i];
      const auto outcome = execute(**backend, test_case);
      INFO(test_case.name << ", case " << i << ": " << (outcome ? "" : outcome.error().message));
      REQUIRE(outcome.ok());
      std::vector<std::byte> bits =
          bits_of(rules[i / (2 * cuts.size())], cuts[i / 2 % cuts.size()], test_case, *outcome);
      if (i % (2 * cuts.size()) == 0) first = bits;
      CHECK(bits == first);
    }
  }
  if (!has_device) SKIP("no device with kernels of recurrent layers");
}

}  // namespace llmrt::optest
