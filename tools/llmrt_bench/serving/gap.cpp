// Streams decode, then a long prompt arrives: how long the streams stand still, and when the prompt has its first
// token, with the prompt in one piece and in chunks.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tools/llmrt_bench/serving/drive.h"
#include "tools/llmrt_bench/serving/parts.h"

namespace llmrt::bench {
namespace {

constexpr uint32_t kStreamPrompt = 64, kStreamOutput = 3000;
constexpr uint32_t kPlainSteps = 48, kStepsAfter = 4;

// Has every stream had `count` tokens more than `from` says?
bool all_have(const std::vector<std::shared_ptr<const Answer>>& streams, const std::vector<size_t>& from,
              size_t count) {
  for (size_t i = 0; i < streams.size(); ++i)
    if (streams[i]->times_ns.size() < from[i] + count) return false;
  return true;
}

std::vector<size_t> num_tokens(const std::vector<std::shared_ptr<const Answer>>& streams) {
  std::vector<size_t> counts;
  for (const auto& stream : streams) counts.push_back(stream->times_ns.size());
  return counts;
}

std::vector<double> gaps_ms(const std::vector<std::shared_ptr<const Answer>>& streams, TimeNs from, TimeNs to) {
  std::vector<double> all;
  for (const auto& stream : streams) {
    const std::vector<double> gaps = stream->gaps_ms(from, to);
    all.insert(all.end(), gaps.begin(), gaps.end());
  }
  return all;
}

class Scene {
 public:
  Scene(Engine* engine, const Bench& bench, TimeNs deadline_ns)
      : bench_(bench), engine_(engine), drive_(engine, &bench.clock), draws_(1), deadline_ns_(deadline_ns) {}

  Result<Stall> play() {
    for (Result<bool> more = true; *more;) {  // as an idle server does
      more = engine_->prepare_next();
      if (!more) return more.error();
    }
    const uint32_t output = std::min(kStreamOutput, engine_->config().context_max - kStreamPrompt);
    for (uint32_t i = 0; i < bench_.options.gap_streams; ++i) {
      auto stream = drive_.submit(draws_.tokens(kStreamPrompt, bench_.vocab_size()), output);
      if (!stream) return stream.error();
      streams_.push_back(*stream);
    }
    if (Status status = run(std::vector<size_t>(streams_.size()), 2); !status) return status.error();
    // Once before: what is recorded or loaded at first use is there, and the cost model knows chunks.
    if (auto first = run_prompt(bench_.options.gap_prompt); !first) return first.error();
    Stall stall;
    const TimeNs plain_from_ns = bench_.clock.now_ns();
    if (Status status = run(num_tokens(streams_), kPlainSteps); !status) return status.error();
    const TimeNs arrival_ns = bench_.clock.now_ns();
    stall.plain_ms = quantile(gaps_ms(streams_, plain_from_ns, arrival_ns), 0.5);
    const uint64_t steps_before = engine_->stats().num_steps;
    auto prompt = run_prompt(bench_.options.gap_prompt);
    if (!prompt) return prompt.error();
    stall.num_steps = engine_->stats().num_steps - steps_before;
    if (Status status = run(num_tokens(streams_), kStepsAfter); !status) return status.error();
    for (const auto& stream : streams_)
      if (stream->finished)
        return make_error(ErrorCode::kInternal, "a stream ended after {} tokens, before the prompt's first token",
                          stream->times_ns.size());
    stall.worst_ms = quantile(gaps_ms(streams_, arrival_ns, kNever), 1);
    stall.ttft_ms = (*prompt)->ttft_ms();
    if (Status status = drive_.finish(); !status) return status.error();
    return stall;
  }

 private:
  Status run(const std::vector<size_t>& from, size_t count) {
    return reached(drive_.until([&] { return all_have(streams_, from, count); }, deadline_ns_));
  }
  Result<std::shared_ptr<const Answer>> run_prompt(uint32_t tokens) {
    auto prompt = drive_.submit(draws_.tokens(tokens, bench_.vocab_size()), 1);
    if (!prompt) return prompt.error();
    Status status = reached(drive_.until([&] { return (*prompt)->finished; }, deadline_ns_));
    if (!status) return status.error();
    return prompt;
  }
  Status reached(const Result<bool>& done) const {
    if (!done) return done.error();
    if (*done) return {};
    return make_error(ErrorCode::kTimeout, "cut by the budget of {} s", bench_.options.budget_s);
  }

