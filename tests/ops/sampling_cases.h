// What the tests of the sampling ops share: steps whose rows have parameters and logits, and the judges of what comes
// back. Logits are given as f32 numbers, so every device reads the same ones.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/ops/op_harness.h"

namespace llmrt::optest {

// Rows that hold the same one share its record.
struct RowMask {
  MaskKind kind;
  std::vector<uint32_t> words;
  bool allows(uint32_t token) const;
};
using RowMaskPtr = std::shared_ptr<const RowMask>;

struct SampleRow {
  std::string name;
  RowSampling sampling;
  std::vector<float> logits;
  uint32_t output_position = 0;
  uint32_t flags = 0;  // SampleFlags
  int32_t forced_token = -1;
  std::vector<BiasEntry> bias = {};
  std::vector<uint32_t> prompt_tokens = {}, output_tokens = {};  // of a row with penalties
  RowMaskPtr mask = nullptr;
};

struct SamplingCase {
  uint32_t bucket = 0;  // R, at least the rows
  bool logprobs = false;
};

// One step: update_rows sets every row's slot (row r lives in slot r) and counts; then apply_penalties, apply_bias,
// filter, sample and logprobs. Rows with penalties take penalty slots in order. Beside the words of a mask lie words
// that would allow more.
Case sampling_case(std::string name, const std::vector<SampleRow>& rows, SamplingCase options = {});
// Slots, penalty rows and vocabulary for those cases.
void fit_suite(Suite* suite);

// Random logits of a shape: "normal", "ties" (multiples of a half), "equal", "spike", "huge", "masked" (most -inf).
std::vector<float> random_logits(const std::string& shape, uint32_t vocab, std::mt19937_64& rng);
std::vector<std::string> logits_shapes();

// Allows `num_allowed` random tokens. Bits have words as far as the last of them at times, and at times all.
RowMaskPtr random_mask(MaskKind kind, uint32_t vocab, uint32_t num_allowed, std::mt19937_64& rng);

}  // namespace llmrt::optest
