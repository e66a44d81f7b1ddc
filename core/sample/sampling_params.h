// How a request wants its tokens drawn. The numbers among the parameters are described once, in kSamplingParameters:
// the server, the command lines, the checks, traces, the row state and docs/api.md all follow that table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/shared_list.h"
#include "core/base/status.h"
#include "core/ops/step_inputs.h"

namespace llmrt {

inline constexpr size_t kLogitBiasMax = 1024;
inline constexpr size_t kBadWordsMax = 1024;
inline constexpr size_t kBadWordTokensMax = 8192;  // of all bad words together
inline constexpr uint32_t kNoRepeatNgramMax = 1024;
inline constexpr int32_t kLogprobAlternativesMax = kLogprobsMax;

struct SamplingParams {
  float temperature = 1;
  float top_n_sigma = 0;
  uint32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  uint32_t no_repeat_ngram_size = 0;
  uint64_t seed = 0;
  uint32_t branch = 0;                               // which of n
  SharedList<std::pair<int32_t, float>> logit_bias;  // token, bias in [-100, 100]; at most 1,024
  // Token sequences that are never completed, in the prompt and the output; at most 1,024, none empty.
  SharedList<std::vector<int32_t>> bad_words;
  int32_t logprobs = -1;         // alternatives wanted with each token, 0..20; -1 = none at all
  bool prompt_logprobs = false;  // the same for the prompt's tokens
  // Log-probabilities of drawn tokens are of the distribution that is drawn from (after penalties, bias, bans,
  // temperature and filters; greedy: the one token) instead of the raw one.
  bool processed_logprobs = false;
  bool tell_draws = false;  // events say how each token was drawn

  bool has_penalties() const { return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0; }
};

// Where a parameter applies. The whole order of sampling is in core/request/logit_changes.h.
enum class SamplingStage : uint8_t {
  kPenalties,    // on the device, before all changes
  kBans,         // on the host: bans travel with the step
  kTemperature,  // on the device; this and filters mean nothing to a greedy request
  kFilters,      // on the device, in the order of the table
};

// One of the numbers. A client may say `low` to `high`. A request holds at least `least`, and a client's smaller number
// becomes `below`: what else a client may write for "off", or a number that the device could not compute with.
struct SamplingParameter {
  std::string_view name;    // of a body's field, of a trace's, and in messages
  std::string_view flags;   // of a command line
  std::string_view letter;  // stands for the value in the command line's help
  SamplingStage stage;
  std::variant<float SamplingParams::*, uint32_t SamplingParams::*> field;
  // The same number in the row state that kernels read.
  std::variant<std::monostate, float RowSampling::*, uint32_t RowSampling::*> row_field = {};
  double low, high;
  double neutral;  // changes nothing; what absence means
  double least = low, below = least;
  std::string_view help;  // one line, for the command line and docs/api.md

  bool is_whole() const { return field.index() == 1; }
  double of(const SamplingParams& params) const;
  std::optional<double> of(const RowSampling& row) const;  // nothing where kernels do not read it
  bool is_neutral(const SamplingParams& params) const { return of(params) == neutral; }
  // `said`: as a client may say it.
  void set(double said, SamplingParams* params) const;
  // A number as the field holds it.
  double in_type(double number) const { return is_whole() ? number : double{static_cast<float>(number)}; }
  // Whether a request may hold this number, and the numbers that it may, for messages.
  bool may_be(double value) const;
  std::string expected() const;
};

// Filters apply in this order, behind the temperature. A temperature below 1e-6 is greedy: one over it, and logits
// times that, must be numbers.
inline constexpr SamplingParameter kSamplingParameters[] = {
    {.name = "temperature",
     .flags = "--temperature",
     .letter = "T",
     .stage = SamplingStage::kTemperature,
     .field = &SamplingParams::temperature,
     .row_field = &RowSampling::temperature,
     .low = 0,
     .high = 100,
     .neutral = 1,
     .least = 1e-6,
     .below = 0,
     .help = "how freely to draw; 0, or less than 0.000001: always the likeliest token"},
    {.name = "top_n_sigma",
     .flags = "--top-n-sigma",
     .letter = "N",
     .stage = SamplingStage::kFilters,
     .field = &SamplingParams::top_n_sigma,
     .row_field = &RowSampling::top_n_sigma,
     .low = -1,
     .high = 1000,
     .neutral = 0,
     .least = 0,
     .help = "draw from tokens whose logits are at most N standard deviations below the best; 0 or -1: from all"},
    {.name = "top_k",
     .flags = "--top-k",
     .letter = "K",
     .stage = SamplingStage::kFilters,
     .field = &SamplingParams::top_k,
     .row_field = &RowSampling::top_k,
     .low = -1,
     .high = 0x7fffffff,
     .neutral = 0,
     .least = 0,
     .help = "draw from the K likeliest tokens; 0 or -1: from all"},
    {.name = "top_p",
     .flags = "--top-p",
     .letter = "P",
     .stage = SamplingStage::kFilters,
     .field = &SamplingParams::top_p,
     .row_field = &RowSampling::top_p,
     .low = 0,
     .high = 1,
     .neutral = 1,
     .least = 1e-9,
     .help = "draw from the fewest tokens whose probabilities add up to P; 1: from all, 0: the likeliest alone"},
    {.name = "min_p",
     .flags = "--min-p",
     .letter = "P",
     .stage = SamplingStage::kFilters,
     .field = &SamplingParams::min_p,
     .row_field = &RowSampling::min_p,
     .low = 0,
     .high = 1,
     .neutral = 0,
     .help = "draw from tokens that are at least P times as likely as the likeliest; 0: from all"},
    {.name = "repetition_penalty",
     .flags = "--repetition-penalty",
     .letter = "R",
     .stage = SamplingStage::kPenalties,
     .field = &SamplingParams::repetition_penalty,
     .row_field = &RowSampling::repetition_penalty,
     .low = 0.01,
     .high = 10,
     .neutral = 1,
     .help = "divide the logit, if positive, of each token of prompt and answer by R, else multiply it; 1: off"},
    {.name = "presence_penalty",
     .flags = "--presence-penalty",
     .letter = "P",
     .stage = SamplingStage::kPenalties,
     .field = &SamplingParams::presence_penalty,
     .row_field = &RowSampling::presence_penalty,
     .low = -2,
     .high = 2,
     .neutral = 0,
     .help = "subtract P from the logit of each token of the answer; 0: off"},
    {.name = "frequency_penalty",
     .flags = "--frequency-penalty",
     .letter = "F",
     .stage = SamplingStage::kPenalties,
     .field = &SamplingParams::frequency_penalty,
     .row_field = &RowSampling::frequency_penalty,
     .low = -2,
     .high = 2,
     .neutral = 0,
     .help = "subtract F from the logit of each token of the answer, as often as it is there; 0: off"},
    {.name = "no_repeat_ngram_size",
     .flags = "--no-repeat-ngram,--no-repeat-ngram-size",
     .letter = "N",
     .stage = SamplingStage::kBans,
     .field = &SamplingParams::no_repeat_ngram_size,
     .low = 0,
     .high = kNoRepeatNgramMax,
     .neutral = 0,
     .help = "never write the same N tokens twice, the prompt's among them; 0: off"},
};

// The numbers that kernels read.
void copy_to_row(const SamplingParams& params, RowSampling* row);
// Those, seed and branch, of a row whose logits nothing changes.
RowSampling plain_sampling(const SamplingParams& params);

// invalid_argument naming the field, its range and what was found.
Status validate(const SamplingParams& params, uint32_t vocab_size);

}  // namespace llmrt
