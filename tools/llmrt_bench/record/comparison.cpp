#include "tools/llmrt_bench/record/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace llmrt::bench {
namespace {

namespace json = boost::json;

std::set<std::string> devices_of(const SavedRecord& record, const std::string& only) {
  std::set<std::string> devices;
  for (const RecordRow& row : record.rows)
    if (only.empty() || row.device == only) devices.insert(row.device);
  return devices;
}

Status check_device(const char* option, const SavedRecord& record, const std::string& device) {
  const std::set<std::string> all = devices_of(record, "");
  if (device.empty() || all.contains(device)) return {};
  return make_error(ErrorCode::kInvalidArgument, "{}: expected a device of {} ({}), found {}", option, record.path,
                    fmt::join(all, ", "), device);
}

std::string text_of(const json::value* value) {
  if (value == nullptr) return "none";
  return value->is_double() ? fmt::format("{}", value->get_double()) : json::serialize(*value);
}

std::string place_of(const RecordRow& row) {
  return row.device.empty() ? row.test : fmt::format("{} {}", row.device, row.test);
}

double quotient(double b, double a) {
  return a == b || (std::isnan(a) && std::isnan(b)) ? 1 : b / a;
}

// Every value of the rows that belong together.
class Pairing {
 public:
  Pairing(const SavedRecord& a, const SavedRecord& b, const ComparisonOptions& options) : options_(options) {
    const auto devices_a = devices_of(a, options.device_a), devices_b = devices_of(b, options.device_b);
    by_test_ = devices_a.size() == 1 && devices_b.size() == 1;
    for (const RecordRow& row : a.rows)
      if (devices_a.contains(row.device)) rows_a_.push_back(&row);
    for (const RecordRow& row : b.rows)
      if (devices_b.contains(row.device)) rows_b_.push_back(&row);
  }

  Comparison pair() {
    for (const RecordRow* row : rows_a_) {
      const RecordRow* other = twin(*row, rows_b_);
      if (other)
        pair_values(*row, *other);
      else if (has_wanted(*row, false))
        add_only_a(place_of(*row), has_wanted(*row, true));
    }
    for (const RecordRow* row : rows_b_)
      if (has_wanted(*row, false) && twin(*row, rows_a_) == nullptr) all_.only_b.push_back(place_of(*row));
    return std::move(all_);
  }

 private:
  const RecordRow* twin(const RecordRow& row, const std::vector<const RecordRow*>& others) const {
    const auto it = std::ranges::find_if(others, [&](const RecordRow* other) {
      return other->test == row.test && (by_test_ || other->device == row.device);
    });
    return it == others.end() ? nullptr : *it;
  }
  bool is_wanted(const Value& value) const {
    return options_.names.empty() || std::ranges::find(options_.names, value.name) != options_.names.end();
  }
  bool has_wanted(const RecordRow& row, bool guarded) const {
    return std::ranges::any_of(row.values,
                               [&](const Value& value) { return is_wanted(value) && (!guarded || is_guarded(value)); });
  }
  void add_only_a(std::string place, bool guarded) {
    if (guarded) all_.lost.push_back(place);
    all_.only_a.push_back(std::move(place));
  }
  void pair_values(const RecordRow& a, const RecordRow& b) {
    const auto place = [](const RecordRow& row, const Value& value) {
      return fmt::format("{}: {} in {}", place_of(row), value.name, value.unit);
    };
    for (const Value& value : a.values) {
      if (!is_wanted(value)) continue;
      const Value* other = find_value(b, value.name);
      if (other == nullptr || other->unit != value.unit)
        add_only_a(place(a, value), is_guarded(value));
      else
        all_.values.push_back({a.test, a.device, b.device, value, *other});
    }
    for (const Value& value : b.values) {
      const Value* other = find_value(a, value.name);
      if (is_wanted(value) && (other == nullptr || other->unit != value.unit)) all_.only_b.push_back(place(b, value));
    }
  }

  const ComparisonOptions& options_;
  bool by_test_ = false;
  std::vector<const RecordRow*> rows_a_, rows_b_;
  Comparison all_;
};

}  // namespace

Direction direction_of(std::string_view unit) {
  if (unit.ends_with("/s")) return Direction::kMoreIsBetter;
  if (unit == "s" || unit == "ms" || unit == "us" || unit == "ns") return Direction::kLessIsBetter;
  return Direction::kNone;
}

bool is_guarded(const Value& value) {
  return direction_of(value.unit) != Direction::kNone && !value.name.starts_with("late_");
}

double ComparedValue::ratio() const {
  return quotient(b.value, a.value);
}

std::pair<double, double> ComparedValue::ratio_range() const {
  const auto [a_least, a_most] = range_of(a);
  const auto [b_least, b_most] = range_of(b);
  return {quotient(b_least, a_most), quotient(b_most, a_least)};
}

double ComparedValue::slowdown() const {
  if (direction() == Direction::kNone) return 0;
  return direction() == Direction::kMoreIsBetter ? 1 - ratio() : 1 - 1 / ratio();
}

std::vector<std::string> differences(const std::string& place, const json::value& a, const json::value& b) {
  if (a == b) return {};
  if (!a.is_object() || !b.is_object()) return {fmt::format("{}: {} and {}", place, text_of(&a), text_of(&b))};
  std::vector<std::string> all;
  const auto add = [&](const std::string& name, const json::value* in_a, const json::value* in_b) {
    const std::string inner = place + "." + name;
    if (in_a && in_b) {
      for (std::string& text : differences(inner, *in_a, *in_b)) all.push_back(std::move(text));
    } else {
      all.push_back(fmt::format("{}: {} and {}", inner, text_of(in_a), text_of(in_b)));
    }
  };
  for (const auto& [name, value] : a.get_object()) add(name, &value, b.get_object().if_contains(name));
  for (const auto& [name, value] : b.get_object())
    if (!a.get_object().contains(name)) add(name, nullptr, &value);
  return all;
}

Result<Comparison> compare(const SavedRecord& a, const SavedRecord& b, const ComparisonOptions& options) {
  std::vector<std::string> others = a.command == b.command
                                        ? differences("work", a.work, b.work)
                                        : std::vector{fmt::format("command: {} and {}", a.command, b.command)};
  if (!others.empty())
    return make_error(ErrorCode::kInvalidArgument, "{} and {}: expected the same work, found {}", a.path, b.path,
                      fmt::join(others, "; "));
  if (Status status = check_device("--device-a", a, options.device_a); !status) return status.error();
  if (Status status = check_device("--device-b", b, options.device_b); !status) return status.error();
  Comparison all = Pairing(a, b, options).pair();
  all.settings = differences("settings", a.settings, b.settings);
  if (all.values.empty())
    return make_error(ErrorCode::kInvalidArgument, "{} and {}: expected values that both have{}, found none", a.path,
                      b.path, options.names.empty() ? "" : fmt::format(" ({})", fmt::join(options.names, ", ")));
  return all;
}

}  // namespace llmrt::bench
