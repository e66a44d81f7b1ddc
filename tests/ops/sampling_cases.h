// What the tests of the sampling ops share: steps whose rows have parameters and logits, and the judges of what comes
// back. Logits are given as f32 numbers, so every device reads the same ones.
#pragma once

#include <string>
#include <vector>

#include "tests/ops/op_harness.h"

namespace llmrt::optest {

struct SampleRow {
  std::string name;
  RowSampling sampling;
  std::vector<float> logits;
  uint32_t output_position = 0;
  uint32_t flags = 0;  // SampleFlags
  int32_t forced_token = -1;
  std::vector<BiasEntry> bias = {};
  std::vector<uint32_t> prompt_tokens = {}, output_tokens = {};  // of a row with penalties
};

struct SamplingCase {
  uint32_t bucket = 0;  // R, at least the rows
  bool logprobs = false;
};

// One step: update_rows sets every row's slot (row r lives in slot r) and counts; then apply_penalties, apply_bias,
// filter, sample and logprobs. Rows with penalties take penalty slots in order.
Case sampling_case(std::string name, const std::vector<SampleRow>& rows, SamplingCase options = {});
// Slots, penalty rows and vocabulary for those cases.
void fit_suite(Suite* suite);

// Random logits of a shape: "normal", "ties" (multiples of a half), "equal", "spike", "huge", "masked" (most -inf).
std::vector<float> random_logits(const std::string& shape, uint32_t vocab, std::mt19937_64& rng);
std::vector<std::string> logits_shapes();

}  // namespace llmrt::optest
