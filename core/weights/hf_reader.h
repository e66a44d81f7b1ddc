// Members of config.json, read one after another with the names of what was expected and found. What the readers of its
// parts share.
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/weights/json_tree.h"
#include "core/weights/metadata.h"

namespace llmrt {

template <typename... Args>
Error refused_config(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kUnsupported, "unsupported model: config.json: {}",
                    fmt::format(format, std::forward<Args>(args)...));
}

// Members of one object, read one after another; the first error is kept. `place` stands before names in messages.
class HfReader {
 public:
  HfReader(const JsonTree& object, std::string place) : object_(object), place_(std::move(place)) {}

  // In [1, max]. Absent or null: `otherwise`, or an error where that is 0.
  uint64_t integer(std::string_view name, uint64_t otherwise = 0, int64_t max = INT32_MAX) {
    const JsonTree* found = object_.find(name);
    if (found == nullptr && otherwise > 0) return otherwise;
    const int64_t* value = found == nullptr ? nullptr : found->integer();
    if (value != nullptr && *value > 0 && *value <= max) return static_cast<uint64_t>(*value);
    fail(name, fmt::format("an integer in [1, {}]", max), found);
    return 1;
  }
  double number(std::string_view name, std::optional<double> otherwise = {}) {
    const JsonTree* found = object_.find(name);
    if (found == nullptr && otherwise) return *otherwise;
    double value = 0;
    if (found != nullptr && found->number(&value) && std::isfinite(value)) return value;
    fail(name, "a number", found);
    return 1;
  }
  bool boolean(std::string_view name, bool otherwise) {
    const JsonTree* found = object_.find(name);
    if (found == nullptr) return otherwise;
    if (found->boolean() != nullptr) return *found->boolean();
    fail(name, "true or false", found);
    return otherwise;
  }
  // Absent or null: `otherwise`.
  std::string string(std::string_view name, std::string_view otherwise) {
    const JsonTree* found = object_.find(name);
    if (found == nullptr) return std::string(otherwise);
    if (found->string() != nullptr) return *found->string();
    fail(name, "a string", found);
    return std::string(otherwise);
  }
  const JsonTree* find(std::string_view name) const { return object_.find(name); }
  // Also where it is null.
  bool has(std::string_view name) const {
    const auto& members = *object_.members();
    return std::ranges::any_of(members, [&](const JsonMember& member) { return member.name == name; });
  }
  void refuse(std::string_view name, std::string_view expected, const std::string& found) {
    if (status_) status_ = refused_config("{}{}: expected {}, found {}", place_, name, expected, found);
  }
  void keep(const Status& status) {
    if (status_) status_ = status;
  }
  // Refuses members, null ones apart, that are in none of the lists.
  void expect_known(std::initializer_list<std::span<const std::string_view>> lists) {
    for (const JsonMember& member : *object_.members()) {
      const bool is_known =
          std::ranges::any_of(lists, [&](auto list) { return std::ranges::find(list, member.name) != list.end(); });
      if (!is_known && !member.value.is_null() && status_)
        status_ = refused_config("{}{}: not a key that is known here, found {}", place_, printable(member.name),
                                 member.value.describe());
    }
  }
  const Status& status() const { return status_; }

 private:
  void fail(std::string_view name, std::string_view expected, const JsonTree* found) {
    if (status_)
      status_ = make_error(ErrorCode::kCorruptFile, "bad config.json: {}{}: expected {}, found {}", place_, name,
                           expected, found == nullptr ? "nothing" : found->describe());
  }

  const JsonTree& object_;
  std::string place_;
  Status status_;
};

}  // namespace llmrt
