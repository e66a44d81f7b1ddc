#include "tools/llmrt_bench/ops/op_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tools/llmrt_bench/record/stats.h"

namespace llmrt::bench {
namespace {

constexpr size_t kFurthest = 5;

struct Figures {
  double us, gb_s, tflop_s, of_limit, of_step;
};
Figures figures_of(const KernelFigures& kernel, const StepFigures& step) {
  const double us = kernel.median_us(), count = static_cast<double>(kernel.kernel.op_idxs.size());
  return {us, 1e-3 * kernel.kernel.cost.bytes / us, 1e-6 * kernel.kernel.cost.flops / us, kernel.floor_us / us,
          1e-3 * us * count / step.sum_ms()};
}

std::string error_text(const OpCheck& check) {
  if (!check.is_checked) return "-";
  return fmt::format("{:.1e}{}", check.error, check.is_wrong() ? " WRONG" : "");
}

}  // namespace

void print_step(const StepKind& kind, const StepFigures& step) {
  fmt::print("\n{} after {}, {}: ", kind.name, kind.shape.start, step.device_id);
  if (!step.missing.empty()) {
    fmt::print("not measured: {}\n", step.missing);
    return;
  }
  fmt::print("{:.3f} ms as submitted, {:.3f} ms op by op\n", median(step.step_ms), step.sum_ms());
  fmt::print("{}{}\n", step.experts, step.experts.empty() ? "" : "\n");
  fmt::print(
      "| {:<36} | {:<11} | {:<34} | {:>5} | {:>9} | {:>9} | {:>8} | {:>7} | {:>8} | {:>8} | {:>8} | {:>6} | {:>8} "
      "| {}\n",
      "kernel", "encoding", "shape", "count", "us", "min", "spread %", "GB/s", "TFLOP/s", "of limit", "lost ms",
      "step %", "error", "compared");
  fmt::print(
      "|{:-<38}|{:-<13}|{:-<36}|{:->6}:|{:->10}:|{:->10}:|{:->9}:|{:->8}:|{:->9}:|{:->9}:|{:->9}:|{:->7}:|"
      "{:->9}:|---\n",
      "", "", "", "", "", "", "", "", "", "", "", "", "");
  for (const KernelFigures& kernel : step.kernels) {
    const Figures f = figures_of(kernel, step);
    const auto [least, most] = std::ranges::minmax(kernel.us);
    fmt::print(
        "| {:<36} | {:<11} | {:<34} | {:>5} | {:>9.2f} | {:>9.2f} | {:>8.1f} | {:>7.1f} | {:>8.3f} | {:>8} | "
        "{:>8.3f} | {:>6.1f} | {:>8} | {}\n",
        kernel.kernel.name, kernel.kernel.encoding, kernel.kernel.shape, kernel.kernel.op_idxs.size(), f.us, least,
        100 * (most - least) / f.us, f.gb_s, f.tflop_s,
        kernel.floor_us > 0 ? fmt::format("{:.1f} %", 100 * f.of_limit) : "-", kernel.lost_ms(), 100 * f.of_step,
        error_text(kernel.check), kernel.check.what);
  }
  std::fflush(stdout);
}

void record_step(const StepKind& kind, const StepFigures& step, Record* record) {
  if (!step.missing.empty()) return record->miss(kind.name, step.device_id, step.missing);
  record->add({kind.name,
               step.device_id,
               {median_value("time", "ms", step.step_ms)},
               {{"sum_ms", step.sum_ms()}, {"experts", step.experts}}});
  for (const KernelFigures& kernel : step.kernels) {
    const Figures f = figures_of(kernel, step);
    const OpCheck& check = kernel.check;
    boost::json::object details{{"kernel", kernel.kernel.name},
                                {"encoding", kernel.kernel.encoding},
                                {"shape", kernel.kernel.shape},
                                {"count", kernel.kernel.op_idxs.size()},
                                {"flops", kernel.kernel.cost.flops},
                                {"bytes", kernel.kernel.cost.bytes},
                                {"floor_us", kernel.floor_us},
                                {"of_limit", f.of_limit},
                                {"of_step", f.of_step},
                                {"compared", check.what},
                                {"error", nullptr},
                                {"error_bound", nullptr},
                                {"is_wrong", check.is_wrong()}};
    if (check.is_checked) {
      if (std::isfinite(check.error)) details["error"] = check.error;
      details["error_bound"] = check.bound;
    }
    record->add({fmt::format("{}: {}", kind.name, kernel.kernel.label()),
                 step.device_id,
                 {median_value("time", "us", kernel.us),
                  {"bandwidth", "GB/s", f.gb_s},
                  {"rate", "TFLOP/s", f.tflop_s},
                  {"lost", "ms", kernel.lost_ms()}},
                 std::move(details)});
  }
}

void print_furthest(const std::vector<MeasuredStep>& all) {
  fmt::print("\nThe {} kernels furthest from their limit, weighted by their share of a step:\n", kFurthest);
  for (const MeasuredStep& measured : all)
    for (const StepFigures& step : measured.devices) {
      if (!step.missing.empty()) continue;
      fmt::print("\n{}, {}\n", measured.kind.name, step.device_id);
      for (size_t i = 0; i < std::min(kFurthest, step.kernels.size()); ++i) {
        const KernelFigures& kernel = step.kernels[i];
        const Figures f = figures_of(kernel, step);
        fmt::print("  {}. {}: {:.1f} % of its limit, {:.1f} % of the step, loses {:.3f} ms\n", i + 1,
                   kernel.kernel.label(), 100 * f.of_limit, 100 * f.of_step, kernel.lost_ms());
      }
    }
}

Status print_checks(const std::vector<MeasuredStep>& all) {
  std::map<std::string, std::string> unchecked;
  std::string wrong;
  size_t num_wrong = 0;
  for (const MeasuredStep& measured : all)
    for (const StepFigures& step : measured.devices)
      for (const KernelFigures& kernel : step.kernels) {
        const OpCheck& check = kernel.check;
        if (!check.is_checked) unchecked.emplace(fmt::format("{}, {}", kernel.kernel.name, step.device_id), check.what);
        if (!check.is_wrong()) continue;
        ++num_wrong;
        wrong += fmt::format("  {}, {}: {}: expected an error of at most {:.1e}, found {:.1e}\n", measured.kind.name,
                             step.device_id, kernel.kernel.label(), check.bound, check.error);
      }
  fmt::print(
      "\nTimed rows sample at temperature 1 and ask for nothing else; of those compared, every other asks for all.\n");
  fmt::print("A share of more than 100 % is that of numbers in a cache: the limits are those of memory.\n");
  if (!unchecked.empty()) fmt::print("\nNot compared with the reference:\n");
  for (const auto& [name, reason] : unchecked) fmt::print("  {}: {}\n", name, reason);
  if (num_wrong > 0) fmt::print("\nBeyond their bound:\n{}", wrong);
  if (num_wrong == 0) return {};
  return make_error(ErrorCode::kInternal, "{} kernels are further from the reference than they may be", num_wrong);
}

}  // namespace llmrt::bench
