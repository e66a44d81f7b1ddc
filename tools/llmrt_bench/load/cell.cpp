#include "tools/llmrt_bench/load/cell.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tools/llmrt_bench/serving/schemas.h"

namespace llmrt::bench {
namespace {

constexpr size_t kAloneRequests = 3;
constexpr uint32_t kBurstMin = 4;
constexpr double kBaseShare = 0.5;        // of the highest rate, beside the burst
constexpr TimeNs kSampleNs = 10'000'000;  // between looks at the engine's queue

struct NamedPattern {
  const char *name, *arrivals;
};
constexpr NamedPattern kPatterns[] = {{"steady", "poisson"}, {"burst", "burst:8"}, {"heavy-tail", "pareto:1.5"}};

ArrivalPattern pattern_of(const std::string& name) {
  const auto* found = std::ranges::find(kPatterns, name, &NamedPattern::name);
  LLMRT_CHECK(found != std::end(kPatterns), name);
  return *parse_arrivals("pattern", found->arrivals);
}

class CellSearch {
 public:
  CellSearch(const CellBench& bench, const Cell& cell, const CellOptions& options)
      : bench_(bench), cell_(cell), options_(options), adapters_(cell.adapters, options.seed) {}

  Result<CellResult> run() {
    const uint32_t context = bench_.engine->config().context_max, wanted = cell_.prompt_tokens + cell_.output_tokens;
    if (wanted > context)
      return no_search(CellVerdict::kDoesNotFit, fmt::format("{} tokens of prompt and {} of output, the context has {}",
                                                             cell_.prompt_tokens, cell_.output_tokens, context));
    if (Status status = run_alone(); !status) return status.error();
    if (result_.alone.summary.num_completed == 0) return no_search(CellVerdict::kCannotRun, failure_);
    if (result_.alone.summary.num_good == 0)
      return no_search(CellVerdict::kMissedAlone, "the objectives are missed without any other request");
    if (Status status = search(); !status) return status.error();
    if (result_.verdict != CellVerdict::kMet) return result_;
    if (Status status = go_beyond(); !status) return status.error();
    if (Status status = burst(); !status) return status.error();
    return result_;
  }

 private:
  CellResult no_search(CellVerdict verdict, std::string note) {
    result_.verdict = verdict;
    result_.note = std::move(note);
    return result_;
  }

  EngineItem item(std::optional<double> arrival_s = {}) {
    EngineItem item{arrival_s, content_.tokens(cell_.prompt_tokens, bench_.engine->model().config.vocab_size),
                    cell_.output_tokens, adapters_.next()};
    if (cell_.sampling == "grammar") item.schema = make_schema(&schemas_);
    return item;
  }

  Result<Trial> trial(const std::string& what, double per_s, const std::vector<EngineItem>& items,
                      uint32_t concurrency) {
    Trial out;
    out.per_s = per_s;
    EngineLoadOptions load{.concurrency = concurrency, .request_class = cell_.request_class};
    load.grammars = bench_.grammars;
    load.adapters = bench_.adapters;
    if (cell_.sampling == "grammar") load.sampling = {.temperature = 1};
    if (cell_.sampling == "top-p") load.sampling = {.temperature = 1, .top_p = 0.9f};
    const OnOutcome progress = bench_.on_trial(fmt::format("{}: {}", cell_.name(), what), items.size());
    const uint64_t preemptions = bench_.engine->stats().num_preemptions;
    TimeNs sampled_ns = 0;
    const auto on_outcome = [&](const Outcome* outcome) {
      progress(outcome);
      const TimeNs now_ns = bench_.clock.now_ns();
      if (now_ns - sampled_ns < kSampleNs) return;
      sampled_ns = now_ns;
      out.waiting_max = std::max(out.waiting_max, bench_.engine->stats().num_waiting);
    };
    Result<std::vector<Outcome>> outcomes =
        run_on_engine(bench_.engine, bench_.clock, bench_.wait_until, items, load, on_outcome);
    if (!outcomes) return outcomes.error();
    outcomes_ = *std::move(outcomes);
    out.summary = summarize(outcomes_, options_.slo);
    out.num_preemptions = bench_.engine->stats().num_preemptions - preemptions;
    for (const Outcome& outcome : outcomes_) {
      out.num_refused += outcome.failure == Failure::kRefused;
      if (outcome.failure) failure_ = outcome.failure_detail;
    }
    return out;
  }

  Status run_alone() {
    std::vector<EngineItem> items;
    for (size_t i = 0; i < kAloneRequests; ++i) items.push_back(item());
    if (Result<Trial> warm_up = trial("warm-up", 0, {items.front()}, 1); !warm_up) return warm_up.error();
    for (EngineItem& each : items) each = item();
    Result<Trial> alone = trial("alone", 0, items, 1);
    if (!alone) return alone.error();
    result_.alone = *std::move(alone);
    // A queue that grows all the time must pass the objective within the trial.
    trial_s_ =
        std::max({options_.trial_s, 3e-3 * result_.alone.summary.e2e_ms.p50, 5e-3 * options_.slo.ttft_ms.value_or(0)});
    return {};
  }

  // The same gaps at each rate, in units of their mean; other words.
  Result<Trial> at_rate(double per_s, const std::string& what) {
    const size_t count = std::max<size_t>(options_.requests_min, static_cast<size_t>(std::ceil(per_s * trial_s_)));
    Draws gaps(options_.seed);
    std::vector<EngineItem> items;
    std::vector<double> times_s = pattern_of(cell_.pattern).times_s(count, per_s, &gaps);
    // Of so few gaps the mean would be another than was asked for; bursts have theirs.
    if (cell_.pattern != "burst" && count > 1) {
      const double stretch = static_cast<double>(count - 1) / per_s / times_s.back();
      for (double& time_s : times_s) time_s *= stretch;
    }
    for (const double time_s : times_s) items.push_back(item(time_s));
    return trial(fmt::format("{} {:.3g} requests/s", what, per_s), per_s, items, 0);
  }

