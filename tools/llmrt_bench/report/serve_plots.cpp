#include "tools/llmrt_bench/report/serve_plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tools/llmrt_bench/report/plot.h"

namespace llmrt::bench {
namespace {

struct Measure {
  const char *name, *title;
};
constexpr Measure kMeasures[] = {{"ttft", "time to the first token (ms)"},
                                 {"tpot", "time per output token (ms)"},
                                 {"itl", "gap between tokens (ms)"},
                                 {"e2e", "time to the last token (ms)"}};

std::string name_of(const SourcedRow& sourced) {
  return sourced.series.empty() ? sourced.row->test : fmt::format("{}, {}", sourced.series, sourced.row->test);
}

// Of sorted samples: the least that so large a share does not pass.
double percentile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

// Loads of one device belong together whatever file they are in, unless the same load comes twice.
void add_serve_throughput(const std::vector<SourcedRow>& rows, std::vector<std::string>* html) {
  std::set<std::pair<std::string, std::string>> loads;
  bool has_twins = false;
  for (const SourcedRow& sourced : rows)
    if (number_of(*sourced.row, "output_tok_s")) has_twins |= !loads.emplace(sourced.device, sourced.row->test).second;
  std::vector<PlotSeries> all;
  int style = 0;
  for (const SourcedRow& sourced : rows) {
    const auto tok_s = number_of(*sourced.row, "output_tok_s");
    for (const char* share : {"p50", "p95"}) {
      const auto ms = number_of(*sourced.row, fmt::format("tpot_{}", share));
      if (!tok_s || !ms) continue;
      const std::string name = fmt::format("{} {}", has_twins ? sourced.series : sourced.device, share);
      auto it = std::ranges::find(all, name, &PlotSeries::name);
      if (it == all.end())
        it = all.insert(all.end(), {.name = name, .points = {}, .style = style++ / 2, .is_dashed = share[1] == '9'});
      it->points.push_back({*tok_s, *ms, sourced.row->test,
                            fmt::format("{}: {:.4g} tok/s, {} {:.4g} ms", name_of(sourced), *tok_s, share, *ms)});
    }
  }
  if (std::ranges::none_of(all, [](const PlotSeries& series) { return series.points.size() > 1; })) return;
  for (PlotSeries& series : all) std::ranges::stable_sort(series.points, {}, &PlotPoint::x);
  html->push_back(to_html(Plot{"Throughput against latency of serving",
                               "each point is one load",
                               {"output tokens a second (tok/s)", false, true},
                               {"time per output token (ms)", false, true},
                               std::move(all)}));
}

// The share of samples that are done by a time.
void add_distribution(const Measure& measure, const std::vector<SourcedRow>& rows, std::vector<std::string>* html) {
  constexpr int kPoints = 200;
  std::vector<PlotSeries> all;
  for (const SourcedRow& sourced : rows) {
    const Value* value = find_value(*sourced.row, fmt::format("{}_p50", measure.name));
    if (value == nullptr || value->samples.size() < 2) continue;
    std::vector<double> sorted = value->samples;
    std::erase_if(sorted, [](double sample) { return !std::isfinite(sample); });
    if (sorted.empty()) continue;
    std::ranges::sort(sorted);
    PlotSeries series{.name = name_of(sourced), .points = {}, .has_marks = false};
    for (int i = 1; i <= kPoints; ++i) {
      const double share = static_cast<double>(i) / kPoints;
      series.points.push_back({percentile(sorted, share), 100 * share});
    }
    all.push_back(std::move(series));
  }
  if (all.empty()) return;
  html->push_back(to_html(Plot{fmt::format("Percentiles of {}", std::string_view(measure.title)),
                               "",
                               {measure.title, true},
                               {"samples within that time (%)", false, true},
                               std::move(all)}));
}

struct Sample {
  double due_s, ms;
};

std::vector<Sample> samples_of(const RecordRow& row, const std::string& field) {
  std::vector<Sample> samples;
  const boost::json::value* requests = row.details.if_contains("requests");
  if (requests == nullptr || !requests->is_array()) return samples;
  for (const boost::json::value& request : requests->get_array()) {
    if (!request.is_object()) continue;
    const auto* due_s = request.get_object().if_contains("due_s");
    const auto* ms = request.get_object().if_contains(field);
    if (due_s && ms && due_s->is_number() && ms->is_number())
      samples.push_back({due_s->to_number<double>(), ms->to_number<double>()});
  }
  std::ranges::stable_sort(samples, {}, &Sample::due_s);
  return samples;
}

// Of one test, as all loads in one picture would hide each other.
void add_over_time(const Measure& measure, const std::string& test, const std::vector<SourcedRow>& rows,
                   std::vector<std::string>* html) {
  constexpr size_t kSamplesWindow = 10, kWindowsMax = 30;
  std::vector<PlotSeries> all;
  int style = 0;
  for (const SourcedRow& sourced : rows) {
    if (sourced.row->test != test) continue;
    const std::vector<Sample> samples = samples_of(*sourced.row, fmt::format("{}_ms", measure.name));
    const size_t num_windows = std::min(samples.size() / kSamplesWindow, kWindowsMax);
    if (num_windows < 2) continue;
    PlotSeries p50{.name = sourced.series + " p50", .points = {}, .style = style};
    PlotSeries p95{.name = sourced.series + " p95", .points = {}, .style = style++, .is_dashed = true};
    for (size_t w = 0; w < num_windows; ++w) {
      const size_t begin = w * samples.size() / num_windows, end = (w + 1) * samples.size() / num_windows;
      std::vector<double> sorted;
      for (size_t i = begin; i < end; ++i) sorted.push_back(samples[i].ms);
      std::ranges::sort(sorted);
      const double middle_s = (samples[begin].due_s + samples[end - 1].due_s) / 2;
      for (const auto& [series, share] : {std::pair{&p50, 0.5}, {&p95, 0.95}}) {
        const double ms = percentile(sorted, share);
        series->points.push_back(
            {middle_s, ms, "", fmt::format("{}: {:.4g} s, {:.4g} ms", series->name, middle_s, ms)});
      }
    }
    all.push_back(std::move(p50));
    all.push_back(std::move(p95));
  }
  if (all.empty()) return;
  html->push_back(to_html(Plot{fmt::format("Over time: {}", test),
                               "percentiles of requests that were due at about the same time",
                               {"time since the beginning (s)", false, true},
                               {measure.title, false, true},
                               std::move(all)}));
}

}  // namespace

void add_serve_plots(const std::vector<SourcedRow>& rows, std::vector<std::string>* html) {
  add_serve_throughput(rows, html);
  std::vector<std::string> tests;
  for (const SourcedRow& sourced : rows)
    if (std::ranges::find(tests, sourced.row->test) == tests.end()) tests.push_back(sourced.row->test);
  for (const std::string& test : tests)
    for (const Measure& measure : kMeasures) add_over_time(measure, test, rows, html);
  for (const Measure& measure : kMeasures) add_distribution(measure, rows, html);
}

}  // namespace llmrt::bench
