// Time to the first token of a prompt, cold and with most of it in the prefix cache.
#include <fmt/format.h>

#include "tools/llmrt_bench/serving/drive.h"
#include "tools/llmrt_bench/serving/parts.h"

namespace llmrt::bench {

Status prefix_part(const Bench& bench) {
  const ServingOptions& options = bench.options;
  const uint32_t num_tokens = options.prefix_prompt;
  const uint32_t num_shared = static_cast<uint32_t>(options.prefix_share * num_tokens);
  EngineConfig config;
  config.kv_dtype = options.kv_dtype;
  config.sequences_max = 4;
  config.context_max = std::min(num_tokens + 16, bench.model.config.context_max);
  config.kv_tokens = uint64_t{config.context_max} * 2 * (options.prefix_repeats + 2);
  Result<std::unique_ptr<Engine>> engine = bench.make_engine(config);
  if (!engine) return engine.error();
  Drive drive(engine->get(), &bench.clock);
  const TimeNs deadline_ns = bench.deadline(1);
  Draws draws(1);
  const auto ask = [&](const std::vector<int32_t>& prompt) -> Result<std::shared_ptr<const Answer>> {
    auto answer = drive.submit(prompt, 1);
    if (!answer) return answer.error();
    Result<bool> done = drive.until_finished(deadline_ns);
    if (!done) return done.error();
    if (!*done) return make_error(ErrorCode::kTimeout, "cut by the budget of {} s", options.budget_s);
    return answer;
  };
  std::vector<double> cold_ms, shared_ms;
  uint32_t cached_tokens = 0;
  for (uint32_t round = 0; round <= options.prefix_repeats; ++round) {  // the first is the warm-up
    std::vector<int32_t> prompt = draws.tokens(num_tokens, bench.vocab_size());
    auto cold = ask(prompt);
    if (!cold) return cold.error();
    const std::vector<int32_t> own = draws.tokens(num_tokens - num_shared, bench.vocab_size());
    std::copy(own.begin(), own.end(), prompt.begin() + num_shared);
    auto shared = ask(prompt);
    if (!shared) return shared.error();
    if (round == 0) continue;
    cold_ms.push_back((*cold)->ttft_ms());
    shared_ms.push_back((*shared)->ttft_ms());
    cached_tokens = (*shared)->cached_tokens;
    if ((*cold)->cached_tokens > 0)
      return make_error(ErrorCode::kInternal, "a prompt that nobody had asked found {} of its tokens cached",
                        (*cold)->cached_tokens);
  }
  const double cold = quantile(cold_ms, 0.5), shared = quantile(shared_ms, 0.5);
  bench.report.add({fmt::format("TTFT of {} tokens, cold", num_tokens), cold, "ms",
                    fmt::format("least {:.1f}, most {:.1f}", quantile(cold_ms, 0), quantile(cold_ms, 1))});
  bench.report.add({fmt::format("TTFT, {} of them shared", num_shared), shared, "ms",
                    fmt::format("{} cached; least {:.1f}, most {:.1f}", cached_tokens, quantile(shared_ms, 0),
                                quantile(shared_ms, 1))});
  bench.report.add({"shared / cold", shared / cold, "x", "", at_most(0.15)});
  return drive.finish();
}

}  // namespace llmrt::bench
