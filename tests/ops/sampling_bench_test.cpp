// Speed of the sampling ops: ops_test "[bench]" prints the median milliseconds of each op for settings that take
// different ways through them. Nothing is judged; hidden from plain runs.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>

#include "tests/ops/sampling_cases.h"
#include "tests/ops/test_devices.h"

namespace llmrt::optest {
namespace {

constexpr int kRepeats = 9;

struct Setting {
  const char* name;
  float temperature;
  uint32_t top_k;
  float top_p, min_p;
  MaskKind mask_kind = MaskKind::kBits;
  float allowed = 0;  // the part of the vocabulary that each row's own mask allows; 0: no mask
};
constexpr Setting kSettings[] = {
    {"greedy", 0, 0, 1, 0},          {"temperature", 1, 0, 1, 0},         {"top-k 50", 1, 50, 1, 0},
    {"top-p 0.9", 0.7f, 0, 0.9f, 0}, {"min-p 0.05", 1, 0, 1, 0.05f},      {"k 40 p 0.95", 0.8f, 40, 0.95f, 0},
    {"top-k 2000", 1, 2000, 1, 0},   {"top-p 0.99 wide", 2, 0, 0.99f, 0}, {"k 2000 p 0.98", 2, 2000, 0.98f, 0},
};
// A plain row, then rows with masks, for each way of drawing.
constexpr MaskKind kBits = MaskKind::kBits, kList = MaskKind::kList;
constexpr Setting kMaskSettings[] = {
    {"greedy", 0, 0, 1, 0},
    {"greedy, bits 100 %", 0, 0, 1, 0, kBits, 1},
    {"greedy, bits 50 %", 0, 0, 1, 0, kBits, 0.5f},
    {"greedy, bits 1 %", 0, 0, 1, 0, kBits, 0.01f},
    {"greedy, list 1 %", 0, 0, 1, 0, kList, 0.01f},
    {"temperature", 1, 0, 1, 0},
    {"temperature, bits 100 %", 1, 0, 1, 0, kBits, 1},
    {"temperature, bits 50 %", 1, 0, 1, 0, kBits, 0.5f},
    {"temperature, bits 1 %", 1, 0, 1, 0, kBits, 0.01f},
    {"temperature, list 1 %", 1, 0, 1, 0, kList, 0.01f},
    {"temperature, list 50 %", 1, 0, 1, 0, kList, 0.5f},
    {"top-p 0.9", 0.7f, 0, 0.9f, 0},
    {"top-p 0.9, bits 100 %", 0.7f, 0, 0.9f, 0, kBits, 1},
    {"top-p 0.9, bits 50 %", 0.7f, 0, 0.9f, 0, kBits, 0.5f},
    {"top-p 0.9, list 1 %", 0.7f, 0, 0.9f, 0, kList, 0.01f},
};

void bench(const std::string& device, uint32_t vocab, uint32_t num_rows, const Setting& setting) {
  auto rng = test_rng("sampling bench");
  std::vector<SampleRow> rows;
  for (uint32_t r = 0; r < num_rows; ++r) {
    SampleRow row;
    row.sampling.temperature = setting.temperature;
    row.sampling.top_k = setting.top_k;
    row.sampling.top_p = setting.top_p;
    row.sampling.min_p = setting.min_p;
    row.sampling.seed_lo = r;
    row.logits = random_logits("normal", vocab, rng);
    row.flags = kSampleLogprobs;
    const auto num_allowed = static_cast<uint32_t>(setting.allowed * static_cast<float>(vocab));
    if (setting.allowed > 0) row.mask = random_mask(setting.mask_kind, vocab, num_allowed, rng);
    rows.push_back(std::move(row));
  }
  Suite suite;
  suite.cases.push_back(sampling_case(setting.name, rows, {.bucket = num_rows, .logprobs = true}));
  fit_suite(&suite);
  auto opened = open_test_device(device);
  REQUIRE(opened.ok());
  Backend& backend = **opened;
  REQUIRE(backend.load_weights(suite.weights, {}).ok());
  REQUIRE(backend.create_state(state_config(suite, backend)).ok());
  const Step& step = suite.cases[0].steps[0];
  REQUIRE(execute(backend, suite.cases[0]).ok());  // fills the logits
  std::vector<uint32_t> forward_words, sample_words;
  pack(step.forward_inputs, &forward_words);
  pack(step.sample_inputs, &sample_words);
  const SealedList forward(step.forward), sample(step.sample);
  const StepSubmission submission{.forward = &forward,
                                  .forward_inputs = forward_words,
                                  .sample = &sample,
                                  .sample_inputs = sample_words,
                                  .num_sampled = num_rows,
                                  .want_logprobs = true};
  std::vector<std::vector<double>> times(step.sample.ops.size());
  for (int i = 0; i < kRepeats; ++i) {
    const auto op_ms = backend.profile(submission);
    REQUIRE(op_ms.ok());
    for (size_t op = 0; op < times.size(); ++op) times[op].push_back((*op_ms)[step.forward.ops.size() + op]);
  }
  std::string line;
  for (size_t op = 0; op < times.size(); ++op) {
    std::sort(times[op].begin(), times[op].end());
    line += fmt::format("  {} {:.4f}", op_name(step.sample.ops[op]), times[op][kRepeats / 2]);
  }
  fmt::print("{:<10} V {} R {:<3} {:<24}{}\n", device, vocab, num_rows, setting.name, line);
  std::fflush(stdout);
}

}  // namespace

TEST_CASE("the sampling ops' speed", "[.bench][sampling]") {
  for (const std::string& device : test_devices())
    for (uint32_t num_rows : {1u, 8u, 64u})
      for (const Setting& setting : kSettings) bench(device, 128256, num_rows, setting);
}

TEST_CASE("the sampling ops' speed with token masks", "[.bench][sampling_masks]") {
  for (const std::string& device : test_devices())
    for (uint32_t num_rows : {1u, 32u, 256u})
      for (const Setting& setting : kMaskSettings) bench(device, 151936, num_rows, setting);
}

}  // namespace llmrt::optest
