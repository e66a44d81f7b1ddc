#include "core/request/logit_changes.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/sample/token_bans.h"

namespace llmrt {
namespace {

// One entry a token: the sum of what is there for it.
void merge(std::vector<TokenBias>* changes) {
  std::ranges::sort(*changes, [](const TokenBias& a, const TokenBias& b) {
    return a.token != b.token ? a.token < b.token : a.bias < b.bias;
  });
  size_t num_merged = 0;
  for (const TokenBias& change : *changes) {
    if (num_merged > 0 && (*changes)[num_merged - 1].token == change.token)
      (*changes)[num_merged - 1].bias += change.bias;
    else
      (*changes)[num_merged++] = change;
  }
  changes->resize(num_merged);
}

}  // namespace

bool changes_logits(const Request& request) {
  const SamplingParams& sampling = request.sampling;
  return !sampling.logit_bias.empty() || request.min_tokens > 0 || !sampling.bad_words.empty() ||
         sampling.no_repeat_ngram_size > 0 || !request.processors.empty();
}

bool reads_newest_token(const Request& request) {
  const SamplingParams& sampling = request.sampling;
  const auto is_long = [](const std::vector<int32_t>& word) { return word.size() > 1; };
  return sampling.no_repeat_ngram_size > 0 || !request.processors.empty() || request.constraint != nullptr ||
         std::ranges::any_of(sampling.bad_words, is_long);
}

void find_logit_changes(const Request& request, std::span<const int32_t> tokens, uint32_t num_prompt,
                        uint32_t output_position, std::span<const int32_t> end_of_generation,
                        std::vector<TokenBias>* changes) {
  const SamplingParams& sampling = request.sampling;
  changes->clear();
  for (const auto& [token, bias] : sampling.logit_bias) changes->push_back({token, bias});
  if (output_position < request.min_tokens) {
    if (!request.stop.ignore_eos)
      for (const int32_t token : end_of_generation) changes->push_back({token, kBan});
    for (const int32_t token : request.stop.token_ids) changes->push_back({token, kBan});
  }
  ban_words(tokens, sampling.bad_words, changes);
  if (sampling.no_repeat_ngram_size > 0) ban_repeats(tokens, sampling.no_repeat_ngram_size, changes);
  const size_t num_own = changes->size();
  for (const auto& processor : request.processors) processor->process(tokens, num_prompt, changes);
  LLMRT_CHECK(changes->size() - num_own <= kProcessorEntriesMax, "a logits processor changes too many tokens");
  for (size_t i = num_own; i < changes->size(); ++i)
    LLMRT_CHECK((*changes)[i].token >= 0 && (std::isfinite((*changes)[i].bias) || (*changes)[i].bias == kBan),
                "a logits processor's change is no change");
  merge(changes);
}

uint64_t plain_changes_max(size_t num_ends) {
  return kLogitBiasMax + kStopTokensMax + num_ends;
}

uint64_t further_changes_max(uint32_t context_max) {
  return kBadWordsMax + uint64_t{context_max} + kProcessorEntriesMax;
}

std::vector<std::string> processor_names(const Request& request) {
  const SamplingParams& sampling = request.sampling;
  std::vector<std::string> names;
  const auto add = [&names](bool is_there, const char* name) {
    if (is_there) names.emplace_back(name);
  };
  add(sampling.has_penalties(), "penalties");
  add(!sampling.logit_bias.empty(), "logit_bias");
  add(request.min_tokens > 0, "min_tokens");
  add(!sampling.bad_words.empty(), "bad_words");
  add(sampling.no_repeat_ngram_size > 0, "no_repeat_ngram");
  for (const auto& processor : request.processors) names.emplace_back(processor->name());
  add(request.constraint != nullptr, "grammar");
  if (sampling.temperature == 0) return names;  // argmax
  for (const SamplingParameter& parameter : kSamplingParameters) {
    const bool is_later = parameter.stage == SamplingStage::kTemperature || parameter.stage == SamplingStage::kFilters;
    if (is_later && !parameter.is_neutral(sampling)) names.emplace_back(parameter.name);
  }
  return names;
}

}  // namespace llmrt
