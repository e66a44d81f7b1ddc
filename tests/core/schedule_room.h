// All owners and flows of a scheduler, without the Scheduler, for the tests of flows: what one does is seen in the
// owners. Blocks of 4 tokens.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "core/schedule/audit.h"
#include "core/schedule/scheduler_parts.h"
#include "schedule_parts.h"

namespace llmrt::test {

inline SchedulerConfig room_config(uint32_t num_blocks = 16, uint32_t rows = 4) {
  SchedulerConfig config;
  config.context_max = 64;
  config.sequences_max = rows;
  config.step_tokens_max = 32;
  config.sample_rows_max = 8;
  config.penalty_rows_max = 1;
  config.reserve_output_tokens = 8;
  config.watermark = 0;
  config.kv_pools = {{num_blocks, 4}};
  return config;
}

struct ScheduleRoom {
  explicit ScheduleRoom(SchedulerConfig config = room_config()) : owners(std::move(config)), flows(owners) {}

  // It has come and waits; null when it has ended at once.
  Sequence* add(Request request, TimeNs now = 0) {
    const RequestId id = request.id;
    flows.arrivals.add(std::move(request), now);
    return owners.branches.find(id);
  }
  // It runs, with blocks for `computed` positions.
  Sequence& run(Request request, uint32_t computed, uint32_t reserved = 0) {
    Sequence& sequence = *add(std::move(request));
    owners.waiting.remove(sequence);
    sequence.move_to(RequestState::kPrefilling);
    owners.running.admit(sequence);
    sequence.residency.tables = owners.kv.make_tables(64);
    sequence.residency.reserved_tokens = reserved;
    LLMRT_CHECK(owners.kv.grow(sequence.residency.tables, computed), "the test's pool is large enough");
    sequence.progress.computed = computed;
    owners.prefixes.keep_filled(sequence);
    return sequence;
  }
  const IterationPlan* plan(TimeNs now = 0) {
    flows.steps.fill(owners.plans.num_plans() + 1, owners.plans.has_in_flight(), now);
    return owners.draft.is_empty() ? nullptr : owners.plans.write(0);
  }
  // "id[start,end)" of each row.
  std::string rows_of(const IterationPlan* plan) const {
    if (plan == nullptr) return "nothing";
    std::string text;
    for (const PlanRow& row : plan->rows)
      text +=
          fmt::format("{}{}[{},{})", text.empty() ? "" : " ", row.request_id, row.start, row.start + row.num_tokens);
    return text;
  }
  std::vector<TokenEvent> events() {
    std::vector<TokenEvent> events;
    owners.journal.take_events(&events);
    return events;
  }
  const EngineStats& stats() { return owners.journal.stats({}, owners.kv); }
  Status audit() const {
    return llmrt::audit(owners.kv, owners.branches, owners.waiting, owners.running, owners.batches);
  }

  SchedulerOwners owners;
  SchedulerFlows flows;
};

}  // namespace llmrt::test
