#include "tools/llmrt_bench/report/record_plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tools/llmrt_bench/report/plot.h"
#include "tools/llmrt_bench/report/row_fields.h"
#include "tools/llmrt_bench/report/scale.h"
#include "tools/llmrt_bench/report/serve_plots.h"

namespace llmrt::bench {
namespace {

using Rows = std::vector<SourcedRow>;

// Series by name, in the order in which they first came.
class SeriesList {
 public:
  PlotSeries& at(const std::string& name) {
    const auto it = std::ranges::find(all, name, &PlotSeries::name);
    return it != all.end() ? *it : all.emplace_back(PlotSeries{.name = name, .points = {}});
  }
  void sort_points() {
    for (PlotSeries& series : all) std::ranges::stable_sort(series.points, {}, &PlotPoint::x);
  }
  std::vector<PlotSeries> all;
};

bool spans_decade(const std::vector<PlotSeries>& all, double PlotPoint::*of) {
  double least = INFINITY, most = 0;
  for (const PlotSeries& series : all)
    for (const PlotPoint& point : series.points) {
      least = std::min(least, point.*of);
      most = std::max(most, point.*of);
    }
  return most >= 10 * least;
}

void add_throughput(const Rows& rows, std::vector<std::string>* html) {
  SeriesList list;
  std::set<double> depths;
  const auto decodes = [](const RecordRow& row) {
    return number_of(row, "n_gen").value_or(0) > 0 && number_of(row, "tok_s") && number_of(row, "ms") &&
           number_of(row, "n_rows") && number_of(row, "n_depth");
  };
  for (const SourcedRow& sourced : rows)
    if (decodes(*sourced.row)) depths.insert(*number_of(*sourced.row, "n_depth"));
  for (const SourcedRow& sourced : rows) {
    const RecordRow& row = *sourced.row;
    if (!decodes(row)) continue;
    const double num_rows = *number_of(row, "n_rows"), depth = *number_of(row, "n_depth");
    const double tok_s = *number_of(row, "tok_s"), ms = *number_of(row, "ms");
    list.at(depths.size() > 1 ? fmt::format("{}, behind {} tokens", sourced.series, depth) : sourced.series)
        .points.push_back({tok_s, ms, num_rows == 1 ? "1 row" : fmt::format("{} rows", num_rows),
                           fmt::format("{}: {} rows, {:.5g} tok/s, {:.4g} ms", sourced.series, num_rows, tok_s, ms)});
  }
  if (list.all.empty()) return;
  list.sort_points();
  html->push_back(
      to_html(Plot{"Throughput against latency of decode",
                   depths.size() == 1 ? fmt::format("each row behind {} tokens of prompt", *depths.begin()) : "",
                   {"tokens decoded a second, all rows (tok/s)", spans_decade(list.all, &PlotPoint::x), true},
                   {"time per token of a row (ms)", spans_decade(list.all, &PlotPoint::y), true},
                   list.all}));
}

void add_prompts(const Rows& rows, std::vector<std::string>* html) {
  SeriesList list;
  for (const SourcedRow& sourced : rows) {
    const auto tokens = number_of(*sourced.row, "n_prompt"), tok_s = number_of(*sourced.row, "tok_s");
    if (tokens.value_or(0) > 0 && tok_s)
      list.at(sourced.series)
          .points.push_back({*tokens, *tok_s, number_text(*tok_s),
                             fmt::format("{}: {} tokens, {:.5g} tok/s", sourced.series, *tokens, *tok_s)});
  }
  if (list.all.empty()) return;
  list.sort_points();
  html->push_back(to_html(Plot{"Prompt speed by length",
                               "",
                               {"tokens of the prompt", true},
                               {"tokens a second (tok/s)", false, true},
                               list.all}));
}

// The roof of a device: what reading allows, up to what the matrix units do. From one end of the axis to the other.
PlotSeries roof_of(const std::string& name, const RowLimits& limits, int style) {
  constexpr double kIntensityLeast = 1e-4, kIntensityMost = 1e8;
  const double ridge = limits.matrix_tflop_s * 1e3 / limits.read_gb_s;
  return {
      .name = fmt::format("{}: {:.4g} GB/s, {:.4g} TFLOP/s measured", name, limits.read_gb_s, limits.matrix_tflop_s),
      .points = {{kIntensityLeast, kIntensityLeast * limits.read_gb_s * 1e-3},
                 {ridge, limits.matrix_tflop_s},
                 {kIntensityMost, limits.matrix_tflop_s}},
      .has_marks = false,
      .style = style,
      .is_dashed = true,
      .is_guide = true};
}

void add_roofline(const std::string& title, const Rows& rows, std::vector<std::string>* html) {
  SeriesList list;
  std::map<std::string, RowLimits> limits;
  // The longest keep their labels where there is no room for all.
  std::vector<std::pair<double, SourcedRow>> by_ms;
  for (const SourcedRow& sourced : rows) {
    const auto flops = number_of(*sourced.row, "flops"), bytes = number_of(*sourced.row, "bytes");
    const auto ms = time_ms(*sourced.row);
    if (!(flops.value_or(0) > 0) || !(bytes.value_or(0) > 0) || !ms) continue;
    list.at(sourced.series).has_line = false;
    by_ms.emplace_back(*ms * number_of(*sourced.row, "count").value_or(1), sourced);
  }
  std::ranges::stable_sort(by_ms, std::greater<>(), [](const auto& entry) { return entry.first; });
  for (const auto& [weight, sourced] : by_ms) {
    const RecordRow& row = *sourced.row;
    const double flops = *number_of(row, "flops"), bytes = *number_of(row, "bytes"), ms = *time_ms(row);
    limits[sourced.series] = limits_of(*sourced.record, row.device);
    const auto* kernel = row.details.if_contains("kernel");
    const std::string label = kernel && kernel->is_string() ? std::string(kernel->get_string()) : row.test;
    list.at(sourced.series)
        .points.push_back({flops / bytes, flops / ms * 1e-9, label,
                           fmt::format("{} {}: {:.4g} ms, {:.4g} GB/s, {:.4g} TFLOP/s", sourced.series, row.test, ms,
                                       bytes / ms * 1e-6, flops / ms * 1e-9)});
  }
  if (list.all.empty()) return;
  std::vector<PlotSeries> all = list.all;
  PlotAxis rate{"rate (TFLOP/s)", true};
  for (size_t i = 0; i < list.all.size(); ++i)
    if (const RowLimits& limit = limits[list.all[i].name]; limit.read_gb_s > 0 && limit.matrix_tflop_s > 0) {
      all.push_back(roof_of(list.all[i].name, limit, static_cast<int>(i)));
      rate.shown.push_back(limit.matrix_tflop_s);
    }
  html->push_back(to_html(Plot{
      title, "", {"operations for each byte that must be read (FLOP/byte)", true}, std::move(rate), std::move(all)}));
}

// Kernels of each kind of step ("decode of 8: ..."), then whole prompts and steps.
void add_rooflines(const Rows& rows, std::vector<std::string>* html) {
  std::vector<std::pair<std::string, Rows>> kinds;
  Rows steps;
  for (const SourcedRow& sourced : rows) {
    if (!sourced.row->details.contains("kernel")) {
      steps.push_back(sourced);
      continue;
    }
    const std::string kind = sourced.row->test.substr(0, sourced.row->test.find(':'));
    auto it = std::ranges::find(kinds, kind, [](const auto& entry) { return entry.first; });
    if (it == kinds.end()) it = kinds.insert(kinds.end(), {kind, {}});
    it->second.push_back(sourced);
  }
  for (const auto& [kind, of_kind] : kinds) add_roofline("Roofline of kernels: " + kind, of_kind, html);
  add_roofline("Roofline of prompts and decode steps", steps, html);
}

// Each test's rate as a share of the fastest device's.
void add_side_by_side(const Rows& rows, std::vector<std::string>* html) {
  std::vector<std::string> tests, names;
  std::map<std::pair<std::string, std::string>, double> rates;
  for (const SourcedRow& sourced : rows) {
    const RecordRow& row = *sourced.row;
    const Value* rate = nullptr;
    for (const char* name : {"tok_s", "output_tok_s", "value"})
      if (const Value* value = find_value(row, name); !rate && value && value->unit == "tok/s") rate = value;
    if (rate == nullptr || !(rate->value > 0)) continue;
    if (std::ranges::find(tests, row.test) == tests.end()) tests.push_back(row.test);
    if (std::ranges::find(names, sourced.series) == names.end()) names.push_back(sourced.series);
    rates[{row.test, sourced.series}] = rate->value;
  }
  std::erase_if(tests, [&](const std::string& test) {
    return std::ranges::count_if(names, [&](const std::string& name) { return rates.contains({test, name}); }) < 2;
  });
  if (tests.empty()) return;
  std::erase_if(names, [&](const std::string& name) {
    return std::ranges::none_of(tests, [&](const std::string& test) { return rates.contains({test, name}); });
  });
  BarPlot plot{
      "Side by side", "rates of the same test; each bar as a share of the fastest", "of the fastest (%)", tests, {}};
  for (const std::string& name : names) {
    BarPlot::Series series{name, {}, {}};
    for (const std::string& test : tests) {
      double fastest = 0;
      for (const std::string& other : names)
        if (const auto it = rates.find({test, other}); it != rates.end()) fastest = std::max(fastest, it->second);
      const auto it = rates.find({test, name});
      series.values.push_back(it == rates.end() ? NAN : 100 * it->second / fastest);
      series.texts.push_back(it == rates.end() ? "" : number_text(it->second) + " tok/s");
    }
    plot.series.push_back(std::move(series));
  }
  html->push_back(to_html(plot));
}

void add_starts(const Rows& rows, std::vector<std::string>* html) {
  BarPlot plot{"From exec to the first token", "medians of the phases", "time (ms)", {}, {}, true};
  for (const SourcedRow& sourced : rows) {
    if (sourced.record->command != "startup") continue;
    plot.groups.push_back(fmt::format("{} {}", sourced.row->device, sourced.row->test));
    for (const Value& value : sourced.row->values) {
      if (value.name == "total") continue;
      auto it = std::ranges::find(plot.series, value.name, &BarPlot::Series::name);
      if (it == plot.series.end()) it = plot.series.insert(plot.series.end(), {value.name, {}, {}});
      it->values.resize(plot.groups.size(), NAN);
      it->values.back() = value.value;
    }
  }
  for (BarPlot::Series& series : plot.series) series.values.resize(plot.groups.size(), NAN);
  if (!plot.groups.empty()) html->push_back(to_html(plot));
}

}  // namespace

std::vector<std::string> plots_of(const std::vector<SavedRecord>& records) {
  const Rows rows = sourced_rows(records);
  std::vector<std::string> html;
  add_throughput(rows, &html);
  add_prompts(rows, &html);
  add_rooflines(rows, &html);
  add_serve_plots(rows, &html);
  add_side_by_side(rows, &html);
  add_starts(rows, &html);
  return html;
}

}  // namespace llmrt::bench
