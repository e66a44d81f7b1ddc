// How a request comes in: it is checked, divided into its branches, and waits, or ends at once.
//
// Owns nothing. Errors: context_length, unsupported and never_fits (check), overloaded (as the event of each branch).
// The engine's thread, except check().
#pragma once

#include "core/kv/kv_space.h"
#include "core/schedule/branches.h"
#include "core/schedule/exits.h"
#include "core/schedule/journal.h"
#include "core/schedule/pace.h"
#include "core/schedule/prefixes.h"
#include "core/schedule/queue_limits.h"
#include "core/schedule/timeouts.h"
#include "core/schedule/waiting.h"

namespace llmrt {

class Arrivals {
 public:
  struct Parts {
    const SchedulerConfig& config;
    const KvSpace& kv;
    const Prefixes& prefixes;
    const QueueLimits& limits;
    Pace& pace;
    Branches& branches;
    Timeouts& timeouts;
    Waiting& waiting;
    Journal& journal;
    Exits& exits;
  };
  explicit Arrivals(const Parts& parts) : parts_(parts) {}

  // Whether it can ever run. Constants only; thread-safe.
  Status check(const Request& request) const;
  void add(Request request, TimeNs now);

 private:
  void add_branch(std::unique_ptr<Sequence> owned, const std::optional<Error>& refusal, TimeNs now);
  const std::vector<int32_t>& ends_of(const Request& request) const;

  const Parts parts_;
};

}  // namespace llmrt
