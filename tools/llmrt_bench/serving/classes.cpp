// Two classes on one device: interactive requests alone, then beside twice the load that the device bears. How long the
// first token takes in either, and what batch gets.
//
// Both classes ask for the same kind of request, so what the device serves does not depend on whom it serves. First
// both have always somebody waiting: that tells the capacity, and each class is due its configured share of what is
// scarce. Then interactive requests come by Poisson at kLoad of their share (of that of prefill or of decode, whichever
// is less), the same ones alone and beside batch, so the class is never owed more than it asks for. What it does not
// use is lent: batch is due all the rest of the capacity.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/llmrt_bench/serving/parts.h"
#include "tools/llmrt_bench/serving/traffic.h"

namespace llmrt::bench {
namespace {

constexpr double kOverload = 2;         // of both classes, beside the capacity
constexpr double kLoad = 0.8;           // of interactive, beside its share
constexpr double kCapacityShare = 0.5;  // of the time under overload, for measuring the capacity
constexpr double kLeadInStays = 3;      // until it counts: as many times as long as a request stays under full load
constexpr double kFullChunks = 0.6;     // prompts are scarce in steps that hold so much of what they may on average
constexpr double kFullSlots = 0.9;      // and slots are, too, when so many are taken

struct Capacity {
  double tok_s = 0;
  double lead_in_s = 0;
};

// Of one class: what came in the window, and what was served in it.
struct ClassFigures {
  size_t num_asked = 0, num_refused = 0;
  TokenCounts asked, served;
};
ClassFigures figures_of(const Traffic& traffic, Window window) {
  return {traffic.num_asked(window), traffic.num_refused(window), traffic.asked(window), traffic.served(window)};
}

// What came of one phase.
struct Phase {
  Window window;
  ClassFigures interactive, batch;
  std::vector<double> ttfts_ms;  // of interactive
  size_t num_unanswered = 0;
  StepCounts steps;
};

// Of interactive and batch alone.
double share_of(Lane lane, const std::array<double, kNumLanes>& shares) {
  const auto of = [&](Lane each) { return shares[static_cast<size_t>(each)]; };
  return of(lane) / (of(Lane::kInteractive) + of(Lane::kBatch));
}

double interactive_share(const ClassShares& shares) {
  return std::min(share_of(Lane::kInteractive, shares.decode), share_of(Lane::kInteractive, shares.prefill));
}

EngineConfig config_of(const Bench& bench) {
  const ServingOptions& options = bench.options;
  EngineConfig config;
  config.kv_dtype = options.kv_dtype;
  config.sequences_max = options.classes_rows;
  config.chunk_tokens = options.classes_chunk;
  config.context_max = options.classes_prompt + options.classes_output;
  config.kv_tokens = uint64_t{config.sequences_max} * (config.context_max + config.block_tokens) * 33 / 32;
  // A queue that is full takes short prompts where long ones are refused, so the capacity would be that of another mix.
  config.queue_tokens_max = config.queue_branches_max = config.queue_bytes_max = uint64_t{1} << 40;
  return config;
}

class Scene {
 public:
  Scene(Engine* engine, const Bench& bench) : bench_(bench), engine_(engine), drive_(engine, &bench.clock) {}

  // With all that an idle engine prepares: a size's first step would wait for it, in one phase and not in the other.
  Status warm_up() {
    for (bool prepares = true; prepares;) {
      Result<bool> prepared = engine_->prepare_next();
      if (!prepared) return prepared.error();
      prepares = *prepared;
    }
    return drive_.warm_up(bench_.options.classes_rows);
  }

  // Both classes have always somebody waiting. Its figures go to the report.
  Result<Capacity> saturate() {
    const uint32_t rows = bench_.options.classes_rows;
    Traffic interactive = traffic(RequestClass::kInteractive), batch = traffic(RequestClass::kBatch);
    const Arrivals arrivals = [&](TimeNs) -> Result<TimeNs> {
      for (Traffic* each : {&interactive, &batch})
        if (Status status = each->keep_waiting(rows); !status) return status.error();
      return kNever;
    };
    // Until on average each row has been taken twice.
    const auto is_steady = [&] { return interactive.num_finished() + batch.num_finished() >= 2 * size_t{rows}; };
    Result<bool> steady = drive_.until(is_steady, in_s(bench_.options.classes_s), arrivals, bench_.wait_until);
    if (!steady) return steady.error();
    if (!*steady)
      return make_error(ErrorCode::kTimeout, "in --classes-s {} no {} requests were answered", bench_.options.classes_s,
                        2 * rows);
    const EngineStats before = engine_->stats();
    Window window{bench_.clock.now_ns(), in_s(kCapacityShare * bench_.options.classes_s)};
    Result<bool> ended = drive_.until([] { return false; }, window.to_ns, arrivals, bench_.wait_until);
    if (!ended) return ended.error();
    window.to_ns = bench_.clock.now_ns();
    const StepCounts steps = steps_between(before, engine_->stats());
    if (Status status = drive_.finish(); !status) return status.error();
    const TokenCounts of_interactive = interactive.served(window), of_batch = batch.served(window);
    const double tok_s = (of_interactive.all() + of_batch.all()) / window.seconds();
    bench_.report.add(
        {"both backlogged: served", tok_s, "tok/s",
         fmt::format("prompts and answers; {:.1f} requests/s, {} steps of {:.1f} rows of {}, {} preemptions",
                     tok_s / request_spec().mean_tokens(), steps.num_steps, steps.mean_rows, rows,
                     steps.num_preemptions)});
    add_shares(of_interactive, of_batch, steps);
    return Capacity{tok_s, kLeadInStays * rows * request_spec().mean_tokens() / tok_s};
  }

