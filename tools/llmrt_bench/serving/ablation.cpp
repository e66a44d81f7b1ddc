// One workload, all at t = 0, with the scheduler's features added one by one: each line against the one above it is a
// feature on and off. Prompts share prefixes, one in 32 is long, and the KV pool is the same for all.
#include <fmt/format.h>

#include <algorithm>

#include "tools/llmrt_bench/serving/drive.h"
#include "tools/llmrt_bench/serving/parts.h"

namespace llmrt::bench {
namespace {

struct Setting {
  const char* name;
  Batching batching;
  uint32_t sequences;
  bool has_prefix_cache, is_chunked;
  uint32_t num_requests;
};

struct Outcome {
  double tok_s = 0, ttft_p50_ms = 0, ttft_p95_ms = 0, worst_gap_ms = 0;
  size_t num_requests = 0;
  bool is_cut = false;
};

WorkloadSpec workload_of(const ServingOptions& options) {
  WorkloadSpec spec;
  spec.num_requests = options.ablation_requests;
  spec.prompt_min = 32;
  spec.prompt_max = 256;
  spec.output_mean = 32;
  spec.output_max = 128;
  spec.num_prefixes = 4;
  spec.prefix_tokens = 256;
  spec.long_every = 32;
  spec.long_tokens = options.ablation_context - spec.prefix_tokens - spec.output_max;
  return spec;
}

EngineConfig config_of(const Bench& bench, const Setting& setting) {
  EngineConfig config;
  config.kv_dtype = bench.options.kv_dtype;
  config.batching = setting.batching;
  config.sequences_max = setting.sequences;
  config.prefix_cache = setting.has_prefix_cache ? PrefixCacheKind::kRadix : PrefixCacheKind::kOff;
  config.context_max = bench.options.ablation_context;
  config.kv_tokens = uint64_t{bench.options.ablation_pool_contexts} * config.context_max;
  // Unchunked: the longest prompt is one step, even where others decode.
  if (!setting.is_chunked) config.step_tokens_max = config.chunk_tokens = config.context_max;
  return config;
}

Result<Outcome> run_setting(const Bench& bench, const Setting& setting, const std::vector<WorkItem>& items,
                            TimeNs deadline_ns) {
  Result<std::unique_ptr<Engine>> engine = bench.make_engine(config_of(bench, setting));
  if (!engine) return engine.error();
  Drive drive(engine->get(), &bench.clock);
  if (Status status = drive.warm_up(setting.sequences); !status) return status.error();
  std::vector<std::shared_ptr<const Answer>> answers;
  const size_t count = std::min<size_t>(setting.num_requests, items.size());
  Result<Run> run = drive.run(std::span(items).first(count), deadline_ns, &answers);
  if (!run) return run.error();
  std::vector<double> ttfts, gaps;
  for (const auto& answer : answers) {
    if (!answer->times_ns.empty()) ttfts.push_back(answer->ttft_ms());
    const std::vector<double> own = answer->gaps_ms();
    if (!own.empty()) gaps.push_back(*std::max_element(own.begin(), own.end()));
  }
  const Outcome outcome{run->tok_s(), quantile(ttfts, 0.5), quantile(ttfts, 0.95), quantile(gaps, 1),
                        count,        run->is_cut};
  bench.report.add(
      {setting.name, outcome.tok_s, "tok/s",
       fmt::format("TTFT p50 {:.0f}, p95 {:.0f} ms, worst gap {:.1f} ms; {} of {} requests in {:.2f} s, {} steps of "
                   "{:.1f} rows, {} prompt tokens cached, {} preemptions{}",
                   outcome.ttft_p50_ms, outcome.ttft_p95_ms, outcome.worst_gap_ms, run->num_finished, items.size(),
                   run->seconds, run->steps.num_steps, run->steps.mean_rows, run->steps.cached_tokens,
                   run->steps.num_preemptions,
                   run->is_cut            ? "; CUT by the budget"
                   : count < items.size() ? "; the first ones only, so TTFT is not that of all"
                                          : "")});
  return outcome;
}

// Times of requests stand side by side only where both ran the same ones.
void compare(const Bench& bench, const char* name, const Outcome& off, const Outcome& on) {
  std::string note = "other requests, so times are not compared";
  if (on.num_requests == off.num_requests)
    note = fmt::format("TTFT p50 {:.2f} x, p95 {:.2f} x, worst gap {:.2f} x", on.ttft_p50_ms / off.ttft_p50_ms,
                       on.ttft_p95_ms / off.ttft_p95_ms, on.worst_gap_ms / off.worst_gap_ms);
  bench.report.add({fmt::format("{}: on / off", name), on.tok_s / off.tok_s, "x", note});
}

}  // namespace

Status ablation_part(const Bench& bench) {
  const ServingOptions& options = bench.options;
  const std::vector<WorkItem> items = make_workload(workload_of(options), bench.vocab_size());
  const uint32_t all = options.ablation_requests, rows = options.ablation_sequences;
  const uint32_t rows_reserving = std::min(rows, options.ablation_pool_contexts);
  const std::string reserving = fmt::format("batch of {}: whole contexts reserved", rows_reserving);
  const std::string paged = fmt::format("+ paged KV: batch of {}", rows);
  const Setting settings[] = {
      {"naive: one at a time", Batching::kStatic, 1, false, false, options.ablation_naive},
      {reserving.c_str(), Batching::kStatic, rows_reserving, false, false, options.ablation_reserving},
      {paged.c_str(), Batching::kStatic, rows, false, false, all},
      {"+ prefix cache", Batching::kStatic, rows, true, false, all},
      {"+ continuous batching", Batching::kContinuous, rows, true, false, all},
      {"+ chunked prefill", Batching::kContinuous, rows, true, true, all},
  };
  const TimeNs deadline_ns = bench.deadline(1);
  std::optional<Outcome> former;
  for (const Setting& setting : settings) {
    if (bench.clock.now_ns() >= deadline_ns)
      return make_error(ErrorCode::kTimeout, "cut by the budget of {} s before \"{}\"", options.budget_s, setting.name);
    Result<Outcome> outcome = run_setting(bench, setting, items, deadline_ns);
    if (!outcome) return outcome.error();
    if (outcome->is_cut)
      return make_error(ErrorCode::kTimeout, "cut by the budget of {} s in \"{}\"", options.budget_s, setting.name);
    if (former) compare(bench, setting.name, *former, *outcome);
    former = *outcome;
  }
  return {};
}

}  // namespace llmrt::bench