  const Bench& bench_;
  Engine* engine_;
  Drive drive_;
  Draws draws_;
  TimeNs deadline_ns_;
  std::vector<std::shared_ptr<const Answer>> streams_;
};

}  // namespace

EngineConfig gap_config(const Bench& bench) {
  EngineConfig config;
  config.kv_dtype = bench.options.kv_dtype;
  config.prefix_cache = PrefixCacheKind::kOff;
  config.sequences_max = bench.options.gap_streams + 1;
  config.context_max = std::min(bench.options.gap_prompt + kGapRoomTokens, bench.model.config.context_max);
  const uint64_t stream_tokens = std::min(kStreamPrompt + kStreamOutput, config.context_max) + config.block_tokens;
  config.kv_tokens = (bench.options.gap_streams * stream_tokens + config.context_max) * 33 / 32;
  return config;
}

Result<Stall> measure_stall(const Bench& bench, const EngineConfig& config, TimeNs deadline_ns) {
  Result<std::unique_ptr<Engine>> engine = bench.make_engine(config);
  if (!engine) return engine.error();
  return Scene(engine->get(), bench, deadline_ns).play();
}

namespace {

void add_stall(const Bench& bench, const std::string& name, const Stall& stall) {
  bench.report.add({name + ": worst gap", stall.worst_ms, "ms",
                    fmt::format("plain step {:.2f} ms, TTFT {:.1f} ms, {} steps until then", stall.plain_ms,
                                stall.ttft_ms, stall.num_steps)});
}

}  // namespace

Result<Pacing> parse_pacing(const std::string& text) {
  const auto fail = [&] {
    return make_error(ErrorCode::kInvalidArgument,
                      "gap setting: expected a number of tokens (512) or of plain steps (x2.5), found \"{}\"", text);
  };
  Pacing pacing;
  const char* end = text.data() + text.size();
  const bool is_paced = text.starts_with('x');
  const auto [parsed, code] = is_paced ? std::from_chars(text.data() + 1, end, pacing.plain_steps)
                                       : std::from_chars(text.data(), end, pacing.chunk_tokens);
  if (code != std::errc() || parsed != end) return fail();
  if (is_paced ? !(pacing.plain_steps >= 1 && pacing.plain_steps <= 1000) : pacing.chunk_tokens == 0) return fail();
  return pacing;
}

Status gap_part(const Bench& bench) {
  EngineConfig config = gap_config(bench);
  EngineConfig unchunked = config;
  unchunked.step_tokens_max =
      std::min(bench.options.gap_prompt + bench.options.gap_streams, bench.caps.step_tokens_max);
  unchunked.chunk_tokens = unchunked.step_tokens_max;
  const TimeNs deadline_ns = bench.deadline(1);
  Result<Stall> whole = measure_stall(bench, unchunked, deadline_ns);
  if (!whole) return whole.error();
  add_stall(bench, fmt::format("unchunked (steps of {})", unchunked.step_tokens_max), *whole);
  bool is_small_gap = false, is_smaller_gap = false;
  for (const std::string& text : bench.options.gap_settings) {
    Result<Pacing> pacing = parse_pacing(text);
    if (!pacing) return pacing.error();
    const bool is_paced = pacing->plain_steps > 0;
    const std::string name = is_paced ? fmt::format("chunks within {} steps", text) : fmt::format("chunks of {}", text);
    EngineConfig paced = config;
    if (!is_paced) paced.chunk_tokens = pacing->chunk_tokens;
    paced.tpot_target_ms = pacing->plain_steps * whole->plain_ms;
    Result<Stall> stall = measure_stall(bench, paced, deadline_ns);
    if (!stall) {
      bench.report.fail(make_error(stall.error().code, "{}: {}", name, stall.error().message));
      if (stall.error().code == ErrorCode::kDeviceLost) return stall.error();
      continue;
    }
    add_stall(bench, name, *stall);
    const double steps = stall->worst_ms / stall->plain_ms, share = stall->worst_ms / whole->worst_ms;
    const double ttft = stall->ttft_ms / whole->ttft_ms;
    bench.report.add({name + ": gap / plain step", steps, "x", "", at_most(4)});
    bench.report.add({name + ": gap / unchunked gap", share, "x", "", at_most(0.125)});
    bench.report.add({name + ": TTFT / unchunked TTFT", ttft, "x", "", at_most(1.2)});
    is_small_gap |= steps <= 4 && share <= 0.125 && ttft <= 1.2;
    is_smaller_gap |= steps <= 2.5 && ttft <= 1.4;
  }
  bench.report.add({"a setting: gap <= 4 and 1/8, TTFT <= 1.2", is_small_gap ? 1.0 : 0.0, "", "", at_least(1)});
  bench.report.add({"a setting: gap <= 2.5, TTFT <= 1.4", is_smaller_gap ? 1.0 : 0.0, "", "", at_least(1)});
  return {};
}

}  // namespace llmrt::bench
