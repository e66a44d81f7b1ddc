// From numbers to places on an axis: range, ticks and their texts.
#pragma once

#include <string>
#include <vector>

namespace llmrt::bench {

// Neither infinite nor so large or, on a logarithmic axis, so small that a picture of it would say nothing.
bool is_plottable(double value, bool is_log);

class AxisScale {
 public:
  // Spans all plottable `values` with a margin; from 0 when `from_zero`.
  AxisScale(const std::vector<double>& values, bool is_log, bool from_zero);

  // 0 at the axis' beginning, 1 at its end; outside of it for what it does not show.
  double at(double value) const;
  bool shows(double value) const;
  double least() const { return least_; }
  double most() const { return most_; }
  // Round numbers that lie on the axis, at most about `count`.
  std::vector<double> ticks(int count) const;

 private:
  bool is_log_;
  double least_ = 0, most_ = 1;
};

// "0.05", "12.34", "12,000", "3e+09": four digits or a whole number.
std::string number_text(double value);

}  // namespace llmrt::bench
