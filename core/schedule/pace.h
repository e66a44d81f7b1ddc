// How much of prompts a step may hold, and when the step behind it is best planned: what the cost model, the rates of
// prompts and the objectives say.
//
// Owns the cost model, the service rate and what they have learnt; knows no sequence. No errors. The engine's thread,
// except prompt_rate().
#pragma once

#include <atomic>
#include <cstdint>

#include "core/base/clock.h"
#include "core/request/request_class.h"
#include "core/schedule/cost_model.h"
#include "core/schedule/prompt_demand.h"
#include "core/schedule/scheduler_config.h"
#include "core/schedule/service_rate.h"

namespace llmrt {

// The step that is being made, when the rows that decode have taken their tokens.
struct StepSoFar {
  StepWork work;               // of these rows
  bool others_decode = false;  // a row decodes, in this step or left out of it
  uint64_t depth = 0;          // where the first chunk begins
  // Prompts that wait for their first token, in the queue or while they are computed; of the lanes whose rows decode
  // and of those above (Steps).
  uint64_t waiting_tokens = 0;
  TimeNs waits_since_ns = 0;  // the oldest of them; 0 = none
};

class Pace {
 public:
  // `config` outlives it.
  explicit Pace(const SchedulerConfig& config) : config_(config), cost_(config.cost_prior) {}

  // Prompt tokens for the step, of all rows together, at most `tokens_left`. Beside rows that decode: chunk_tokens; or
  // what tpot_target_ms allows; or with chunks_by_need more than chunk_tokens where prompts come faster than such
  // chunks serve them, or would wait beyond Slo::ttft_ms, as far as a step then stays within Slo::tpot_ms.
  uint32_t chunk_tokens(const StepSoFar& step, uint32_t tokens_left, TimeNs now) const;
  // Whether a prompt is computed to its end, `rest` tokens, beyond the chunk: what is left would take a step of its
  // own, which rows of batch and background (`has_patient_rows`) make long.
  bool ends_prompt(Lane lane, uint32_t rest, uint32_t chunk_tokens, uint32_t tokens_left, bool has_patient_rows) const;
  // Whether a prompt of which `rest` tokens are to be computed is one that ends_prompt() is for, in a step that has its
  // whole chunk.
  bool is_long_end(uint64_t rest, bool has_patient_rows) const;

  // A request has come in this lane.
  void note_asked(Lane lane, TimeNs now);
  // So long after a step begins the next one is best planned; 0 = at once.
  double plan_after_ms(const StepWork& work, bool has_patient_rows, TimeNs now) const;

  // Prompt tokens that are computed in the step that is being made.
  void note_computed(uint64_t prompt_tokens) { prompt_tokens_computed_ += prompt_tokens; }
  // Prompt tokens that a cache spares.
  void note_spared(uint64_t prompt_tokens) { prompt_tokens_spared_ += prompt_tokens; }
  // A step was committed; `some_wait` now.
  void observe(const StepWork& work, const StepTimes& times, bool some_wait, TimeNs now);
  // Nothing runs, waits or is in flight.
  void rest() { service_.rest(); }

  // Prompt tokens a millisecond, those that caches spare included; 0 = not known. Thread-safe.
  double prompt_rate() const { return prompt_rate_.load(std::memory_order_relaxed); }
  const CostModel& cost() const { return cost_; }

 private:
  uint32_t chunk_by_need(const StepSoFar& step, uint32_t usual, uint32_t tokens_left, TimeNs now) const;

  const SchedulerConfig& config_;
  CostModel cost_;
  ServiceRate service_;
  PromptDemand demand_;
  uint64_t prompt_tokens_computed_ = 0, prompt_tokens_spared_ = 0;  // since the last commit
  TimeNs asked_until_ns_ = 0;  // until then an interactive or agent request came lately
  std::atomic<double> prompt_rate_ = 0;
};

}  // namespace llmrt
