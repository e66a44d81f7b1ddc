// What the cost model says about a step that is to be made, and about the queue: how much of prompts a step may hold,
// and how many tokens may wait.
#include <algorithm>
#include <cmath>

#include "core/schedule/scheduler_impl.h"
#include "core/schedule/step_sizes.h"

namespace llmrt {
namespace {

constexpr uint32_t kChunkMin = 32;  // so that prompts get on whatever the target
// Steps beside which nobody decodes are at least so many times as long as one of a single token, whatever the limit: or
// a device that is slow to read its weights would do little else for a prompt.
constexpr double kIdleShareMin = 2;
// Of a step's predicted time, until the next is planned: predictions are off by some percent, and the host takes its
// time, too. Later, and the device waits where a step is over sooner.
constexpr double kNearlyOver = 0.9;

// A chunk of about so many tokens that with `others` makes a whole size: the few tokens that begin the next size cost
// as much as all of it.
uint32_t whole_chunk(uint32_t chunk, uint32_t others) {
  const uint32_t size = step_size_within(chunk + others);
  return size >= others + chunk - chunk / 4 ? size - others : chunk;
}

// Of a prompt that is computed to its end where a chunk has so many: one step instead of up to three.
uint32_t end_tokens_max(uint32_t chunk) {
  return chunk * 2 + chunk / 2;
}

uint32_t retry_after_s(double ms) {
  return static_cast<uint32_t>(std::clamp(std::ceil(ms * 1e-3), 1.0, 600.0));
}

}  // namespace

// Rows that decode have taken their tokens already.
uint32_t Scheduler::Impl::chunk_tokens(const StepBudget& budget) const {
  StepWork work;
  uint64_t depth = 0;
  bool others_decode = false;
  for (const Sequence* sequence : running) {
    if (sequence->take.tokens > 0) {
      work.tokens += sequence->take.tokens;
      work.decode_keys += uint64_t{sequence->progress.computed} + sequence->take.tokens;
      others_decode |= sequence->gap() == 1;
    } else if (sequence->waits_for_token() || sequence->gap() == 1) {  // or it is left out
      others_decode = true;
    } else if (depth == 0) {
      depth = sequence->progress.computed;
    }
  }
  const auto others = static_cast<uint32_t>(work.tokens);
  const uint32_t usual =
      others_decode ? std::min(whole_chunk(config.chunk_tokens, others), budget.tokens) : budget.tokens;
  double limit_ms = others_decode ? config.tpot_target_ms : config.idle_step_ms;
  if (limit_ms == 0 || !cost.knows_steps()) return usual;
  if (!others_decode) limit_ms = std::max(limit_ms, kIdleShareMin * cost.step_ms({.tokens = 1}));
  const uint32_t within = cost.chunk_within(limit_ms, work, depth, budget.tokens);
  return std::max(whole_chunk(within, others), std::min(kChunkMin, budget.tokens));
}

// Of requests that nobody waits for.
bool Scheduler::Impl::has_patient_rows() const {
  return running.size() >
         num_rows[static_cast<size_t>(Lane::kInteractive)] + num_rows[static_cast<size_t>(Lane::kAgent)];
}

// Whether a prompt that somebody waits for is computed to its end, beyond the chunk: what is left would take a step of
// its own, which others' rows make long.
bool Scheduler::Impl::ends_prompt(const Sequence& sequence, const StepBudget& budget) const {
  if (sequence.lane() > Lane::kAgent || config.tpot_target_ms > 0 || !has_patient_rows()) return false;
  return sequence.gap() - sequence.take.tokens <= std::min(end_tokens_max(budget.chunk_tokens), budget.tokens);
}

// Whether the next step is likely to do so: for one who has just come or runs while nobody else of his lane waits. Who
// has found no room does not know when there will be some, and where several wait it is the queue that they wait for.
bool Scheduler::Impl::awaits_long_prompt() const {
  if (config.tpot_target_ms > 0 || !has_patient_rows()) return false;
  const auto is_long = [this](uint64_t rest) {
    return rest > config.chunk_tokens && rest <= end_tokens_max(config.chunk_tokens);
  };
  for (const Lane lane : {Lane::kInteractive, Lane::kAgent}) {
    const Waiting::Queue& queue = waiting.queue(lane);
    const Sequence* first = queue.empty() ? nullptr : queue.begin()->second;
    if (queue.size() > 1 || (first != nullptr && first->ticket.tried_in != 0)) continue;
    if (first != nullptr && is_long(first->num_known())) return true;
    for (const Sequence* sequence : running)
      if (sequence->lane() == lane && is_long(sequence->gap())) return true;
  }
  return false;
}

// Where nobody who waits has come lately nothing is won by it.
double Scheduler::Impl::plan_after_ms(const StepWork& work, TimeNs now) const {
  if (now >= asked_until_ns || !has_patient_rows() || !cost.knows_steps()) return 0;
  return kNearlyOver * cost.step_ms(work);
}

void Scheduler::Impl::observe(const StepWork& work, const StepTimes& times, TimeNs now) {
  cost.observe(work, times);
  service.observe(prompt_tokens_served, waiting.size() > 0, now);
  prompt_tokens_served = 0;
  double rate = service.tokens_per_ms();
  if (rate == 0 && cost.knows_steps()) rate = cost.prefill_rate(config.step_tokens_max);
  prompt_rate.store(rate, std::memory_order_relaxed);
}

// Until `num_tokens` of prompts in one lane are served, its own share of the rate supposed; 0 when no rate is known.
double Scheduler::Impl::wait_ms(Lane lane, uint64_t num_tokens) const {
  const double rate = prompt_rate.load(std::memory_order_relaxed);
  if (rate <= 0) return 0;
  LaneFlags wants = {};
  for (const Lane other : kLanes) wants[static_cast<size_t>(other)] = waiting.tokens(other) > 0;
  return static_cast<double>(num_tokens) / fairness.prefill_rate(lane, wants, rate);
}

std::optional<Error> Scheduler::Impl::holds_too_much(const Request& request, const QueueLoad& inbox) const {
  const QueueLoad waits = waiting.load();
  const uint64_t num_branches = inbox.branches + waits.branches;
  if (num_branches == 0) return std::nullopt;
  const uint64_t bytes = inbox.bytes + waits.bytes, more_bytes = held_bytes(request);
  const auto too_much = [&](const char* what, uint64_t most, uint64_t found, uint64_t more) {
    Error error = make_error(ErrorCode::kOverloaded, "queue full: expected at most {} {} to wait, found {} and {} more",
                             most, what, found, more);
    // As if those that wait were alike.
    const Lane lane = lane_of(request.request_class);
    const double tokens = static_cast<double>(waiting.tokens(lane));
    const double share = std::min(1.0, static_cast<double>(found + more - most) / static_cast<double>(found));
    error.retry_after_s = retry_after_s(wait_ms(lane, static_cast<uint64_t>(tokens * share)));
    return error;
  };
  if (num_branches + request.n > config.queue_branches_max)
    return too_much("choices", config.queue_branches_max, num_branches, request.n);
  if (bytes + more_bytes > config.queue_bytes_max)
    return too_much("bytes of requests", config.queue_bytes_max, bytes, more_bytes);
  return std::nullopt;
}

std::optional<Error> Scheduler::Impl::queue_full(const Request& request, const QueueLoad& inbox) const {
  if (std::optional<Error> error = holds_too_much(request, inbox)) return error;
  const uint64_t num_prompt = request.prompt.size();
  const Lane lane = lane_of(request.request_class);
  const uint64_t in_lane = inbox.tokens + waiting.tokens(lane);
  if (in_lane == 0) return std::nullopt;
  if (in_lane + num_prompt > config.queue_tokens_max) {
    Error error =
        make_error(ErrorCode::kOverloaded, "queue full: expected at most {} tokens of class {}, found {} and {} more",
                   config.queue_tokens_max, request_class_name(request.request_class), in_lane, num_prompt);
    error.retry_after_s = retry_after_s(wait_ms(lane, in_lane + num_prompt - config.queue_tokens_max));
    return error;
  }
  if (config.ttft_target_ms == 0 || lane > Lane::kAgent) return std::nullopt;
  const double ms = wait_ms(lane, in_lane + num_prompt);
  if (ms <= config.ttft_target_ms) return std::nullopt;
  Error error = make_error(ErrorCode::kOverloaded,
                           "queue full: a first token within {:.0f} ms is wanted, {:.0f} ms are expected: {} tokens of "
                           "class {} wait, {} more would, {:.0f} a second are served",
                           config.ttft_target_ms, ms, in_lane, request_class_name(request.request_class), num_prompt,
                           static_cast<double>(in_lane + num_prompt) / ms * 1e3);
  error.retry_after_s = retry_after_s(ms - config.ttft_target_ms);
  return error;
}

// Of those that are due before it, as many as its deadline leaves time for.
std::optional<Error> Scheduler::Impl::too_late(const Request& request, TimeNs now) const {
  if (request.deadline_ns == 0 || request.deadline_ns <= now) return std::nullopt;
  const Lane lane = lane_of(request.request_class);
  const double left_ms = static_cast<double>(request.deadline_ns - now) * 1e-6;
  uint64_t before = 0;
  for (const auto& [place, sequence] : waiting.queue(lane)) {
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
