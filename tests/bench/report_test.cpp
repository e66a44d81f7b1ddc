// The report: pages that need nothing else, text of a record that can only be read, plots of whatever numbers. Method:
// records made by hand; where texts and marks of a plot lie is read from its SVG.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <limits>
#include <regex>

#include "tools/llmrt_bench/report/plot.h"
#include "tools/llmrt_bench/report/report_page.h"
#include "tools/llmrt_bench/report/scale.h"

using namespace llmrt;
using namespace llmrt::bench;
using Catch::Matchers::ContainsSubstring;

namespace {

Caps make_device(const std::string& id) {
  Caps caps;
  caps.device_id = id;
  caps.device_name = "Fake <b>";
  return caps;
}

SavedRecord make_record() {
  SavedRecord record;
  record.path = "a.json";
  record.command = "model";
  record.is_complete = true;
  for (const char* device : {"cuda:0", "vulkan:0"}) {
    record.devices.push_back(make_device(device));
    record.rows.push_back({"limit read", device, {{"rate", "GB/s", 100}}});
    record.rows.push_back({"limit matrix f16 x f16", device, {{"rate", "TFLOP/s", 10}}});
    for (const double tokens : {128.0, 512.0})
      record.rows.push_back(
          {"pp" + std::to_string(tokens),
           device,
           {median_value("tok_s", "tok/s", {tokens, 2 * tokens}), {"ms", "ms", 2}},
           {{"n_prompt", tokens}, {"n_gen", 0}, {"n_depth", 0}, {"n_rows", 1}, {"flops", 1e9}, {"bytes", 1e6}}});
    for (const double rows : {1.0, 8.0, 32.0})
      record.rows.push_back({"tg" + std::to_string(rows),
                             device,
                             {{"tok_s", "tok/s", 90 * rows}, {"ms", "ms", 11 + rows}},
                             {{"n_prompt", 0}, {"n_gen", 8}, {"n_depth", 16}, {"n_rows", rows}}});
  }
  return record;
}

struct Text {
  double left, top, right, bottom;
  std::string text;
};

// With the width that a wide font takes.
std::vector<Text> upright_texts(const std::string& svg) {
  static const std::regex kText(
      R"re(<text x="([-0-9.]+)" y="([-0-9.]+)" text-anchor="(\w+)" ([^>]*)>([^<]*)</text>)re");
  std::vector<Text> all;
  for (std::sregex_iterator it(svg.begin(), svg.end(), kText), end; it != end; ++it) {
    const std::smatch& m = *it;
    if (m[4].str().find("rotate") != std::string::npos) continue;
    const std::string text = m[5];
    const auto num_chars = std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; });
    const double x = std::stod(m[1]), y = std::stod(m[2]), width = 7.5 * static_cast<double>(num_chars);
    const double left = m[3] == "start" ? x : m[3] == "end" ? x - width : x - width / 2;
    all.push_back({left, y - 10, left + width, y + 2, text});
  }
  return all;
}

void check_apart(const std::string& svg) {
  const std::vector<Text> all = upright_texts(svg);
  CHECK(all.size() > 4);
  for (size_t i = 0; i < all.size(); ++i) {
    INFO(all[i].text);
    CHECK(all[i].left >= 0);
    CHECK(all[i].right <= 640);
    for (size_t j = 0; j < i; ++j) {
      INFO(all[j].text);
      CHECK((all[i].right <= all[j].left || all[j].right <= all[i].left || all[i].bottom <= all[j].top ||
             all[j].bottom <= all[i].top));
    }
  }
}

}  // namespace

TEST_CASE("a page has the plots that its rows allow and needs nothing else") {
  const std::string page = report_page({make_record()});
  for (const char* part :
       {"Throughput against latency of decode", "Prompt speed by length", "Roofline of prompts and decode steps",
        "Side by side", "time per token of a row (ms)", "tokens a second (tok/s)", "prefers-color-scheme"})
    CHECK_THAT(page, ContainsSubstring(part));
  for (const char* part : {"http:", "https:", "<script", "src=", "url(", "nan", "inf"})
    CHECK_THAT(page, !ContainsSubstring(part));
  CHECK_THAT(report_page({}), ContainsSubstring("</html>"));
}

