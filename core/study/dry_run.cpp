#include "core/study/dry_run.h"

#include <algorithm>

namespace llmrt {
namespace {

constexpr TimeNs kNsPerMs = 1'000'000;

// Each its own text: no prefix is shared.
Request request_of(const DryRequest& from, RequestId id) {
  Request request;
  request.id = id;
  request.prompt.assign(from.prompt_tokens, static_cast<int32_t>(id));
  request.max_tokens = from.output_tokens;
  request.arrival_ns = from.arrival_ms * kNsPerMs;
  return request;
}

void take_step(Scheduler& scheduler, std::span<const DryRequest> requests, TimeNs now, DryRun* run) {
  TimelineStep* step = &run->steps.emplace_back();
  const IterationPlan* plan = scheduler.plan(now);
  if (plan == nullptr) return;
  step->batch = plan->batch;
  std::vector<Verdict> verdicts(plan->samples.size());
  for (const PlanRow& row : plan->rows) {
    const DryRequest& request = requests[row.request_id - 1];
    const bool is_prompt = row.start < request.prompt_tokens;
    step->rows.push_back({row.request_id, is_prompt});
    run->num_chunks += is_prompt;
    run->reread_tokens += is_prompt ? row.start : 0;
    if (row.num_samples == 0) continue;
    Verdict& verdict = verdicts[row.sample_first];
    verdict.token = 0;
    if (plan->samples[row.sample_first].output_position + 1 == request.output_tokens)
      verdict.finish = FinishReason::kLength;
  }
  const EngineStats stats = scheduler.stats();
  run->table_slots += stats.table_slots;
  run->table_tokens += stats.table_tokens;
  run->blocks_max = std::max(run->blocks_max, stats.blocks_total - stats.blocks_free);
  scheduler.commit(*plan, verdicts, now + kNsPerMs);
}

}  // namespace

Result<DryRun> dry_run(const SchedulerConfig& config, std::span<const DryRequest> requests) {
  Scheduler scheduler(config);
  DryRun run;
  size_t num_added = 0;
  std::vector<TokenEvent> events;
  while (num_added < requests.size() || scheduler.has_work()) {
    const TimeNs now = static_cast<TimeNs>(run.steps.size()) * kNsPerMs;
    for (; num_added < requests.size() && requests[num_added].arrival_ms * kNsPerMs <= now; ++num_added) {
      Request request = request_of(requests[num_added], num_added + 1);
      if (Status status = scheduler.check(request); !status)
        return make_error(ErrorCode::kInvalidArgument, "request {}: {}", num_added + 1, status.error().message);
      run.requests.push_back({request.id, run.steps.size()});
      scheduler.add(std::move(request), now);
    }
    take_step(scheduler, requests, now, &run);
    events.clear();
    scheduler.take_events(&events);
    for (const TokenEvent& event : events) {
      if (event.error) return *event.error;
      if (event.finish != FinishReason::kNone) scheduler.drained(event.request_id);
    }
  }
  run.useful_tokens = scheduler.stats().useful_tokens;
  run.padded_tokens = scheduler.stats().padded_tokens;
  return run;
}

}  // namespace llmrt
