// Turns what the running sequences have taken into an IterationPlan: the only writer of one.
//
// Owns the two plans that may be in flight, and their numbers; moves Progress on, clears RowTake and the copy of
// Residency, sets row_is_set, and sends each table entry once. A plan stays unchanged until its commit, but for a tail
// that waits for the results before it. No errors: plans are committed once, in their order, or the process stops.
// Allocates nothing in the steady state. The engine's thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/kv/kv_space.h"
#include "core/request/sequence.h"
#include "core/schedule/iteration_plan.h"
#include "core/schedule/plan_limits.h"
#include "core/schedule/prefixes.h"
#include "core/schedule/running.h"
#include "core/schedule/save_points.h"
#include "core/schedule/scheduler_config.h"

namespace llmrt {

// For the audit: the request of each draw in flight, in order of ids; twice where two plans draw for it.
struct DrawsInFlight {
  std::vector<RequestId> certain;
  std::vector<RequestId> behind_drafts;  // which mean nothing if the drafts are wrong
};

class PlanWriter {
 public:
  PlanWriter(const SchedulerConfig& config, KvSpace& kv, Prefixes& prefixes, Running& running)
      : config_(config),
        bias_entries_max_(plan_limits(config).bias_entries_max),
        kv_(kv),
        prefixes_(prefixes),
        running_(running),
        save_points_(kv.place_tokens(), config.state_interval) {}

  uint64_t num_plans() const { return num_plans_; }
  bool has_in_flight() const { return num_plans_ > num_commits_; }
  bool may_write() const { return num_plans_ - num_commits_ < plans_.size(); }

  // `batch`: of a baseline.
  const IterationPlan* write(uint64_t batch);
  // Completes the tail of the newest plan, when the plan before it is committed: the bias entries and masks of late
  // rows. A row whose changes are not ready, or are more than the tail has room for, is parked: it draws nothing in
  // this step, and its last position is computed again, in the window that it had. The next plan gives it room before
  // late rows take theirs. The draw of a row that has ended meanwhile stays, as that of any row does, and its result is
  // dropped. Returns how many were parked.
  uint32_t write_tail(const IterationPlan& plan);
  // The results of `plan` are there: it is the oldest in flight.
  void note_commit(const IterationPlan& plan);
  // The device is gone, and results with it.
  void forget_in_flight();
  DrawsInFlight draws_in_flight() const;

 private:
  void write_row(Sequence& sequence, IterationPlan* plan);
  void write_row_updates(Sequence& sequence, IterationPlan* plan);
  void write_tables(Sequence& sequence, IterationPlan* plan);
  void write_copy(Sequence& sequence, IterationPlan* plan);
  void write_saves(Sequence& sequence, uint32_t begin, IterationPlan* plan);
  void write_samples(const Sequence& sequence, IterationPlan* plan) const;
  // What the drawn samples' logits are changed by: bias entries and the mask.
  void write_changes(Sequence& sequence, IterationPlan* plan, const PlanRow& row) const;
  bool write_late_row(IterationPlan* plan, PlanRow* row) const;
  void write_moves(IterationPlan* plan);

  const SchedulerConfig& config_;
  const uint64_t bias_entries_max_;
  KvSpace& kv_;
  Prefixes& prefixes_;
  Running& running_;
  const SavePoints save_points_;
  std::vector<SavePoints::Point> points_;  // of one row
  std::vector<RecordPlace> places_;        // of one row
  std::array<IterationPlan, 2> plans_;     // by step % 2
  uint64_t num_plans_ = 0, num_commits_ = 0;
};

}  // namespace llmrt