TEST_CASE("what a record says is text in the page") {
  SavedRecord record = make_record();
  record.path = record.commit = record.cpu = "<script>alert(1)</script>";
  record.work = {{"<script>", "\"><script>"}};
  record.missing.push_back({"<script>", "<script>", "<script>"});
  record.is_complete = false;
  for (RecordRow& row : record.rows) {
    row.test += "<script>\"'&";
    row.values.push_back({"<script>", "<script>", 1});
    row.details["<script>"] = "</td><script>";
  }
  const std::string page = report_page({record, record});
  CHECK_THAT(page, !ContainsSubstring("<script"));
  CHECK_THAT(page, ContainsSubstring("&lt;script&gt;"));
  CHECK_THAT(page, ContainsSubstring("cut short"));
}

TEST_CASE("numbers that make no picture are left out of it") {
  SavedRecord record = make_record();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const double value : {0.0, -1.0, kNan, 1 / 0.0, 1e308, 1e-308, 1e18}) {
    record.rows.push_back({"pp1",
                           "cuda:0",
                           {{"tok_s", "tok/s", value}, {"ms", "ms", value}},
                           {{"n_prompt", 8}, {"flops", 1e300}, {"bytes", 1e-300}}});
    record.rows.push_back({"tg1",
                           "cuda:0",
                           {{"tok_s", "tok/s", value}, {"ms", "ms", value}},
                           {{"n_gen", 8}, {"n_rows", -3}, {"n_depth", 1}}});
    record.rows.push_back({"serve",
                           "cuda:0",
                           {{"output_tok_s", "tok/s", value}, {"ttft_p50", "ms", value, {value, value, 1}}},
                           {{"requests", {1, "x", {{"due_s", "late"}}}}}});
  }
  const std::string page = report_page({record});
  CHECK_THAT(page, !ContainsSubstring("\"nan"));
  CHECK_THAT(page, !ContainsSubstring("\"inf"));
}

TEST_CASE("ticks are round, in order and on the axis") {
  for (const bool is_log : {false, true})
    for (const auto& values : std::vector<std::vector<double>>{
             {1, 2}, {5}, {0.001, 1000}, {128, 8192}, {1e18, 1e18 + 100}, {3e-9, 4e-9}, {1e-29, 1e29}, {}}) {
      const AxisScale scale(values, is_log, false);
      const std::vector<double> ticks = scale.ticks(6);
      INFO((is_log ? "log " : "") << scale.least() << " to " << scale.most());
      CHECK(ticks.size() >= 2);
      CHECK(ticks.size() <= 10);
      CHECK(std::ranges::is_sorted(ticks));
      for (const double tick : ticks) CHECK((scale.at(tick) > -1e-6 && scale.at(tick) < 1 + 1e-6));
      for (const double value : values) CHECK(scale.shows(value));
    }
  CHECK(number_text(0.05) == "0.05");
  CHECK(number_text(12345.6) == "12,346");
  CHECK(number_text(-1234567) == "-1,234,567");
  CHECK(number_text(4.3e9) == "4.3e+09");
}

TEST_CASE("texts of a plot lie apart, however close the points are") {
  Plot plot{"Crowd", "", {"x (s)", true}, {"y (ms)"}, {}};
  for (int s = 0; s < 3; ++s) {
    PlotSeries series{.name = "series " + std::to_string(s), .points = {}};
    for (int i = 0; i < 40; ++i)
      series.points.push_back({1.0 + i % 7 * 0.1 * (s + 1), 100.0 * i, "a label " + std::to_string(i)});
    plot.series.push_back(series);
  }
  check_apart(to_html(plot));
  plot.x.is_log = false;
  for (PlotSeries& series : plot.series)
    for (PlotPoint& point : series.points) point.x *= 1e6;
  check_apart(to_html(plot));
}

TEST_CASE("texts of bars lie apart") {
  BarPlot plot{
      "Bars", "", "of the fastest (%)", {"a test", "another test with a name that is far too long for it"}, {}};
  plot.series = {{"cuda:0", {100, 98}, {"12,345 tok/s", "1 tok/s"}}, {"vulkan:0", {55, NAN}, {"9,999 tok/s", ""}}};
  check_apart(to_html(plot));
  CHECK_THAT(to_html(plot), !ContainsSubstring("nan"));
}
