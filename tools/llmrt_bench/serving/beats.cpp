// Rows that need their newest token on the host (here for the n-grams that must not repeat) beside plain rows: tokens a
// second while all rows decode. The two take turns on one engine, so that drift hits them alike.
#include <fmt/format.h>

#include <algorithm>

#include "tools/llmrt_bench/serving/drive.h"
#include "tools/llmrt_bench/serving/parts.h"

namespace llmrt::bench {
namespace {

constexpr uint32_t kPrompt = 64, kNgram = 4, kRounds = 5;
constexpr double kLeastOfMany = 0.97, kLeastOfOne = 0.9;  // of the plain rows' tokens a second

EngineConfig config_of(const Bench& bench, uint32_t num_rows) {
  EngineConfig config;
  config.kv_dtype = bench.options.kv_dtype;
  config.prefix_cache = PrefixCacheKind::kOff;
  config.sequences_max = num_rows;
  config.context_max = kPrompt + bench.options.beats_output;
  config.kv_tokens = uint64_t{num_rows} * (config.context_max + config.block_tokens) * 33 / 32;
  return config;
}

Result<std::vector<std::shared_ptr<const Answer>>> submit_rows(Drive* drive, const Bench& bench, uint32_t num_rows,
                                                               bool needs_newest) {
  Draws draws(1);
  std::vector<std::shared_ptr<const Answer>> answers;
  for (uint32_t i = 0; i < num_rows; ++i) {
    Request request;
    request.prompt = draws.tokens(kPrompt, bench.vocab_size());
    request.max_tokens = bench.options.beats_output;
    request.stop.ignore_eos = true;
    request.sampling.seed = i;
    if (needs_newest) request.sampling.no_repeat_ngram_size = kNgram;
    auto answer = drive->submit(std::move(request));
    if (!answer) return answer.error();
    answers.push_back(*std::move(answer));
  }
  return answers;
}

// Tokens a second from the time when all rows have begun until the first has ended.
double decode_rate(const std::vector<std::shared_ptr<const Answer>>& answers) {
  TimeNs from_ns = 0, to_ns = kNever;
  for (const auto& answer : answers) {
    from_ns = std::max(from_ns, answer->times_ns.front());
    to_ns = std::min(to_ns, answer->times_ns.back());
  }
  size_t count = 0;
  for (const auto& answer : answers) count += answer->gaps_ms(from_ns, to_ns).size();
  return static_cast<double>(count) / static_cast<double>(to_ns - from_ns) * 1e9;
}

Result<double> measure(Engine* engine, const Bench& bench, uint32_t num_rows, bool needs_newest, TimeNs deadline_ns) {
  Drive drive(engine, &bench.clock);
  const auto answers = submit_rows(&drive, bench, num_rows, needs_newest);
  if (!answers) return answers.error();
  const Result<bool> finished = drive.until_finished(deadline_ns);
  if (!finished) return finished.error();
  if (!*finished) return make_error(ErrorCode::kTimeout, "cut by the budget of {} s", bench.options.budget_s);
  return decode_rate(*answers);
}

Status compare(const Bench& bench, uint32_t num_rows, double least, TimeNs deadline_ns) {
  Result<std::unique_ptr<Engine>> engine = bench.make_engine(config_of(bench, num_rows));
  if (!engine) return engine.error();
  if (Status status = Drive(engine->get(), &bench.clock).warm_up(num_rows); !status) return status;
  std::vector<double> rates[2];  // of plain rows, and of the others
  for (uint32_t round = 0; round < kRounds; ++round)
    for (const bool needs_newest : {false, true}) {
      const Result<double> rate = measure(engine->get(), bench, num_rows, needs_newest, deadline_ns);
      if (!rate) return rate.error();
      rates[needs_newest].push_back(*rate);
    }
  const double plain = quantile(rates[0], 0.5), newest = quantile(rates[1], 0.5);
  bench.report.add({fmt::format("plain rows: {}", num_rows), plain, "tok/s"});
  bench.report.add({fmt::format("rows that need their newest token: {}", num_rows), newest, "tok/s"});
  bench.report.add({fmt::format("the same / plain, rows: {}", num_rows), newest / plain, "x",
                    fmt::format("medians of {} rounds, {} draws parked", kRounds, (*engine)->stats().num_parked),
                    at_least(least)});
  return {};
}

}  // namespace

Status beats_part(const Bench& bench) {
  const TimeNs deadline_ns = bench.deadline(1);
  if (Status status = compare(bench, bench.options.beats_rows, kLeastOfMany, deadline_ns); !status) return status;
  return compare(bench, 1, kLeastOfOne, deadline_ns);
}

}  // namespace llmrt::bench