  // Requests come for the lead-in and the time under overload.
  Result<Phase> play(double interactive_per_s, double batch_per_s, double lead_in_s) {
    Traffic interactive = traffic(RequestClass::kInteractive), batch = traffic(RequestClass::kBatch);
    Phase phase;
    const TimeNs begin_ns = bench_.clock.now_ns(), from_ns = begin_ns + ns_of(lead_in_s);
    phase.window = {from_ns, from_ns + ns_of(bench_.options.classes_s)};
    const Window whole{begin_ns, phase.window.to_ns};
    interactive.come(interactive_per_s, whole);
    if (batch_per_s > 0) batch.come(batch_per_s, whole);
    const Arrivals arrivals = [&](TimeNs now) -> Result<TimeNs> {
      TimeNs next_ns = now < whole.to_ns ? whole.to_ns : kNever;
      for (Traffic* each : {&interactive, &batch}) {
        Result<TimeNs> next = each->submit_due(now);
        if (!next) return next.error();
        next_ns = std::min(next_ns, *next);
      }
      return next_ns;
    };
    const auto run_to = [&](TimeNs end_ns) {
      return drive_.until([] { return false; }, end_ns, arrivals, bench_.wait_until);
    };
    if (Result<bool> ran = run_to(phase.window.from_ns); !ran) return ran.error();
    const EngineStats before = engine_->stats();
    if (Result<bool> ran = run_to(phase.window.to_ns); !ran) return ran.error();
    phase.steps = steps_between(before, engine_->stats());
    // Who came last, in the last step even, is answered, too, while what batch has in the queue goes on.
    if (Result<TimeNs> last = arrivals(phase.window.to_ns); !last) return last.error();
    Result<bool> answered = drive_.until([&] { return interactive.num_waiting() == 0; }, in_s(bench_.options.classes_s),
                                         arrivals, bench_.wait_until);
    if (!answered) return answered.error();
    phase.num_unanswered = interactive.num_waiting();
    phase.ttfts_ms = interactive.ttfts_ms(phase.window, bench_.clock.now_ns());
    phase.interactive = figures_of(interactive, phase.window);
    phase.batch = figures_of(batch, phase.window);
    if (Status status = drive_.finish(); !status) return status.error();
    return phase;
  }

  TrafficSpec request_spec() const {
    const ServingOptions& options = bench_.options;
    TrafficSpec spec;
    spec.prompt_min = std::max(1u, options.classes_prompt / 8);
    spec.prompt_max = options.classes_prompt;
    spec.output_min = std::max(1u, options.classes_output / 8);
    spec.output_max = options.classes_output;
    spec.vocab_size = bench_.vocab_size();
    return spec;
  }

 private:
  // The same requests at the same times in each run, with other words.
  Traffic traffic(RequestClass request_class) {
    TrafficSpec spec = request_spec();
    spec.request_class = request_class;
    spec.seed = 1 + static_cast<uint64_t>(request_class);
    spec.content_seed = ++num_traffics_;
    return Traffic(spec, &drive_);
  }

  static TimeNs ns_of(double seconds) { return static_cast<TimeNs>(seconds * 1e9); }
  TimeNs in_s(double seconds) const { return bench_.clock.now_ns() + ns_of(seconds); }

  // Slots are shared by decode, what a step may hold of prompts by prefill. Where both are scarce the two take turns,
  // so that anything between is right.
  void add_shares(const TokenCounts& interactive, const TokenCounts& batch, const StepCounts& steps) const {
    const EngineConfig config = config_of(bench_);
    const double rows = steps.mean_rows / config.sequences_max;
    const double prompts = static_cast<double>(interactive.prompt + batch.prompt) /
                           static_cast<double>(steps.num_steps * config.chunk_tokens);
    const double by_decode = 100 * share_of(Lane::kBatch, config.class_shares.decode);
    const double by_prefill = 100 * share_of(Lane::kBatch, config.class_shares.prefill);
    const bool has_full_chunks = prompts >= kFullChunks, has_full_slots = rows >= kFullSlots || !has_full_chunks;
    const double least = has_full_slots ? by_decode : by_prefill, most = has_full_chunks ? by_prefill : by_decode;
    const double got = 100 * batch.all() / (interactive.all() + batch.all());
    const double off = std::abs(got - std::clamp(got, std::min(least, most), std::max(least, most)));
    bench_.report.add({"both backlogged: batch off its share", off, "points",
                       fmt::format("{:.1f} % of tokens; due {:.1f} % by decode, {:.1f} % by prefill: {} scarce, {:.0f} "
                                   "% of slots and {:.0f} % of prompt chunks are full",
                                   got, by_decode, by_prefill,
                                   !has_full_slots    ? "chunks are"
                                   : !has_full_chunks ? "slots are"
                                                      : "both are",
                                   100 * rows, 100 * prompts),
                       at_most(5)});
  }

