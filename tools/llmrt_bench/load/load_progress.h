// How far a load run is, on standard error: a line that is drawn over on a terminal, else one every ten seconds.
#pragma once

#include <string>

#include "tools/llmrt_bench/load/outcome.h"

namespace llmrt::bench {

class LoadProgress {
 public:
  LoadProgress(std::string what, size_t num_requests, const Clock* clock);
  ~LoadProgress();
  // As OnOutcome; null: only the time has passed.
  void update(const Outcome* outcome);

 private:
  std::string text(TimeNs now_ns) const;

  std::string what_;
  size_t num_requests_, num_over_ = 0, num_failed_ = 0;
  const Clock* clock_;
  TimeNs begin_ns_, drawn_ns_;
  bool is_terminal_;
};

}  // namespace llmrt::bench
