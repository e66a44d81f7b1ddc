// Turns what the running sequences have taken into an IterationPlan: the only writer of one.
//
// Owns the two plans that may be in flight, and their numbers; moves Progress on, clears RowTake and the copy of
// Residency, sets row_is_set, and sends each table entry once. A plan stays unchanged until its commit. No errors:
// plans are committed once, in their order, or the process stops. Allocates nothing in the steady state. The engine's
// thread.
#pragma once

#include <array>
#include <cstdint>

#include "core/kv/kv_space.h"
#include "core/request/sequence.h"
#include "core/schedule/iteration_plan.h"
#include "core/schedule/prefixes.h"
#include "core/schedule/running.h"
#include "core/schedule/scheduler_config.h"

namespace llmrt {

class PlanWriter {
 public:
  PlanWriter(const SchedulerConfig& config, KvSpace& kv, Prefixes& prefixes, Running& running)
      : config_(config), kv_(kv), prefixes_(prefixes), running_(running) {}

  uint64_t num_plans() const { return num_plans_; }
  bool has_in_flight() const { return num_plans_ > num_commits_; }
  bool may_write() const { return num_plans_ - num_commits_ < plans_.size(); }

  // `batch`: of a baseline.
  const IterationPlan* write(uint64_t batch);
  // The results of `plan` are there: it is the oldest in flight.
  void note_commit(const IterationPlan& plan);
  // The device is gone, and results with it.
  void forget_in_flight() { num_commits_ = num_plans_; }

 private:
  void write_row(Sequence& sequence, IterationPlan* plan);
  void write_row_updates(Sequence& sequence, IterationPlan* plan);
  void write_tables(Sequence& sequence, IterationPlan* plan);
  void write_copy(Sequence& sequence, IterationPlan* plan);
  void write_samples(const Sequence& sequence, IterationPlan* plan) const;
  void write_moves(IterationPlan* plan);

  const SchedulerConfig& config_;
  KvSpace& kv_;
  Prefixes& prefixes_;
  Running& running_;
  std::array<IterationPlan, 2> plans_;  // by step % 2
  uint64_t num_plans_ = 0, num_commits_ = 0;
};

}  // namespace llmrt
