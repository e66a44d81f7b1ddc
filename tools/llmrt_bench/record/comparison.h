// Two records side by side, row by row. Only runs of the same command and the same work compare.
#pragma once

#include <string>
#include <vector>

#include "tools/llmrt_bench/record/saved_record.h"

namespace llmrt::bench {

// What a value says of speed, by its unit.
enum class Direction { kNone, kMoreIsBetter, kLessIsBetter };
Direction direction_of(std::string_view unit);
// Whether it tells how fast the measured side is. late_* are times too, but of the load generator itself.
bool is_guarded(const Value& value);

struct ComparedValue {
  std::string test, device_a, device_b;
  Value a, b;

  Direction direction() const { return direction_of(a.unit); }
  // 1 where both are equal, 0 too, or neither is known; not a number where one of them is not.
  double ratio() const;
  // Where the ratio may lie, as far as the samples of both tell.
  std::pair<double, double> ratio_range() const;
  // How much slower b is, as a share of a's speed; negative = faster. 0 without a direction.
  double slowdown() const;
};

struct Comparison {
  std::vector<ComparedValue> values;
  std::vector<std::string> only_a, only_b;  // rows and values that the other has not
  std::vector<std::string> lost;            // those of only_a that are guarded
  std::vector<std::string> settings;        // that differ
};

struct ComparisonOptions {
  std::string device_a = {}, device_b = {};  // rows of this device only; empty = all
  std::vector<std::string> names = {};       // of values; empty = all
};

// Rows belong together by test and device; by test alone where each side has one device. Errors: invalid_argument:
// other work, each difference with its name; a device or a value that neither has.
Result<Comparison> compare(const SavedRecord& a, const SavedRecord& b, const ComparisonOptions& options);

// What differs between two objects, at any depth: "work.depth: 512 and 256".
std::vector<std::string> differences(const std::string& place, const boost::json::value& a,
                                     const boost::json::value& b);

}  // namespace llmrt::bench