  // Doubles or halves from the rate of requests one after the other, then bisects.
  Status search() {
    double met = 0, missed = 0, per_s = 1e3 / result_.alone.summary.e2e_ms.p50;
    while (result_.num_trials < options_.trials_max) {
      Result<Trial> tried = at_rate(per_s, fmt::format("trial {} at", result_.num_trials + 1));
      if (!tried) return tried.error();
      ++result_.num_trials;
      if (tried->good_share() >= options_.slo_share) {
        met = per_s;
        result_.highest = *std::move(tried);
      } else {
        missed = per_s;
      }
      if (met > 0 && missed > 0 && missed <= met * (1 + options_.tolerance)) break;
      per_s = missed == 0 ? 2 * met : met == 0 ? missed / 2 : std::sqrt(met * missed);
    }
    result_.missed_per_s = missed;
    if (met == 0)
      no_search(CellVerdict::kMissedAlone,
                fmt::format("missed at each of {} rates down to {:.3g} requests/s", result_.num_trials, missed));
    else if (missed == 0)
      result_.note = fmt::format("met at each of {} rates up to {:.3g} requests/s", result_.num_trials, met);
    else if (missed > met * (1 + options_.tolerance))
      result_.note = fmt::format("stopped after {} trials", result_.num_trials);
    return {};
  }

  Status go_beyond() {
    Result<Trial> beyond = at_rate(options_.beyond * result_.highest.per_s, "beyond at");
    if (!beyond) return beyond.error();
    result_.beyond = *std::move(beyond);
    result_.beyond_what = what_happens(result_.beyond, options_);
    return {};
  }

  // Half of the highest rate, evenly, and the burst behind a quarter of a trial. It takes twice as long as the rest of
  // the capacity needs for the burst.
  Status burst() {
    const double highest = result_.highest.per_s, base = kBaseShare * highest, burst_at_s = trial_s_ / 4;
    const auto count = std::max(kBurstMin, static_cast<uint32_t>(std::ceil(highest * options_.burst_s)));
    const double end_s = burst_at_s + 2 * count / (highest - base);
    std::vector<EngineItem> items;
    for (double time_s = 0; time_s < end_s; time_s += 1 / base) items.push_back(item(time_s));
    for (uint32_t i = 0; i < count; ++i) items.push_back(item(burst_at_s));
    std::ranges::stable_sort(items, {}, &EngineItem::arrival_s);
    Result<Trial> ran = trial(fmt::format("burst of {} beside {:.3g} requests/s", count, base), base, items, 0);
    if (!ran) return ran.error();
    result_.burst_requests = count;
    const TimeNs burst_ns = outcomes_.front().due_ns + static_cast<TimeNs>(burst_at_s * 1e9);
    result_.is_recovered = options_.slo.is_met(outcomes_.back());
    for (const Outcome& outcome : outcomes_)
      if (outcome.due_ns > burst_ns && !options_.slo.is_met(outcome))
        result_.recovery_s = std::max(result_.recovery_s, ms_between(burst_ns, outcome.due_ns) * 1e-3);
    return {};
  }

  const CellBench& bench_;
  const Cell& cell_;
  const CellOptions& options_;
  CellResult result_;
  double trial_s_ = 0;
  std::vector<Outcome> outcomes_;  // of the last trial
  std::string failure_;
  AdapterDraws adapters_;
  Draws content_{~options_.seed}, schemas_{~options_.seed};
};

}  // namespace

std::string Cell::name() const {
  return fmt::format("{} + {} tokens, {}, {}, {}{}", prompt_tokens, output_tokens, request_class_name(request_class),
                     sampling, adapters.count > 0 ? fmt::format("adapters {}, ", adapters.name()) : "", pattern);
}

double Trial::good_share() const {
  return summary.num_requests == 0 ? 0
                                   : static_cast<double>(summary.num_good) / static_cast<double>(summary.num_requests);
}

const char* cell_verdict_name(CellVerdict verdict) {
  constexpr std::array kNames = {"met", "missed_alone", "does_not_fit", "cannot_run"};
  return kNames[static_cast<size_t>(verdict)];
}

std::string what_happens(const Trial& trial, const CellOptions& options) {
  std::string what;
  const auto add = [&](bool happens, const char* name) {
    if (!happens) return;
    if (!what.empty()) what += '+';
    what += name;
  };
  const auto is_late = [](const Distribution& of, std::optional<double> limit_ms) {
    return limit_ms && of.p95 > *limit_ms;
  };
  add(trial.num_refused > 0, "rejects");
  add(trial.num_preemptions > 0, "preempts");
  add(is_late(trial.summary.ttft_ms, options.slo.ttft_ms), trial.waiting_max > 0 ? "queues" : "delays");
  add(is_late(trial.summary.tpot_ms, options.slo.tpot_ms), "degrades");
  add(what.empty() && trial.good_share() < options.slo_share, "misses");
  return what.empty() ? "holds" : what;
}

Result<CellResult> measure_cell(const CellBench& bench, const Cell& cell, const CellOptions& options) {
  return CellSearch(bench, cell, options).run();
}

}  // namespace llmrt::bench
