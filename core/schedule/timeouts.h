// When branches that wait or run end though they are not done: the client's deadline, the server's limit and, until a
// branch has started, the time by which it must.
//
// Owns the times in their order; writes Sequence::times_out_ns, the earliest of a branch's times. The engine's thread.
#pragma once

#include <optional>
#include <set>
#include <utility>

#include "core/base/status.h"
#include "core/request/sequence.h"

namespace llmrt {

class Timeouts {
 public:
  // To be called when a branch comes, and again when its state or its request's times have changed.
  void set(Sequence& sequence);
  // It has ended.
  void erase(const Sequence& sequence);
  // The branch whose time was up first.
  std::optional<RequestId> due(TimeNs now) const;

 private:
  std::set<std::pair<TimeNs, RequestId>> times_;
};

// kTimeout: which limit `sequence` has passed, and how far it had come.
Error timed_out(const Sequence& sequence, TimeNs now);

}  // namespace llmrt
