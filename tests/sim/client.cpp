#include "tests/sim/client.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/checked_math.h"

namespace llmrt::test {
namespace {

template <typename T>
bool is_prefix(const T& part, const T& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

}  // namespace

// What the answer has begun with is as if it had been told.
void Client::begin() {
  got.tokens = plan->request.begun;
  for (const int32_t token : got.tokens) got.text += tokenizer->token_bytes(token);
  got.logprobs.assign(alone.logprobs.begin(), alone.logprobs.begin() + static_cast<ptrdiff_t>(std::min(
                                                                           got.tokens.size(), alone.logprobs.size())));
}

void Client::on_event(const TokenEvent& event) {
  if (event.request_id != id) wrong = fmt::format("an event of request {}", event.request_id);
  if (wrong.empty()) take(event);
  if (++num_events == static_cast<uint64_t>(plan->cancel_after_events)) cancel();
}

void Client::take(const TokenEvent& event) {
  if (ended()) {
    wrong = "an event after the end";
    return;
  }
  got.finish = event.finish;
  cached_tokens = event.cached_tokens;
  error = event.error;
  if (event.is_prompt) {
    take_prompt_token(event);
    return;
  }
  if (event.token < 0) {
    if (event.finish == FinishReason::kNone) wrong = "an event that says nothing";
    return;
  }
  got.tokens.push_back(event.token);
  if (is_paused && got.tokens.size() > tokens_at_pause + kTokensWhilePausedMax)
    wrong = "it is paused, and tokens still come";
  got.text += tokenizer->token_bytes(event.token);
  if (event.has_logprob) got.logprobs.push_back(event.logprob);
  if (event.draw.has_value() != plan->request.sampling.tell_draws)
    wrong = "a draw that is told, or is not, against the request";
  if (event.hold_bytes > got.text.size() || event.cut_bytes > got.text.size()) {
    wrong = "more bytes held or cut than there are";
    return;
  }
  got.text.erase(got.text.size() - event.cut_bytes);
  const std::string shown = got.text.substr(0, got.text.size() - event.hold_bytes);
  if (!is_prefix(got.tokens, alone.tokens)) {
    wrong = fmt::format("token {} is {}, alone it is {}", got.tokens.size() - 1, event.token,
                        got.tokens.size() <= alone.tokens.size() ? alone.tokens[got.tokens.size() - 1] : -1);
  } else if (!is_prefix(shown, alone.text)) {
    wrong = fmt::format("shown text '{}', alone it is '{}'", shown, alone.text);
  }
}

void Client::take_prompt_token(const TokenEvent& event) {
  const std::vector<int32_t>& prompt = plan->request.prompt;
  if (num_prompt_events >= prompt.size() || event.token != prompt[num_prompt_events]) {
    wrong = fmt::format("prompt token {} is not its own", num_prompt_events);
  } else if (event.has_logprob != (num_prompt_events > 0)) {
    wrong = "each prompt token but the first has a log-probability";
  }
  ++num_prompt_events;
  if (event.has_logprob) got.prompt_logprobs.push_back(event.logprob);
  if (!is_prefix(got.prompt_logprobs, alone.prompt_logprobs)) wrong = "a prompt log-probability differs from alone";
}

std::string Client::check_error(const MemoryPlan& pool) const {
  switch (error->code) {
    case ErrorCode::kNotFinite:
    case ErrorCode::kEmptySupport:
    case ErrorCode::kGrammarTooComplex:
      return alone.finish == FinishReason::kError && got.tokens == alone.tokens
                 ? ""
                 : "a token could not be drawn, alone it can";
    case ErrorCode::kPoolExhausted: {
      const size_t num_output = plan->request.beam ? plan->request.max_tokens : got.tokens.size();
      const uint32_t positions = static_cast<uint32_t>(plan->request.prompt.size() + num_output);
      return ceil_div(positions, pool.block_tokens) > pool.num_blocks ? "" : "exhausted a pool that could hold it";
    }
    case ErrorCode::kOverloaded:
      return got.tokens.size() == plan->request.begun.size() ? "" : "overloaded after it ran";
    case ErrorCode::kDeviceLost:
      return "";
    default:
      return fmt::format("ended with {}", error->message);
  }
}

std::string Client::check_end(TimeNs now, const MemoryPlan& pool) const {
  switch (got.finish) {
    case FinishReason::kCancelled:
      return cancelled && !plan->disconnects ? "" : "ended as cancelled, and nobody had";
    case FinishReason::kDisconnected:
      return cancelled && plan->disconnects ? "" : "ended as disconnected, and nobody had left";
    case FinishReason::kTimeout: {
      if (!error || error->code != ErrorCode::kTimeout) return "timed out without being told which limit it passed";
      const bool in_queue = got.tokens.size() == plan->request.begun.size() && start_by_ns != 0 && start_by_ns <= now;
      return in_queue || (deadline_ns != 0 && deadline_ns <= now) ? "" : "timed out before its deadline";
    }
    case FinishReason::kError:
      return error ? check_error(pool) : "ended with an error that is not there";
    default:
      break;
  }
  if (error) return "an error beside another finish";
  if (got.finish != alone.finish) {
    return fmt::format("ended by {}, alone by {}", finish_reason_name(got.finish), finish_reason_name(alone.finish));
  }
  if (got.tokens != alone.tokens) return "fewer tokens than alone";
  if (got.text != alone.text) return fmt::format("text '{}', alone '{}'", got.text, alone.text);
  if (got.logprobs != alone.logprobs) return "log-probabilities differ from alone";
  if (got.prompt_logprobs != alone.prompt_logprobs) return "prompt log-probabilities differ from alone";
  return "";
}

std::string check_refusal(const Engine& engine, bool is_lost, const Client& client, const Error& error) {
  const EngineConfig& config = engine.config();
  const Request& request = client.plan->request;
  const size_t num_tokens = request.prompt.size() + request.max_tokens;
  switch (error.code) {
    case ErrorCode::kContextLength:
      return num_tokens > config.context_max ? "" : "refused though the context holds it";
    case ErrorCode::kNeverFits: {
      const size_t output = reserves_all(config.on_exhaustion) ? request.max_tokens : config.reserve_output_tokens;
      const size_t reserved = std::min(request.prompt.size() + request.begun.size() + output, num_tokens - 1);
      const MemoryPlan& pool = engine.memory_plan();
      return ceil_div<size_t>(reserved, pool.block_tokens) > pool.num_blocks ? "" : "refused though it fits";
    }
    case ErrorCode::kUnsupported:
      return "unsupported, and why?";
    case ErrorCode::kOverloaded:
      return config.queue_tokens_max < 1000 || config.queue_branches_max < 1000 ||
                     config.queue_bytes_max < 1000 * kBranchBytes || config.ttft_target_ms > 0
                 ? ""
                 : "overloaded with an endless queue";
    case ErrorCode::kDeviceLost:
      return is_lost ? "" : "the device is there";
    default:
      return error.message;
  }
}

// When a request begins, the cache holds only what other requests with its salt and its adapter, as far as it counts,
// have asked or got.
std::string check_cached(const Engine& engine, const Client& client, std::span<const std::unique_ptr<Client>> others) {
  if (client.cached_tokens == 0) return "";
  const Request& own = client.plan->request;
  if (engine.config().prefix_cache == PrefixCacheKind::kOff) return "cached tokens without a cache";
  if (own.sampling.prompt_logprobs && own.prompt.size() > 1) return "prompt tokens that are scored were not computed";
  std::vector<int32_t> wanted = own.prompt;
  wanted.insert(wanted.end(), own.begun.begin(), own.begun.end());
  if (client.cached_tokens >= wanted.size()) return "no token of the prompt was computed";
  if (own.cache_salt.empty() && client.cached_tokens % engine.memory_plan().block_tokens != 0)
    return fmt::format("{} tokens cached without a salt: a part of a block", client.cached_tokens);
  size_t known = 0;
  for (const auto& other : others) {
    const Request& theirs = other->plan->request;
    if (other.get() == &client || !other->arrived || theirs.cache_salt != own.cache_salt) continue;
    const bool same_adapter = theirs.adapter_id == own.adapter_id && theirs.adapter_start == own.adapter_start;
    const auto start_of = [](const Request& r) { return r.adapter_id == 0 ? SIZE_MAX : r.adapter_start.value_or(0); };
    const size_t same_until = same_adapter ? SIZE_MAX : std::min<size_t>(start_of(own), start_of(theirs));
    std::vector<int32_t> text = theirs.prompt;
    text.insert(text.end(), other->alone.tokens.begin(), other->alone.tokens.end());
    size_t common = static_cast<size_t>(std::ranges::mismatch(wanted, text).in1 - wanted.begin());
    if (theirs.beam && common >= theirs.prompt.size()) common += theirs.max_tokens;  // beams that are not its answer
    known = std::max(known, std::min(common, same_until));
  }
  return client.cached_tokens <= known ? ""
                                       : fmt::format("{} tokens cached, others know {}", client.cached_tokens, known);
}

std::string check_record(const RequestTrace& record, const Client& client) {
  if (record.finish != client.got.finish)
    return fmt::format("its record ends by {}", finish_reason_name(record.finish));
  if (record.prompt_tokens != client.plan->request.prompt.size()) return "its record has another prompt";
  if (record.output_tokens != client.got.tokens.size())
    return fmt::format("{} tokens, its record says {}", client.got.tokens.size(), record.output_tokens);
  for (const auto& ms : {record.queue_ms, record.prefill_ms, record.decode_ms, record.ttft_ms, record.tpot_ms})
    if (ms && *ms < 0) return "its record has a time below 0";
  if ((record.kv_blocks_peak > 0) != (record.reserved_kv_tokens > 0)) return "its record ran without blocks";
  return "";
}

}  // namespace llmrt::test
