// apply_penalties and apply_bias: each penalty alone and all together, prompt and output counts apart, bias of any
// size.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>

#include "tests/ops/sampling_cases.h"

namespace llmrt::optest {
namespace {

std::vector<uint32_t> random_tokens(uint32_t count, uint32_t vocab, std::mt19937_64& rng) {
  std::vector<uint32_t> tokens(count);
  // From a few, so that counts above one occur.
  for (uint32_t& token : tokens) token = static_cast<uint32_t>(rng() % (rng() % 2 ? std::min(vocab, 5u) : vocab));
  return tokens;
}

}  // namespace

TEST_CASE("penalties and bias change the processed copy alone", "[apply_penalties][apply_bias]") {
  const uint32_t vocab = GENERATE(1u, 31u, 49152u, 151936u);
  auto rng = test_rng(fmt::format("penalties {}", vocab));
  Suite suite;
  std::vector<SampleRow> rows;
  const auto add = [&](const char* name, uint32_t flags, float repetition, float presence, float frequency) {
    SampleRow row;
    row.name = name;
    row.sampling.flags = flags;
    row.sampling.temperature = rows.size() % 2 ? 1.0f : 0.0f;
    row.sampling.repetition_penalty = repetition;
    row.sampling.presence_penalty = presence;
    row.sampling.frequency_penalty = frequency;
    row.sampling.seed_lo = static_cast<uint32_t>(rng());
    row.logits = random_logits("normal", vocab, rng);
    row.prompt_tokens = random_tokens(40, vocab, rng);
    row.output_tokens = random_tokens(25, vocab, rng);
    if (flags & kRowBias) {
      const auto tokens = random_blocks(vocab, std::min(vocab, 20u), rng);
      for (uint32_t token : tokens)
        row.bias.push_back({static_cast<int32_t>(token), static_cast<float>(rng() % 200) - 100});
      if (vocab > 1) row.bias[0].bias = -std::numeric_limits<float>::infinity();
    }
    rows.push_back(std::move(row));
  };
  add("nothing", 0, 1, 0, 0);
  add("repetition", kRowPenalties, 1.3f, 0, 0);
  add("repetition below one", kRowPenalties, 0.7f, 0, 0);
  add("presence", kRowPenalties, 1, 0.8f, 0);
  add("frequency", kRowPenalties, 1, 0, 0.3f);
  add("negative", kRowPenalties, 1, -1.5f, -0.2f);
  add("all", kRowPenalties, 1.2f, 0.5f, 0.25f);
  add("bias alone", kRowBias, 1, 0, 0);
  add("penalties and bias", kRowPenalties | kRowBias, 1.1f, 0.1f, 0.9f);
  add("nothing again", 0, 1, 0, 0);
  suite.cases.push_back(sampling_case(fmt::format("penalties V {}", vocab), rows, {.bucket = 16}));
  fit_suite(&suite);
  run(suite);
}

// A run of four records of slot 0, the last row alone in its slot.
TEST_CASE("penalties count the drafts before a record of a run", "[apply_penalties][drafts]") {
  const uint32_t vocab = GENERATE(40u, 49152u);
  auto rng = test_rng(fmt::format("drafts {}", vocab));
  std::vector<SampleRow> rows;
  for (uint32_t r = 0; r < 5; ++r) {
    SampleRow row;
    row.name = fmt::format("record {}", r);
    row.sampling.flags = kRowPenalties;
    row.sampling.temperature = 0;
    row.sampling.repetition_penalty = 1.3f;
    row.sampling.presence_penalty = 0.7f;
    row.sampling.frequency_penalty = 0.4f;
    row.logits = random_logits("normal", vocab, rng);
    row.prompt_tokens = {3, 4, 5};
    row.output_tokens = {5, 6, 6};
    row.output_position = 10 + r;
    rows.push_back(std::move(row));
  }
  Case test_case = sampling_case(fmt::format("drafts V {}", vocab), rows, {.bucket = 8});
  // One that is in the output, the prompt, both, neither; one comes twice.
  const int32_t drafts[] = {6, 20, 20, -1};
  for (uint32_t r = 0; r < 4; ++r) {
    SampleRecord& record = test_case.steps[0].sample_inputs.records[r];
    record.slot = 0;
    record.flags |= kSampleVerify | r << kSampleRunShift;
    record.forced_token = drafts[r];
  }
  // The drafts by hand: what the reference must have done.
  test_case.check_results = [=](const std::vector<StepOutput>& want, const std::vector<StepOutput>&) {
    std::vector<std::string> failures;
    for (uint32_t r = 0; r < 4; ++r) {
      std::vector<float> l = rows[r].logits;
      for (uint32_t v = 0; v < vocab; ++v) {
        uint32_t in_output = (v == 5) + 2 * (v == 6);
        for (uint32_t i = 0; i < r; ++i) in_output += static_cast<uint32_t>(drafts[i]) == v;
        if (in_output > 0 || (v >= 3 && v <= 5)) l[v] = l[v] > 0 ? l[v] / 1.3f : l[v] * 1.3f;
        if (in_output > 0) l[v] -= 0.7f + 0.4f * static_cast<float>(in_output);
      }
      const auto best = static_cast<int32_t>(std::max_element(l.begin(), l.end()) - l.begin());
      if (want[0].results[r].token != best)
        failures.push_back(fmt::format("record {}: expected {}, found {}", r, best, want[0].results[r].token));
    }
    return failures;
  };
  Suite suite;
  suite.cases.push_back(std::move(test_case));
  fit_suite(&suite);
  run(suite);
}

// Steps take turns: one whose draw is of a run and counts nothing, one before which a token is told that was taken.
TEST_CASE("a drawn token of a run is counted when it is told, and leaves no last token", "[update_rows][drafts]") {
  auto rng = test_rng("told counts");
  constexpr uint32_t kVocab = 500;
  SampleRow row;
  row.name = "told";
  row.sampling.flags = kRowPenalties;
  row.sampling.temperature = 0;
  row.sampling.presence_penalty = 2;
  row.sampling.frequency_penalty = 1;
  row.flags = kSampleVerify;
  row.logits = random_logits("normal", kVocab, rng);
  const auto best = static_cast<uint32_t>(std::max_element(row.logits.begin(), row.logits.end()) - row.logits.begin());
  row.logits[best] = 15;
  Case test_case = sampling_case("told", {row, row});
  test_case.check_tensors = nullptr;
  for (Output& output : test_case.steps[0].outputs) output.tolerance = Tolerance::kAnything;
  Step again = test_case.steps[0];
  again.forward_inputs.clear();
  for (uint32_t position = 1; position < 16; ++position) {
    Step next = again;
    for (SampleRecord& record : next.sample_inputs.records) record.output_position = position;
    if (position % 2 == 0) {
      next.add_update(RowUpdateKind::kCount, 0, 0, 0, {best});
      next.add_update(RowUpdateKind::kCount, 1, 1, 0, {best, best, best});
    }
    test_case.steps.push_back(next);
  }
  test_case.check_results = [best](const std::vector<StepOutput>& want, const std::vector<StepOutput>& got) {
    std::vector<std::string> failures;
    for (size_t s = 0; s < want.size(); ++s)
      for (size_t r = 0; r < want[s].results.size(); ++r)
        if (want[s].results[r].token != got[s].results[r].token)
          failures.push_back(fmt::format("step {} row {}: expected {}, found {}", s, r, want[s].results[r].token,
                                         got[s].results[r].token));
    const auto is_best = [&](size_t step, size_t r) {
      return want[step].results[r].token == static_cast<int32_t>(best);
    };
    if (!is_best(1, 0) || !is_best(1, 1)) failures.push_back("a token of a run was counted");
    if (!is_best(2, 0) || is_best(14, 0)) failures.push_back("row 0: told tokens are not counted one by one");
    if (is_best(4, 1)) failures.push_back("row 1: told tokens are not counted");
    return failures;
  };
  Suite suite;
  suite.cases.push_back(std::move(test_case));
  fit_suite(&suite);
  run(suite);
}

TEST_CASE("a drawn token is counted for the next step", "[apply_penalties][sample]") {
  auto rng = test_rng("counting");
  constexpr uint32_t kVocab = 500;
  SampleRow row;
  row.name = "counts";
  row.sampling.flags = kRowPenalties;
  row.sampling.temperature = 0;
  row.sampling.presence_penalty = 2;
  row.sampling.frequency_penalty = 1;
  row.logits = random_logits("spike", kVocab, rng);
  // The spike is drawn until its penalty has grown past it: each step must count the one before.
  for (float& l : row.logits)
    if (l > 50) l = 15;
  Case test_case = sampling_case("counting", {row, row});
  test_case.check_tensors = nullptr;
  for (Output& output : test_case.steps[0].outputs) output.tolerance = Tolerance::kAnything;
  Step next = test_case.steps[0];
  next.forward_inputs.clear();
  for (uint32_t position = 1; position < 12; ++position) {
    for (SampleRecord& record : next.sample_inputs.records) record.output_position = position;
    test_case.steps.push_back(next);
  }
  test_case.check_results = [](const std::vector<StepOutput>& want, const std::vector<StepOutput>& got) {
    std::vector<std::string> failures;
    for (size_t s = 0; s < want.size(); ++s)
      for (size_t r = 0; r < want[s].results.size(); ++r)
        if (want[s].results[r].token != got[s].results[r].token)
          failures.push_back(fmt::format("step {} row {}: expected {}, found {}", s, r, want[s].results[r].token,
                                         got[s].results[r].token));
    return failures;
  };
  Suite suite;
  suite.cases.push_back(std::move(test_case));
  fit_suite(&suite);
  run(suite);
}

}  // namespace llmrt::optest
