// Drives an engine in process: requests of fixed length, and when each of their tokens came. One thread, the engine's.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "core/engine/engine.h"
#include "tools/llmrt_bench/serving/workload.h"

namespace llmrt::bench {

inline constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();

// Of one request. Times are the engine's: when the host had the step's result.
struct Answer {
  RequestId id = 0;
  TimeNs arrival_ns = 0;
  std::vector<TimeNs> times_ns;  // of its tokens
  uint32_t cached_tokens = 0;    // of its prompt, known at its end
  bool finished = false;
  std::optional<Error> error;

  // 0 before the first token.
  double ttft_ms() const { return times_ns.empty() ? 0 : ms_between(arrival_ns, times_ns.front()); }
  // Between tokens of which the later came in (from, to].
  std::vector<double> gaps_ms(TimeNs from = 0, TimeNs to = kNever) const;
};

class Drive {
 public:
  Drive(Engine* engine, const Clock* clock) : engine_(engine), clock_(clock) {}
  ~Drive() { (void)finish(); }
  Drive(const Drive&) = delete;
  Drive& operator=(const Drive&) = delete;

  // Temperature 1, ends only at `output_tokens`.
  Result<std::shared_ptr<const Answer>> submit(std::vector<int32_t> prompt, uint32_t output_tokens);
  // Ticks until `done`; false: `deadline_ns` came first. The error of a request is an error here.
  Result<bool> until(const std::function<bool()>& done, TimeNs deadline_ns = kNever);
  // The same until everything submitted has ended.
  Result<bool> until_finished(TimeNs deadline_ns = kNever);
  // Cancels what is left and waits for the device.
  Status finish();

  // Runs through the numbers of decoding rows from `num_rows` down to 1, so that what is compiled or recorded at first
  // use is there. Then nothing is left running.
  Status warm_up(uint32_t num_rows);

 private:
  class Sink;
  Engine* engine_;
  const Clock* clock_;
  std::vector<std::shared_ptr<Sink>> live_;  // not ended yet
  uint64_t num_submitted_ = 0;               // seeds of sampling and of warm-up prompts
};

// The value below which `share` of them lie; 0 of none.
double quantile(std::vector<double> values, double share);

// What the engine did between two readings.
struct StepCounts {
  uint64_t num_steps = 0, useful_tokens = 0, padded_tokens = 0, num_preemptions = 0;
  double mean_rows = 0;  // of a step
};
StepCounts steps_between(const EngineStats& before, const EngineStats& after);

}  // namespace llmrt::bench
