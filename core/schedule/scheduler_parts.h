// What a Scheduler is made of, for scheduler.cpp and tests alone: the owners of its state, and the flows that lead
// sequences from one to the other. Every other file of the folder names the parts that it uses in a constructor or as
// arguments.
#pragma once

#include "core/schedule/admission.h"
#include "core/schedule/arrivals.h"
#include "core/schedule/commits.h"
#include "core/schedule/plan_writer.h"
#include "core/schedule/steps.h"

namespace llmrt {

struct SchedulerOwners {
  explicit SchedulerOwners(SchedulerConfig from);

  const SchedulerConfig config;
  KvSpace kv;
  Prefixes prefixes;
  Branches branches;
  Timeouts timeouts;
  Waiting waiting;
  Running running;
  Batches batches;
  Reservations reservations;
  Fairness fairness;
  Pace pace;
  StepDraft draft;
  PlanWriter plans;
  Journal journal;
};

struct SchedulerFlows {
  explicit SchedulerFlows(SchedulerOwners& owners);

  QueueLimits limits;
  StartOrder start_order;
  Yields yields;
  Exits exits;
  Arrivals arrivals;
  Chunks chunks;
  Reclaim reclaim;
  Starts starts;
  Admission admission;
  DraftChoice drafts;
  Steps steps;
  Commits commits;
};

}  // namespace llmrt
