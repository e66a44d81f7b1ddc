// What the same bytes of KV pool hold by dtype, and how fast rows decode from it.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/checked_math.h"
#include "core/engine/pool_shapes.h"
#include "tools/llmrt_bench/serving/drive.h"
#include "tools/llmrt_bench/serving/parts.h"

namespace llmrt::bench {
namespace {

struct Held {
  uint64_t tokens = 0;
  std::vector<double> step_ms;  // by context
};

EngineConfig config_of(const Bench& bench, KvDType dtype) {
  const ServingOptions& options = bench.options;
  EngineConfig config;
  config.kv_dtype = dtype;
  config.prefix_cache = PrefixCacheKind::kOff;
  config.sequences_max = options.kv_rows;
  config.chunk_tokens = config.step_tokens_max;  // prompts first, so that soon all rows decode
  const uint32_t longest = *std::max_element(options.kv_contexts.begin(), options.kv_contexts.end());
  const uint64_t prompt_steps = uint64_t{options.kv_rows} * longest / 256 + 1;
  config.context_max = static_cast<uint32_t>(longest + 2 * (options.kv_output + prompt_steps));
  config.kv_tokens =
      PoolShapes(bench.model.config, config).blocks_in(uint64_t{options.kv_mib} << 20) * config.block_tokens;
  return config;
}

// Median step while all rows decode, behind prompts of `context` tokens.
Result<double> step_ms(Engine* engine, const Bench& bench, uint32_t context) {
  const ServingOptions& options = bench.options;
  Drive drive(engine, &bench.clock);
  Draws draws(context);
  const uint32_t prompt_steps = ceil_div(options.kv_rows * context, engine->config().step_tokens_max);
  std::vector<std::shared_ptr<const Answer>> answers;
  for (uint32_t row = 0; row < options.kv_rows; ++row) {
    auto answer = drive.submit(draws.tokens(context, bench.vocab_size()), options.kv_output + 2 * prompt_steps);
    if (!answer) return answer.error();
    answers.push_back(*answer);
  }
  Result<bool> ended = drive.until_finished(bench.deadline(1));
  if (!ended) return ended.error();
  if (!*ended)
    return make_error(ErrorCode::kTimeout, "cut: {} rows at {} took the budget of {} s", options.kv_rows, context,
                      options.budget_s);
  TimeNs from_ns = 0, to_ns = kNever;
  for (const auto& answer : answers) {
    from_ns = std::max(from_ns, answer->times_ns.front());
    to_ns = std::min(to_ns, answer->times_ns.back());
  }
  std::vector<double> gaps;
  for (const auto& answer : answers) {
    const std::vector<double> own = answer->gaps_ms(from_ns, to_ns);
    gaps.insert(gaps.end(), own.begin(), own.end());
  }
  if (gaps.empty())
    return make_error(ErrorCode::kInvalidArgument, "--kv-output: with {} the rows never decode all at once",
                      options.kv_output);
  if (Status status = drive.finish(); !status) return status.error();
  return quantile(gaps, 0.5);
}

Result<Held> measure(const Bench& bench, KvDType dtype) {
  const ServingOptions& options = bench.options;
  Result<std::unique_ptr<Engine>> engine = bench.make_engine(config_of(bench, dtype));
  if (!engine) return engine.error();
  const MemoryPlan& plan = (*engine)->memory_plan();
  if (plan.limited_by != "--kv-tokens")
    return make_error(ErrorCode::kOutOfMemory, "a pool of {} MiB: expected room, limited by {}", options.kv_mib,
                      plan.limited_by);
  Held held;
  held.tokens = uint64_t{plan.num_blocks} * plan.block_tokens;
  const char* name = kv_dtype_name(dtype);
  bench.report.add({fmt::format("{}: tokens in {} MiB", name, options.kv_mib), static_cast<double>(held.tokens),
                    "tokens",
                    fmt::format("{:.1f} MiB taken on the device",
                                static_cast<double>((*engine)->backend().memory().kv_bytes) / (1 << 20))});
  if (Status status = Drive(engine->get(), &bench.clock).warm_up(options.kv_rows); !status) return status.error();
  for (uint32_t context : options.kv_contexts) {
    Result<double> ms = step_ms(engine->get(), bench, context);
    if (!ms) return ms.error();
    held.step_ms.push_back(*ms);
    bench.report.add({fmt::format("{}: decode, {} rows at {}", name, options.kv_rows, context),
                      1e3 * options.kv_rows / *ms, "tok/s", fmt::format("{:.3f} ms a step, median", *ms)});
  }
  return held;
}

}  // namespace

Status kv_part(const Bench& bench) {
  const ServingOptions& options = bench.options;
  Result<Held> wide = measure(bench, KvDType::kF16);
  if (!wide) return wide.error();
  for (const KvDType dtype : options.kv_compared) {
    Result<Held> held = measure(bench, dtype);
    if (!held) return held.error();
    const char* name = kv_dtype_name(dtype);
    bench.report.add({fmt::format("{} / f16: tokens held", name),
                      static_cast<double>(held->tokens) / static_cast<double>(wide->tokens), "x", "", at_least(1.9)});
    for (size_t i = 0; i < held->step_ms.size(); ++i)
      bench.report.add({fmt::format("{} / f16: speed, {} rows at {}", name, options.kv_rows, options.kv_contexts[i]),
                        wide->step_ms[i] / held->step_ms[i], "x", "", at_least(1)});
  }
  return {};
}

}  // namespace llmrt::bench
