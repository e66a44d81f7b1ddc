#include "core/schedule/pace.h"

#include <algorithm>

#include "core/schedule/step_sizes.h"

namespace llmrt {
namespace {

constexpr TimeNs kLatelyNs = 60'000'000'000;  // a client that has asked may ask again
constexpr uint32_t kChunkMin = 32;            // so that prompts get on whatever the target
// Steps beside which nothing decodes are at least so many times as long as one of a single token, whatever the limit:
// or a device that is slow to read its weights would do little else for a prompt.
constexpr double kIdleShareMin = 2;
// Of a step's predicted time, until the next is planned: predictions are off by some percent, and the host takes its
// time, too. Later, and the device waits where a step is over sooner.
constexpr double kNearlyOver = 0.9;
// Chunks by need: prompts come in bunches, so a rate that is this near to what chunks serve makes a queue already.
constexpr double kServiceShareMax = 0.7;
// Prompts that are late are to be served at once.
constexpr double kLeftMsMin = 1;

// A chunk of about so many tokens that with `others` makes a whole size: the few tokens that begin the next size cost
// as much as all of it.
uint32_t whole_chunk(uint32_t chunk, uint32_t others) {
  const uint32_t size = step_size_within(chunk + others);
  return size >= others + chunk - chunk / 4 ? size - others : chunk;
}

// A prompt with at most so many tokens left is computed to its end: one step instead of up to three.
uint32_t end_tokens_max(uint32_t chunk) {
  return chunk * 2 + chunk / 2;
}

}  // namespace

// The smallest chunk that is large enough, in sizes that steps have. Larger ones serve prompts faster, since what a
// step takes whatever its size is spent less often.
uint32_t Pace::chunk_by_need(const StepSoFar& step, uint32_t usual, uint32_t tokens_left, TimeNs now) const {
  const auto others = static_cast<uint32_t>(step.work.tokens);
  const double waited_ms = step.waits_since_ns > 0 ? static_cast<double>(now - step.waits_since_ns) * 1e-6 : 0;
  const double left_ms = std::max(config_.slo.ttft_ms - waited_ms, kLeftMsMin);
  const double wanted =
      std::max(demand_.tokens_per_ms(now) / kServiceShareMax, static_cast<double>(step.waiting_tokens) / left_ms);
  uint32_t chunk = usual;
  while (chunk < tokens_left) {
    if (chunk / cost_.step_ms(with_chunk(step.work, step.depth, chunk)) >= wanted) break;
    chunk = std::min(step_size_from(others + chunk + 1) - others, tokens_left);
  }
  if (chunk == usual) return usual;
  return std::max(usual, std::min(chunk, cost_.chunk_within(config_.slo.tpot_ms, step.work, step.depth, tokens_left)));
}

uint32_t Pace::chunk_tokens(const StepSoFar& step, uint32_t tokens_left, TimeNs now) const {
  const auto others = static_cast<uint32_t>(step.work.tokens);
  const uint32_t usual =
      step.others_decode ? std::min(whole_chunk(config_.chunk_tokens, others), tokens_left) : tokens_left;
  double limit_ms = step.others_decode ? config_.tpot_target_ms : config_.idle_step_ms;
  const bool by_need = step.others_decode && config_.chunks_by_need && limit_ms == 0;
  if ((limit_ms == 0 && !by_need) || !cost_.knows_steps()) return usual;
  if (by_need) return chunk_by_need(step, usual, tokens_left, now);
  if (!step.others_decode) limit_ms = std::max(limit_ms, kIdleShareMin * cost_.step_ms({.tokens = 1}));
  const uint32_t within = cost_.chunk_within(limit_ms, step.work, step.depth, tokens_left);
  return std::max(whole_chunk(within, others), std::min(kChunkMin, tokens_left));
}

bool Pace::ends_prompt(Lane lane, uint32_t rest, uint32_t chunk_tokens, uint32_t tokens_left,
                       bool has_patient_rows) const {
  if (lane > Lane::kAgent || config_.tpot_target_ms > 0 || !has_patient_rows) return false;
  return rest <= std::min(end_tokens_max(chunk_tokens), tokens_left);
}

bool Pace::is_long_end(uint64_t rest, bool has_patient_rows) const {
  if (config_.tpot_target_ms > 0 || !has_patient_rows) return false;
  return rest > config_.chunk_tokens && rest <= end_tokens_max(config_.chunk_tokens);
}

void Pace::note_asked(Lane lane, TimeNs now) {
  if (lane <= Lane::kAgent) asked_until_ns_ = now + kLatelyNs;
}

// Only worth it if an interactive or agent request came within the last minute.
double Pace::plan_after_ms(const StepWork& work, bool has_patient_rows, TimeNs now) const {
  if (now >= asked_until_ns_ || !has_patient_rows || !cost_.knows_steps()) return 0;
  return kNearlyOver * cost_.step_ms(work);
}

void Pace::observe(const StepWork& work, const StepTimes& times, bool some_wait, TimeNs now) {
  cost_.observe(work, times);
  service_.observe(prompt_tokens_computed_ + prompt_tokens_spared_, some_wait, now);
  demand_.add(prompt_tokens_computed_, now);
  prompt_tokens_computed_ = prompt_tokens_spared_ = 0;
  double rate = service_.tokens_per_ms();
  if (rate == 0 && cost_.knows_steps()) rate = cost_.prefill_rate(config_.step_tokens_max);
  prompt_rate_.store(rate, std::memory_order_relaxed);
}

}  // namespace llmrt
