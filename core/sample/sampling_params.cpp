#include "core/sample/sampling_params.h"

namespace llmrt {
namespace {

// Written so that a NaN fails.
Status check_range(const char* field, float value, float low, float high) {
  if (value >= low && value <= high) return {};
  return make_error(ErrorCode::kInvalidArgument, "{}: expected a number in [{}, {}], found {}", field, low, high,
                    value);
}

Status check_above_zero(const char* field, float value, float high) {
  if (value > 0 && value <= high) return {};
  return make_error(ErrorCode::kInvalidArgument, "{}: expected a number in (0, {}], found {}", field, high, value);
}

Status check_temperature(float value) {
  if (Status status = check_range("temperature", value, 0, 100); !status) return status;
  if (value == 0 || value >= kTemperatureMin) return {};
  return make_error(ErrorCode::kInvalidArgument, "temperature: expected 0 or at least {}, found {}", kTemperatureMin,
                    value);
}

Status check_logit_bias(const SamplingParams& params, uint32_t vocab_size) {
  if (params.logit_bias.size() > kLogitBiasMax) {
    return make_error(ErrorCode::kInvalidArgument, "logit_bias: expected at most {} entries, found {}", kLogitBiasMax,
                      params.logit_bias.size());
  }
  for (const auto& [token, bias] : params.logit_bias) {
    if (token < 0 || static_cast<uint32_t>(token) >= vocab_size) {
      return make_error(ErrorCode::kInvalidArgument, "logit_bias: expected token ids in [0, {}), found {}", vocab_size,
                        token);
    }
    if (Status status = check_range("logit_bias", bias, -100, 100); !status) return status;
  }
  return {};
}

Status check_bad_words(const SamplingParams& params, uint32_t vocab_size) {
  if (params.bad_words.size() > kBadWordsMax) {
    return make_error(ErrorCode::kInvalidArgument, "bad_words: expected at most {} token sequences, found {}",
                      kBadWordsMax, params.bad_words.size());
  }
  size_t num_tokens = 0;
  for (const std::vector<int32_t>& word : params.bad_words) {
    num_tokens += word.size();
    if (word.empty()) {
      return make_error(ErrorCode::kInvalidArgument, "bad_words: expected at least 1 token in each, found none");
    }
    for (const int32_t token : word) {
      if (token >= 0 && static_cast<uint32_t>(token) < vocab_size) continue;
      return make_error(ErrorCode::kInvalidArgument, "bad_words: expected token ids in [0, {}), found {}", vocab_size,
                        token);
    }
  }
  if (num_tokens <= kBadWordTokensMax) return {};
  return make_error(ErrorCode::kInvalidArgument, "bad_words: expected at most {} tokens in all, found {}",
                    kBadWordTokensMax, num_tokens);
}

}  // namespace

Status validate(const SamplingParams& params, uint32_t vocab_size) {
  const Status checks[] = {
      check_temperature(params.temperature),
      check_above_zero("top_p", params.top_p, 1),
      check_range("min_p", params.min_p, 0, 1),
      check_range("repetition_penalty", params.repetition_penalty, static_cast<float>(kRepetitionPenaltyMin), 10),
      check_range("presence_penalty", params.presence_penalty, -2, 2),
      check_range("frequency_penalty", params.frequency_penalty, -2, 2),
      check_logit_bias(params, vocab_size),
      check_bad_words(params, vocab_size),
  };
  for (const Status& status : checks) {
    if (!status) return status;
  }
  if (params.no_repeat_ngram_size > kNoRepeatNgramMax) {
    return make_error(ErrorCode::kInvalidArgument, "no_repeat_ngram_size: expected at most {}, found {}",
                      kNoRepeatNgramMax, params.no_repeat_ngram_size);
  }
  if (params.logprobs < -1 || params.logprobs > kLogprobAlternativesMax) {
    return make_error(ErrorCode::kInvalidArgument, "logprobs: expected at most {} alternatives, found {}",
                      kLogprobAlternativesMax, params.logprobs);
  }
  if (params.prompt_logprobs && params.logprobs < 0) {
    return make_error(ErrorCode::kInvalidArgument, "prompt_logprobs: expected logprobs to be asked for too");
  }
  return {};
}

}  // namespace llmrt