  const Bench& bench_;
  Engine* engine_;
  Drive drive_;
  uint64_t num_traffics_ = 0;
};

double p95(const std::vector<double>& ttfts_ms) {
  return quantile(ttfts_ms, 0.95);
}

// What the ratio of two p95s of the same requests says about others like them: requests drawn again, each in both
// phases at once.
std::string spread_of_ratio(const std::vector<double>& alone_ms, const std::vector<double>& beside_ms) {
  constexpr int kDraws = 1000;
  const size_t count = std::min(alone_ms.size(), beside_ms.size());
  if (count == 0) return "";
  Draws draws(1);
  std::vector<double> ratios, alone(count), beside(count);
  for (int draw = 0; draw < kDraws; ++draw) {
    for (size_t i = 0; i < count; ++i) {
      const uint32_t one = draws.below(static_cast<uint32_t>(count));
      alone[i] = alone_ms[one];
      beside[i] = beside_ms[one];
    }
    ratios.push_back(p95(beside) / p95(alone));
  }
  return fmt::format("two thirds of samples like it: {:.2f} to {:.2f}", quantile(ratios, 1.0 / 6),
                     quantile(ratios, 5.0 / 6));
}

void add_ttft(const Bench& bench, const std::string& name, const Phase& phase) {
  bench.report.add({name + ": interactive TTFT, p95", p95(phase.ttfts_ms), "ms",
                    fmt::format("p50 {:.2f}, most {:.2f}; {} requests in {:.1f} s, {} without a token at the end; {} "
                                "steps of {:.1f} rows, {:.2f} ms on average",
                                quantile(phase.ttfts_ms, 0.5), quantile(phase.ttfts_ms, 1), phase.interactive.num_asked,
                                phase.window.seconds(), phase.num_unanswered, phase.steps.num_steps,
                                phase.steps.mean_rows, phase.steps.mean_ms)});
}

void add_overload(const Bench& bench, const Phase& phase, double tok_s) {
  const double capacity = tok_s * phase.window.seconds();
  bench.report.add({"overload: offered / capacity",
                    (phase.interactive.asked.all() + phase.batch.asked.all()) / capacity, "x",
                    fmt::format("{} batch requests, {} of them refused by a full queue", phase.batch.num_asked,
                                phase.batch.num_refused)});
  const double due = 100 * (1 - phase.interactive.asked.all() / capacity),
               got = 100 * phase.batch.served.all() / capacity;
  bench.report.add(
      {"overload: batch off what is due", std::abs(got - due), "points",
       fmt::format("{:.1f} % of the capacity over {:.1f} s, due {:.1f} %: what interactive leaves; served "
                   "(prompts + answers): interactive {} + {}, batch {} + {} tokens; {} preemptions",
                   got, phase.window.seconds(), due, phase.interactive.served.prompt, phase.interactive.served.output,
                   phase.batch.served.prompt, phase.batch.served.output, phase.steps.num_preemptions),
       at_most(5)});
}

}  // namespace

Status classes_part(const Bench& bench) {
  const EngineConfig config = config_of(bench);
  Result<std::unique_ptr<Engine>> engine = bench.make_engine(config);
  if (!engine) return engine.error();
  Scene scene(engine->get(), bench);
  if (Status status = scene.warm_up(); !status) return status;
  Result<Capacity> capacity = scene.saturate();
  if (!capacity) return capacity.error();
  const double per_s = capacity->tok_s / scene.request_spec().mean_tokens();
  const double interactive_per_s = kLoad * interactive_share(config.class_shares) * per_s;
  Result<Phase> alone = scene.play(interactive_per_s, 0, capacity->lead_in_s);
  if (!alone) return alone.error();
  if (alone->ttfts_ms.empty())
    return make_error(ErrorCode::kTimeout, "in --classes-s {} no interactive request came, {:.3f} a second are wanted",
                      bench.options.classes_s, interactive_per_s);
  add_ttft(bench, "alone", *alone);
  Result<Phase> beside = scene.play(interactive_per_s, kOverload * per_s - interactive_per_s, capacity->lead_in_s);
  if (!beside) return beside.error();
  add_ttft(bench, "overload", *beside);
  bench.report.add({"overload: TTFT p95 / alone", p95(beside->ttfts_ms) / p95(alone->ttfts_ms), "x",
                    spread_of_ratio(alone->ttfts_ms, beside->ttfts_ms), at_most(1.2)});
  bench.report.add(
      {"overload: interactive refused", static_cast<double>(beside->interactive.num_refused), "", "", at_most(0)});
  add_overload(bench, *beside, capacity->tok_s);
  return {};
}

}  // namespace llmrt::bench
