#include "tools/llmrt_bench/report/scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace llmrt::bench {
namespace {

constexpr double kMargin = 0.08;  // of the range, on both sides

// The least of 1, 2, 5 times a power of ten that is at least `step`.
double round_step(double step) {
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= step * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

std::vector<double> linear_ticks(double least, double most, int count) {
  const double step = round_step((most - least) / count);
  std::vector<double> ticks;
  for (double i = std::ceil(least / step - 1e-9); i * step <= most + step * 1e-9; ++i) ticks.push_back(i * step);
  return ticks;
}

std::vector<double> log_ticks(double least, double most, int count) {
  const double decades = std::log10(most / least);
  if (decades < 1) return linear_ticks(least, most, count);
  std::vector<double> ticks;
  const int stride = static_cast<int>(std::ceil(decades / count));
  const bool has_parts = 3 * decades <= count;
  for (int power = static_cast<int>(std::floor(std::log10(least))); std::pow(10, power) <= most; ++power)
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * std::pow(10, power);
      if (tick < least || tick > most || (factor > 1 && !has_parts) || power % stride != 0) continue;
      ticks.push_back(tick);
    }
  return ticks;
}

}  // namespace

bool is_plottable(double value, bool is_log) {
  constexpr double kMost = 1e30;
  return std::fabs(value) <= kMost && (!is_log || value >= 1 / kMost);
}

AxisScale::AxisScale(const std::vector<double>& values, bool is_log, bool from_zero) : is_log_(is_log) {
  double least = INFINITY, most = -INFINITY;
  for (const double value : values) {
    if (!is_plottable(value, is_log)) continue;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  if (!(least <= most)) {
    least = is_log ? 1 : 0;
    most = is_log ? 10 : 1;
  }
  if (is_log) {
    const double factor = std::max(std::pow(most / least, kMargin), 1.15);
    least_ = least / factor;
    most_ = most * factor;
    return;
  }
  if (from_zero) least = std::min(least, 0.0);
  const double size = std::max({std::fabs(least), std::fabs(most), 1e-30});
  const double margin = most - least > 1e-6 * size ? (most - least) * kMargin : size * kMargin;
  least_ = from_zero && least == 0 ? 0 : least - margin;
  most_ = most + margin;
}

double AxisScale::at(double value) const {
  if (is_log_) return std::log(value / least_) / std::log(most_ / least_);
  return (value - least_) / (most_ - least_);
}

bool AxisScale::shows(double value) const {
  return std::isfinite(value) && value >= least_ && value <= most_;
}

std::vector<double> AxisScale::ticks(int count) const {
  return is_log_ ? log_ticks(least_, most_, count) : linear_ticks(least_, most_, count);
}

std::string number_text(double value) {
  const double size = std::fabs(value);
  if (size < 999.95 || size >= 1e9) return fmt::format("{:.4g}", size < 1e-12 ? 0 : value);
  const std::string digits = fmt::format("{:.0f}", size);
  std::string text = value < 0 ? "-" : "";
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

}  // namespace llmrt::bench
