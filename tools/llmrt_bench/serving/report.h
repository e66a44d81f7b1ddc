// Figures as they come: each is printed at once, and the JSON file is whole after each, so that a run that is cut short
// leaves what it had.
#pragma once

#include <boost/json.hpp>

#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/base/status.h"

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
  // `json_path` may be empty.
  Report(std::string model, std::string json_path, const Clock* clock);

  // What the figures that follow belong to.
  void begin(std::string device, std::string part);
  void add(const Figure& figure);
  void fail(const Error& error);
  // To standard error, with the time since the start.
  void progress(const std::string& text) const;

  const boost::json::object& json() const { return json_; }
  bool has_failed() const { return has_failed_; }
  Status status() const { return status_; }  // of writing the file

 private:
  void write();

  std::string json_path_, device_, part_;
  const Clock* clock_;
  TimeNs begin_ns_;
  boost::json::object json_;
  bool has_failed_ = false;
  Status status_;
};

}  // namespace llmrt::bench
