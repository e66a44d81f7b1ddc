#include "core/sample/sampling_params.h"

#include <type_traits>

namespace llmrt {
namespace {

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
    if (bias >= -100 && bias <= 100) continue;  // not so for a NaN
    return make_error(ErrorCode::kInvalidArgument, "logit_bias: expected a number in [-100, 100], found {}", bias);
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

double SamplingParameter::of(const SamplingParams& params) const {
  return std::visit([&](auto member) { return static_cast<double>(params.*member); }, field);
}

std::optional<double> SamplingParameter::of(const RowSampling& row) const {
  if (const auto* number = std::get_if<float RowSampling::*>(&row_field)) return row.**number;
  if (const auto* number = std::get_if<uint32_t RowSampling::*>(&row_field)) return row.**number;
  return std::nullopt;
}

void SamplingParameter::set(double said, SamplingParams* params) const {
  const auto put = [&](auto member) {
    using Number = std::remove_reference_t<decltype(params->*member)>;
    params->*member = static_cast<Number>(said < in_type(least) ? below : said);
  };
  std::visit(put, field);
}

// Written so that a NaN fails.
bool SamplingParameter::may_be(double value) const {
  return value == in_type(below) || (value >= in_type(least) && value <= in_type(high));
}

std::string SamplingParameter::expected() const {
  const std::string range = fmt::format("a number in [{:g}, {}]", least, high);
  return below < least ? fmt::format("{:g} or {}", below, range) : range;
}

void copy_to_row(const SamplingParams& params, RowSampling* row) {
  for (const SamplingParameter& parameter : kSamplingParameters) {
    const double number = parameter.of(params);
    if (const auto* to = std::get_if<float RowSampling::*>(&parameter.row_field))
      row->** to = static_cast<float>(number);
    else if (const auto* to_whole = std::get_if<uint32_t RowSampling::*>(&parameter.row_field))
      row->** to_whole = static_cast<uint32_t>(number);
  }
}

RowSampling plain_sampling(const SamplingParams& params) {
  RowSampling row;
  copy_to_row(params, &row);
  row.seed_lo = static_cast<uint32_t>(params.seed);
  row.seed_hi = static_cast<uint32_t>(params.seed >> 32);
  row.branch = params.branch;
  return row;
}

Status validate(const SamplingParams& params, uint32_t vocab_size) {
  for (const SamplingParameter& parameter : kSamplingParameters) {
    const double found = parameter.of(params);
    if (parameter.may_be(found)) continue;
    return make_error(ErrorCode::kInvalidArgument, "{}: expected {}, found {}", parameter.name, parameter.expected(),
                      static_cast<float>(found));
  }
  if (Status status = check_logit_bias(params, vocab_size); !status) return status;
  if (Status status = check_bad_words(params, vocab_size); !status) return status;
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
