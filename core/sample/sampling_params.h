// How a request wants its tokens drawn. Ranges are checked once, by validate(), before the core sees a request.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/shared_list.h"
#include "core/base/status.h"

namespace llmrt {

inline constexpr size_t kLogitBiasMax = 1024;
inline constexpr size_t kBadWordsMax = 1024;
inline constexpr size_t kBadWordTokensMax = 8192;  // of all bad words together
inline constexpr uint32_t kNoRepeatNgramMax = 1024;
inline constexpr float kTemperatureMin = 1e-6f;  // one over it, and logits times that, must be numbers
inline constexpr double kRepetitionPenaltyMin = 0.01;
inline constexpr int32_t kLogprobAlternativesMax = 20;  // twin: kLogprobsMax in core/ops/step_inputs.h

struct SamplingParams {
  float temperature = 1.0f;  // 0 = greedy, or [kTemperatureMin, 100]
  uint32_t top_k = 0;        // 0 = all
  float top_p = 1.0f;        // (0, 1]
  float min_p = 0.0f;        // [0, 1]
  // [kRepetitionPenaltyMin, 10]: divides positive, multiplies negative logits of seen tokens
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;   // [-2, 2]
  float frequency_penalty = 0.0f;  // [-2, 2]
  uint64_t seed = 0;
  uint32_t branch = 0;                               // which of n
  SharedList<std::pair<int32_t, float>> logit_bias;  // token, bias in [-100, 100]; at most 1,024
  // Token sequences that are never completed, in the prompt and the output; at most 1,024, none empty.
  SharedList<std::vector<int32_t>> bad_words;
  uint32_t no_repeat_ngram_size = 0;  // 0 = off; n: no n tokens of prompt and output stand twice; at most 1,024
  int32_t logprobs = -1;              // alternatives wanted with each token, 0..20; -1 = none at all
  bool prompt_logprobs = false;       // the same for the prompt's tokens
  // Log-probabilities of drawn tokens are of the distribution that is drawn from (after penalties, bias, bans,
  // temperature and filters; greedy: the one token) instead of the raw one.
  bool processed_logprobs = false;
  bool tell_draws = false;  // events say how each token was drawn

  bool has_penalties() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
};

// invalid_argument naming the field, its range and what was found.
Status validate(const SamplingParams& params, uint32_t vocab_size);

}  // namespace llmrt
