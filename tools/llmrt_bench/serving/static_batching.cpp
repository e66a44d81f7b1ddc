// The same requests at t = 0, the same kernels: continuous batching beside static batching.
//
// Static batching is measured twice. "Rows that end cost nothing" is what the scheduler's baseline does: a step
// computes live rows only. "Fixed shape" is what a batch of fixed shape costs: every prompt as long as the batch's
// longest, every row computed until the longest answer has ended. Tokens counted are those that were asked for, in
// each.
#include <fmt/format.h>

#include <algorithm>

#include "tools/llmrt_bench/serving/drive.h"
#include "tools/llmrt_bench/serving/parts.h"

namespace llmrt::bench {
namespace {

// Of the budget. Continuous batching is to run through all requests, its emptying included; of static batching's
// batches, which do not touch each other, a few are enough.
constexpr double kContinuousShare = 0.8, kStaticShare = 0.2;

EngineConfig config_of(const Bench& bench, Batching batching) {
  const WorkloadSpec& spec = bench.options.batching;
  EngineConfig config;
  config.batching = batching;
  config.kv_dtype = bench.options.kv_dtype;
  config.prefix_cache = PrefixCacheKind::kOff;
  config.sequences_max = bench.options.sequences;
  config.context_max = spec.prompt_max + spec.output_max;
  config.kv_tokens = uint64_t{config.sequences_max} * (config.context_max + config.block_tokens) * 33 / 32;
  return config;
}

// As a batch of fixed shape computes them.
std::vector<WorkItem> padded(std::span<const WorkItem> items, uint32_t vocab_size) {
  std::vector<WorkItem> out(items.begin(), items.end());
  size_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  for (const WorkItem& item : out) {
    prompt_tokens = std::max(prompt_tokens, item.prompt.size());
    output_tokens = std::max(output_tokens, item.output_tokens);
  }
  Draws draws(out.size());
  for (WorkItem& item : out) {
    const auto filler = draws.tokens(static_cast<uint32_t>(prompt_tokens - item.prompt.size()), vocab_size);
    item.prompt.insert(item.prompt.begin(), filler.begin(), filler.end());
    item.output_tokens = output_tokens;
  }
  return out;
}

// Whole batches one after the other; no more are begun when `share` of the budget is spent, but one runs always.
Result<Run> run_batches(Engine* engine, const Bench& bench, std::span<const WorkItem> items, bool is_fixed_shape,
                        double share) {
  const TimeNs deadline_ns = bench.deadline(share);
  Run sum;
  double rows = 0;
  for (size_t first = 0; first < items.size(); first += bench.options.sequences) {
    if (first > 0 && bench.clock.now_ns() >= deadline_ns) break;
    const auto batch = items.subspan(first, std::min<size_t>(bench.options.sequences, items.size() - first));
    const std::vector<WorkItem> work =
        is_fixed_shape ? padded(batch, bench.vocab_size()) : std::vector<WorkItem>(batch.begin(), batch.end());
    Result<Run> run = Drive(engine, &bench.clock).run(work, bench.deadline(3));
    if (!run) return run.error();
    if (run->num_finished < batch.size())
      return make_error(ErrorCode::kTimeout, "cut in the middle of a batch: it took three times the budget of {} s",
                        bench.options.budget_s);
    sum.seconds += run->seconds;
    for (const WorkItem& item : batch) sum.tokens += item.output_tokens;
    sum.num_finished += batch.size();
    sum.steps.num_steps += run->steps.num_steps;
    sum.steps.useful_tokens += run->steps.useful_tokens;
    sum.steps.padded_tokens += run->steps.padded_tokens;
    rows += run->steps.mean_rows * static_cast<double>(run->steps.num_steps);
  }
  if (sum.steps.num_steps > 0) sum.steps.mean_rows = rows / static_cast<double>(sum.steps.num_steps);
  return sum;
}

void add_run(const Bench& bench, const char* name, const Run& run, size_t num_items, const std::string& more) {
  bench.report.add({name, run.tok_s(), "tok/s",
                    fmt::format("{} of {} requests, {} tokens in {:.2f} s, {} steps of {:.1f} rows{}", run.num_finished,
                                num_items, run.tokens, run.seconds, run.steps.num_steps, run.steps.mean_rows, more)});
}

std::string padding(const StepCounts& steps) {
  return fmt::format("; {} positions useful, {} of padding not computed", steps.useful_tokens, steps.padded_tokens);
}

}  // namespace

Status batching_part(const Bench& bench) {
  const std::vector<WorkItem> items = make_workload(bench.options.batching, bench.vocab_size());
  Run continuous;
  {
    Result<std::unique_ptr<Engine>> engine = bench.make_engine(config_of(bench, Batching::kContinuous));
    if (!engine) return engine.error();
    if (Status status = Drive(engine->get(), &bench.clock).warm_up(bench.options.sequences); !status) return status;
    Result<Run> run = Drive(engine->get(), &bench.clock).run(items, bench.deadline(kContinuousShare));
    if (!run) return run.error();
    continuous = *run;
    const bool is_cut = run->num_finished < items.size();
    add_run(bench, "continuous", *run, items.size(), is_cut ? "; CUT by the budget: its emptying is not in it" : "");
  }
  Result<std::unique_ptr<Engine>> engine = bench.make_engine(config_of(bench, Batching::kStatic));
  if (!engine) return engine.error();
  if (Status status = Drive(engine->get(), &bench.clock).warm_up(bench.options.sequences); !status) return status;
  for (const bool is_fixed_shape : {true, false}) {
    const char* name = is_fixed_shape ? "static, fixed shape" : "static, rows that end cost nothing";
    Result<Run> run = run_batches(engine->get(), bench, items, is_fixed_shape, kStaticShare);
    if (!run) return run.error();
    add_run(bench, name, *run, items.size(), is_fixed_shape ? "" : padding(run->steps));
    bench.report.add({fmt::format("continuous / {}", name), continuous.tok_s() / run->tok_s(), "x", "", at_least(3)});
  }
  return {};
}

}  // namespace llmrt::bench
