#include "core/schedule/queue_limits.h"

#include <algorithm>
#include <cmath>

namespace llmrt {
namespace {

uint32_t retry_after_s(double ms) {
  return static_cast<uint32_t>(std::clamp(std::ceil(ms * 1e-3), 1.0, 600.0));
}

}  // namespace

// Until `num_tokens` of prompts in one lane are served, its own share of the rate supposed; 0 when no rate is known.
double QueueLimits::wait_ms(Lane lane, uint64_t num_tokens) const {
  const double rate = pace_.prompt_rate();
  if (rate <= 0) return 0;
  LaneFlags wants = {};
  for (const Lane other : kLanes) wants[static_cast<size_t>(other)] = waiting_.tokens(other) > 0;
  return static_cast<double>(num_tokens) / fairness_.prefill_rate(lane, wants, rate);
}

std::optional<Error> QueueLimits::holds_too_much(const Request& request, const QueueLoad& inbox) const {
  const QueueLoad waits = waiting_.load();
  const uint64_t num_branches = inbox.branches + waits.branches;
  if (num_branches == 0) return std::nullopt;
  const uint64_t bytes = inbox.bytes + waits.bytes, more_bytes = held_bytes(request);
  const auto too_much = [&](const char* what, uint64_t most, uint64_t found, uint64_t more) {
    Error error = make_error(ErrorCode::kOverloaded, "queue full: expected at most {} {} to wait, found {} and {} more",
                             most, what, found, more);
    // As if those that wait were alike.
    const Lane lane = lane_of(request.request_class);
    const double tokens = static_cast<double>(waiting_.tokens(lane));
    const double share = std::min(1.0, static_cast<double>(found + more - most) / static_cast<double>(found));
    error.retry_after_s = retry_after_s(wait_ms(lane, static_cast<uint64_t>(tokens * share)));
    return error;
  };
  if (num_branches + request.n > config_.queue_branches_max)
    return too_much("choices", config_.queue_branches_max, num_branches, request.n);
  if (bytes + more_bytes > config_.queue_bytes_max)
    return too_much("bytes of requests", config_.queue_bytes_max, bytes, more_bytes);
  return std::nullopt;
}

std::optional<Error> QueueLimits::queue_full(const Request& request, const QueueLoad& inbox) const {
  if (std::optional<Error> error = holds_too_much(request, inbox)) return error;
  const uint64_t num_prompt = request.prompt.size();
  const Lane lane = lane_of(request.request_class);
  const uint64_t in_lane = inbox.tokens + waiting_.tokens(lane);
  if (in_lane == 0) return std::nullopt;
  if (in_lane + num_prompt > config_.queue_tokens_max) {
    Error error =
        make_error(ErrorCode::kOverloaded, "queue full: expected at most {} tokens of class {}, found {} and {} more",
                   config_.queue_tokens_max, request_class_name(request.request_class), in_lane, num_prompt);
    error.retry_after_s = retry_after_s(wait_ms(lane, in_lane + num_prompt - config_.queue_tokens_max));
    return error;
  }
  if (config_.ttft_target_ms == 0 || lane > Lane::kAgent) return std::nullopt;
  const double ms = wait_ms(lane, in_lane + num_prompt);
  if (ms <= config_.ttft_target_ms) return std::nullopt;
  Error error = make_error(ErrorCode::kOverloaded,
                           "queue full: a first token within {:.0f} ms is wanted, {:.0f} ms are expected: {} tokens of "
                           "class {} wait, {} more would, {:.0f} a second are served",
                           config_.ttft_target_ms, ms, in_lane, request_class_name(request.request_class), num_prompt,
                           static_cast<double>(in_lane + num_prompt) / ms * 1e3);
  error.retry_after_s = retry_after_s(ms - config_.ttft_target_ms);
  return error;
}

std::optional<Error> QueueLimits::too_late(const Request& request, TimeNs now) const {
  if (request.deadline_ns == 0 || request.deadline_ns <= now) return std::nullopt;
  const Lane lane = lane_of(request.request_class);
  const double left_ms = static_cast<double>(request.deadline_ns - now) * 1e-6;
  uint64_t before = 0;
  for (const auto& [place, sequence] : waiting_.queue(lane)) {
    if (place.is_new && place.due_ns > request.deadline_ns) break;
    before += sequence->ticket.queued_tokens;
    const double ms = wait_ms(lane, before);
    if (ms <= left_ms) continue;
    Error error = make_error(ErrorCode::kOverloaded,
                             "deadline: it is in {:.0f} ms, and {} tokens that are due earlier take {:.0f} ms or more",
                             left_ms, before, ms);
    error.retry_after_s = retry_after_s(ms - left_ms);
    return error;
  }
  return std::nullopt;
}

}  // namespace llmrt
