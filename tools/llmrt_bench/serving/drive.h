// Drives an engine in process: requests of fixed length, and when each of their tokens came. One thread, the engine's.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/engine/engine.h"
#include "tools/llmrt_bench/serving/workload.h"

namespace llmrt::bench {

// What one request got. Times are the engine's: when the host had the step's result.
struct Answer {
  RequestId id = 0;
  TimeNs arrival_ns = 0;
  std::vector<TimeNs> times_ns;  // of its tokens
  std::vector<int32_t> tokens;
  uint32_t cached_tokens = 0;  // of its prompt, known at its end
  bool finished = false;
  FinishReason finish = FinishReason::kNone;
  std::optional<Error> error;

  // 0 before the first token.
  double ttft_ms() const { return times_ns.empty() ? 0 : ms_between(arrival_ns, times_ns.front()); }
  // Between tokens of which the later came in (from, to].
  std::vector<double> gaps_ms(TimeNs from = 0, TimeNs to = kNever) const;
};

// What the engine did between two readings.
struct StepCounts {
  uint64_t num_steps = 0, useful_tokens = 0, padded_tokens = 0, num_preemptions = 0, cached_tokens = 0;
  double mean_rows = 0, mean_ms = 0;  // of a step; on the device
};
StepCounts steps_between(const EngineStats& before, const EngineStats& after);

// What requests took that were submitted at once.
struct Run {
  double seconds = 0;
  uint64_t tokens = 0;
  size_t num_finished = 0;
  bool is_cut = false;  // by the deadline
  StepCounts steps;

  double tok_s() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

// Submits what is due now and says when the next request comes; kNever: no more do.
using Arrivals = std::function<Result<TimeNs>(TimeNs now)>;

// What the error of a request is: an error of until(), or kept in its Answer while the others go on.
enum class RequestErrors { kEnd, kKeep };

class Drive {
 public:
  Drive(Engine* engine, const Clock* clock, RequestErrors errors = RequestErrors::kEnd)
      : engine_(engine), clock_(clock), errors_(errors) {}
  ~Drive() { (void)finish(); }
  Drive(const Drive&) = delete;
  Drive& operator=(const Drive&) = delete;

  // Temperature 1, ends only at `output_tokens`. `arrival_ns`: 0 = now; a time that has passed while a step ran.
  Result<std::shared_ptr<const Answer>> submit(std::vector<int32_t> prompt, uint32_t output_tokens,
                                               RequestClass request_class = RequestClass::kInteractive,
                                               TimeNs arrival_ns = 0);
  // As it stands; only its sink and, where it has none, its arrival are set.
  Result<std::shared_ptr<const Answer>> submit(Request request);
  // Ticks until `done`; false: `deadline_ns` came first.
  Result<bool> until(const std::function<bool()>& done, TimeNs deadline_ns = kNever);
  // The same with requests that come meanwhile. `wait_until` sleeps while there are none.
  Result<bool> until(const std::function<bool()>& done, TimeNs deadline_ns, const Arrivals& arrivals,
                     const std::function<void(TimeNs)>& wait_until);
  // The same until everything submitted has ended.
  Result<bool> until_finished(TimeNs deadline_ns = kNever);
  // Submits all of them, runs until they have ended or the deadline, and finishes. `answers` may be null.
  Result<Run> run(std::span<const WorkItem> items, TimeNs deadline_ns,
                  std::vector<std::shared_ptr<const Answer>>* answers = nullptr);
  // Cancels what is left and waits for the device.
  Status finish();

  // Runs through the numbers of decoding rows from `num_rows` down to 1, so that what is compiled or recorded at first
  // use is there. Then nothing is left running.
  Status warm_up(uint32_t num_rows);

 private:
  class Sink;
  // Where the engine has nothing to do as all rows wait for masks of their grammars: sleeps as long as Engine::run
  // does. False: no row has a grammar.
  Result<bool> wait_for_masks();
  // False: the engine had nothing to do. Requests come at `until`.
  Result<bool> tick(TimeNs until);

  Engine* engine_;
  const Clock* clock_;
  RequestErrors errors_;
  std::vector<std::shared_ptr<Sink>> live_;  // not ended yet
  uint32_t num_waits_ = 0;                   // for masks, since the engine last had something to do
  uint64_t num_submitted_ = 0;               // seeds of sampling and of warm-up prompts
};

// The value below which `share` of them lie; 0 of none.
double quantile(std::vector<double> values, double share);

}  // namespace llmrt::bench
