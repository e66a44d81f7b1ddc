// A client of the fleet and what must be true of its answer: each branch is told once, in order, under the ids that it
// was given first, what it gets alone, and ends once.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/request/request.h"
#include "tests/sim/fleet_scenario.h"

namespace llmrt::test::fleet {

struct Client final : EventSink {
  struct Branch {
    std::vector<int32_t> tokens;
    size_t num_prompt_events = 0;
    FinishReason finish = FinishReason::kNone;
    std::optional<Error> error;
    TimeNs first_ns = 0, end_ns = 0;
    bool is_drained = false;
    size_t tokens_at_pause = 0;
  };
  explicit Client(const ClientPlan* its_plan) : plan(its_plan), branches(its_plan->request.n) {}

  void on_events(std::span<const TokenEvent> events) override;
  void take(const TokenEvent& event);
  void pause(bool paused);
  std::string check_end() const;
  bool is_over() const;
  // Whether it was answered in full, and all its branches within both targets.
  bool is_good(double ttft_ms, double tpot_ms) const;
  double ttft_ms() const;  // of its last branch
  double tpot_ms() const;  // of its slowest branch; 0: of a token or none

  const ClientPlan* plan;
  std::vector<Branch> branches;
  RequestId first_id = 0;  // 0: it was refused
  std::optional<Error> refusal;
  bool is_cancelled = false, is_paused = false;
  std::string wrong;  // what broke first
};

}  // namespace llmrt::test::fleet
