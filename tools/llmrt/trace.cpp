// llmrt trace summarize: a file of request records in, the stage that took most of the time and the likely cause out.
#include <boost/json.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/trace/trace_summary.h"
#include "tools/llmrt/program.h"

namespace llmrt::cli {
namespace {

namespace json = boost::json;

struct Options {
  std::string path;
  bool json = false;
};

TraceSummary read_summary(const std::string& path) {
  std::FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (!file) fail(kFailed, fmt::format("cannot read: {}: {}", path, std::strerror(errno)));
  Result<TraceSummary> summary = summarize_trace(file);
  if (file != stdin) std::fclose(file);
  if (!summary) fail(kFailed, fmt::format("{}: {}", path, summary.error().message));
  return std::move(*summary);
}

constexpr TraceStage kStages[] = {TraceStage::kQueue, TraceStage::kPrefill, TraceStage::kDecode, TraceStage::kStream};
constexpr double kQuantiles[] = {0.50, 0.95, 0.99};

json::value number_or_null(std::optional<double> number) {
  return number ? json::value(*number) : json::value(nullptr);
}

json::object quantiles_json(const LatencySketch& times) {
  return {{"p50_ms", number_or_null(times.quantile_ms(0.50))},
          {"p95_ms", number_or_null(times.quantile_ms(0.95))},
          {"p99_ms", number_or_null(times.quantile_ms(0.99))}};
}

void print_json(const TraceSummary& summary, const TraceSummary::Diagnosis& diagnosis) {
  json::object stages, finished;
  for (const TraceStage stage : kStages) {
    json::object entry = quantiles_json(summary.stage(stage).times);
    entry["share"] = summary.share(stage);
    stages[trace_stage_name(stage)] = std::move(entry);
  }
  for (int i = 1; i < kNumFinishReasons; ++i)
    finished[finish_reason_name(static_cast<FinishReason>(i))] = summary.finished()[static_cast<size_t>(i)];
  fmt::print("{}\n", json::serialize(json::object{{"requests", summary.num_requests()},
                                                  {"finished", std::move(finished)},
                                                  {"stages", std::move(stages)},
                                                  {"ttft", quantiles_json(summary.ttft())},
                                                  {"tpot", quantiles_json(summary.tpot())},
                                                  {"dominant", trace_stage_name(diagnosis.dominant)},
                                                  {"cause", trace_cause_name(diagnosis.cause)},
                                                  {"message", trace_cause_text(diagnosis.cause)},
                                                  {"evidence", diagnosis.evidence}}));
}

void print_times(std::string_view name, const std::string& share, const LatencySketch& times) {
  std::string line = fmt::format("{:<8}{:>9}", name, share);
  for (const double quantile : kQuantiles) {
    const auto ms = times.quantile_ms(quantile);
    line += fmt::format("{:>12}", ms ? fmt::format("{:.1f}", *ms) : "-");
  }
  fmt::print("{}\n", line);
}

void print_text(const TraceSummary& summary, const TraceSummary::Diagnosis& diagnosis) {
  std::string ends;
  for (int i = 1; i < kNumFinishReasons; ++i)
    if (const uint64_t count = summary.finished()[static_cast<size_t>(i)]; count > 0)
      ends += fmt::format("{}{} {}", ends.empty() ? "" : ", ", finish_reason_name(static_cast<FinishReason>(i)), count);
  fmt::print("{} requests: {}\n\n{:<8}{:>9}{:>12}{:>12}{:>12}\n", summary.num_requests(), ends, "stage", "share",
             "p50 ms", "p95 ms", "p99 ms");
  for (const TraceStage stage : kStages)
    print_times(trace_stage_name(stage), fmt::format("{:.1f} %", 100 * summary.share(stage)),
                summary.stage(stage).times);
  print_times("TTFT", "", summary.ttft());
  print_times("TPOT", "", summary.tpot());
  fmt::print("\ndominant stage: {}\nlikely cause: {}: {}\nevidence: {}\n", trace_stage_name(diagnosis.dominant),
             trace_cause_name(diagnosis.cause), trace_cause_text(diagnosis.cause), diagnosis.evidence);
}

void summarize(const Options& options) {
  const TraceSummary summary = read_summary(options.path);
  const auto diagnosis = summary.diagnose();
  if (!diagnosis) fail(kFailed, fmt::format("{}: {}", options.path, diagnosis.error().message));
  options.json ? print_json(summary, *diagnosis) : print_text(summary, *diagnosis);
}

}  // namespace

void add_trace(CLI::App& app) {
  CLI::App* command = app.add_subcommand("trace", "Read what serve --request-trace has written; needs no device");
  command->require_subcommand(1);
  CLI::App* summary = command->add_subcommand("summarize", "Name the stage that took most of the time, and why");
  const auto options = std::make_shared<Options>();
  summary->add_option("file", options->path, "file that serve --request-trace wrote, - for standard input")
      ->required()
      ->type_name("FILE");
  summary->add_flag("--json", options->json, "print one JSON object");
  summary->callback([options] { summarize(*options); });
}

}  // namespace llmrt::cli
