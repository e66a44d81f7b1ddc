// Figures as they come: each is printed and recorded at once.
#pragma once

#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "tools/llmrt_bench/record/record.h"

namespace llmrt::bench {

struct Target {
  enum class Kind { kAtLeast, kAtMost } kind;
  double bound;
  bool is_met(double value) const { return kind == Kind::kAtLeast ? value >= bound : value <= bound; }
};
constexpr Target at_least(double bound) {
  return {Target::Kind::kAtLeast, bound};
}
constexpr Target at_most(double bound) {
  return {Target::Kind::kAtMost, bound};
}

struct Figure {
  std::string name;
  double value = 0;
  std::string unit = {};
  std::string note = {};  // what stands beside it
  std::optional<Target> target = {};
};

class Report {
 public:
  // Both outlive the report. With a price every rate of tokens is followed by what they cost.
  Report(Record* record, const Clock* clock, double price_hour_usd = 0);

  // What the figures that follow belong to.
  void begin(std::string device, std::string part);
  void add(const Figure& figure);
  void fail(const Error& error);
  // To standard error, with the time since the start.
  void progress(const std::string& text) const;

  bool has_failed() const { return has_failed_; }

 private:
  std::string device_, part_;
  Record* record_;
  double price_hour_usd_;
  const Clock* clock_;
  TimeNs begin_ns_;
  bool has_failed_ = false;
};

}  // namespace llmrt::bench
