#include "core/request/request.h"

#include <cmath>
#include <utility>

#include "core/request/token_constraint.h"

namespace llmrt {
namespace {

Status validate_stop(const StopParams& stop, uint32_t vocab_size) {
  if (stop.strings.size() > kStopStringsMax) {
    return make_error(ErrorCode::kInvalidArgument, "stop: expected at most {} strings, found {}", kStopStringsMax,
                      stop.strings.size());
  }
  size_t bytes = 0;
  for (const std::string& string : stop.strings) {
    if (string.empty()) {
      return make_error(ErrorCode::kInvalidArgument, "stop: expected strings of at least 1 byte, found an empty one");
    }
    bytes += string.size();
  }
  if (bytes > kStopBytesMax) {
    return make_error(ErrorCode::kInvalidArgument, "stop: expected at most {} bytes in all strings, found {}",
                      kStopBytesMax, bytes);
  }
  if (stop.token_ids.size() > kStopTokensMax) {
    return make_error(ErrorCode::kInvalidArgument, "stop_token_ids: expected at most {} ids, found {}", kStopTokensMax,
                      stop.token_ids.size());
  }
  for (const int32_t token : stop.token_ids) {
    if (token < 0 || static_cast<uint32_t>(token) >= vocab_size) {
      return make_error(ErrorCode::kInvalidArgument, "stop_token_ids: expected ids in [0, {}), found {}", vocab_size,
                        token);
    }
  }
  return {};
}

Status not_with_beams(std::string_view name) {
  return make_error(ErrorCode::kUnsupported, "use_beam_search: not together with {}", name);
}

// Beams are ranked by the raw log-probabilities alone, and only an end token or the length ends one.
Status validate_beam(const Request& request, uint32_t vocab_size) {
  const SamplingParams& sampling = request.sampling;
  for (const SamplingParameter& parameter : kSamplingParameters) {
    if (parameter.is_neutral(sampling)) continue;
    if (parameter.stage == SamplingStage::kTemperature && sampling.temperature == 0) continue;
    return not_with_beams(parameter.stage == SamplingStage::kPenalties ? "penalties" : parameter.name);
  }
  const std::pair<bool, const char*> others[] = {
      {!sampling.logit_bias.empty(), "logit_bias"},
      {!sampling.bad_words.empty(), "bad_words"},
      {!request.processors.empty(), "logits processors"},
      {request.policy != nullptr, "a policy"},
      {request.constraint != nullptr, "a grammar"},
      {!request.begun.empty(), "an answer that has begun"},
      {sampling.processed_logprobs, "processed log-probabilities"},
      {sampling.tell_draws, "told draws"},
      {sampling.logprobs >= 0, "logprobs"},
      {request.min_tokens > 0, "min_tokens"},
      {request.max_tokens == 0, "max_tokens = 0"},
      {!request.stop.strings.empty(), "stop"},
      {!request.stop.token_ids.empty(), "stop_token_ids"},
  };
  for (const auto& [is_there, name] : others) {
    if (is_there) return not_with_beams(name);
  }
  if (vocab_size < kBeamCandidatesMax) {
    return make_error(ErrorCode::kUnsupported, "use_beam_search: expected a vocabulary of at least {} tokens, found {}",
                      kBeamCandidatesMax, vocab_size);
  }
  if (std::abs(request.beam->length_penalty) <= 10) return {};
  return make_error(ErrorCode::kInvalidArgument, "length_penalty: expected a number in [-10, 10], found {}",
                    request.beam->length_penalty);
}

}  // namespace

const char* finish_reason_name(FinishReason reason) {
  constexpr const char* kNames[] = {"none",    "eos",   "stop_token", "stop_string", "length",       "cancelled",
                                    "timeout", "error", "policy",     "grammar_end", "disconnected", "handed_over"};
  return kNames[static_cast<int>(reason)];
}

uint64_t held_bytes(const Request& request) {
  const SamplingParams& sampling = request.sampling;
  uint64_t bytes = kBranchBytes * request.n;
  bytes += (request.prompt.capacity() + request.begun.capacity()) * sizeof(int32_t);
  bytes += request.names.answer.capacity() + request.names.http.capacity() + request.names.trace_id.capacity();
  bytes += request.cache_salt.capacity();
  bytes += sampling.logit_bias.held_bytes() + sampling.bad_words.held_bytes();
  for (const std::vector<int32_t>& word : sampling.bad_words) bytes += 16 + word.capacity() * sizeof(int32_t);
  bytes += request.stop.strings.held_bytes() + request.stop.token_ids.held_bytes();
  if (request.speculation && request.speculation->source) bytes += request.speculation->source->held_bytes();
  return bytes;
}

Status validate(const Request& request, uint32_t vocab_size) {
  if (request.prompt.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "prompt: expected at least 1 token, found 0");
  }
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    const int32_t token = request.prompt[i];
    if (token < 0 || static_cast<uint32_t>(token) >= vocab_size) {
      return make_error(ErrorCode::kInvalidArgument, "prompt: token {}: expected an id in [0, {}), found {}", i,
                        vocab_size, token);
    }
  }
  for (const int32_t token : request.begun) {
    if (token >= 0 && static_cast<uint32_t>(token) < vocab_size) continue;
    return make_error(ErrorCode::kInvalidArgument, "begun: expected token ids in [0, {}), found {}", vocab_size, token);
  }
  if (!request.begun.empty() && (request.n != 1 || request.begun.size() >= request.max_tokens)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "begun: expected fewer tokens than max_tokens = {} and n = 1, found {} and n = {}",
                      request.max_tokens, request.begun.size(), request.n);
  }
  if (request.speculation && (request.speculation->tokens_max < 1 || request.speculation->tokens_max > kDraftTokensMax))
    return make_error(ErrorCode::kInvalidArgument, "draft_tokens: expected 1 to {}, found {}", kDraftTokensMax,
                      request.speculation->tokens_max);
  if (request.n < 1 || request.n > kBranchesMax) {
    return make_error(ErrorCode::kInvalidArgument, "n: expected 1 to {}, found {}", kBranchesMax, request.n);
  }
  if (request.min_tokens > request.max_tokens) {
    return make_error(ErrorCode::kInvalidArgument, "min_tokens: expected at most max_tokens = {}, found {}",
                      request.max_tokens, request.min_tokens);
  }
  if (request.cache_salt.size() > kCacheSaltBytesMax) {
    return make_error(ErrorCode::kInvalidArgument, "cache_salt: expected at most {} bytes, found {}",
                      kCacheSaltBytesMax, request.cache_salt.size());
  }
  if (Status status = validate_stop(request.stop, vocab_size); !status) return status;
  if (request.constraint && request.constraint->decides_end() && (request.min_tokens > 0 || request.stop.ignore_eos)) {
    return make_error(ErrorCode::kUnsupported, "{}: not together with a grammar, which says where the answer may end",
                      request.min_tokens > 0 ? "min_tokens" : "ignore_eos");
  }
  if (request.beam) {
    if (Status status = validate_beam(request, vocab_size); !status) return status;
  }
  return validate(request.sampling, vocab_size);
}

}  // namespace llmrt
