// Which requests may not join those that wait: the queue is full, or the wait would be too long for them.
//
// Owns nothing; reads the sums of what waits, the rate at which prompts are served and the lanes' shares of it. Errors:
// overloaded, with the numbers and when to try again. queue_full() is thread-safe; too_late() is the engine's thread's.
#pragma once

#include <optional>

#include "core/base/status.h"
#include "core/schedule/fairness.h"
#include "core/schedule/pace.h"
#include "core/schedule/queue_load.h"
#include "core/schedule/waiting.h"

namespace llmrt {

class QueueLimits {
 public:
  QueueLimits(const SchedulerConfig& config, const Waiting& waiting, const Fairness& fairness, const Pace& pace)
      : config_(config), waiting_(waiting), fairness_(fairness), pace_(pace) {}

  // `inbox`: what the scheduler has not seen yet. A request that finds nothing waiting is never refused.
  std::optional<Error> queue_full(const Request& request, const QueueLoad& inbox) const;
  // Its deadline leaves no time for the requests that are due before it.
  std::optional<Error> too_late(const Request& request, TimeNs now) const;

 private:
  std::optional<Error> holds_too_much(const Request& request, const QueueLoad& inbox) const;
  double wait_ms(Lane lane, uint64_t num_tokens) const;

  const SchedulerConfig& config_;
  const Waiting& waiting_;
  const Fairness& fairness_;
  const Pace& pace_;
};

}  // namespace llmrt
