// Families of metrics as text, in one of the two formats. Pure; one owner.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/metrics/histogram.h"
#include "server/metrics_format.h"

namespace llmrt::server {

enum class MetricKind { kGauge, kCounter, kHistogram, kInfo };

// Families one after the other, each with its head before its samples; a head that comes again adds to its family.
// Names are written without the prefix, and counters with the _total that OpenMetrics leaves out of heads.
class MetricsWriter {
 public:
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  explicit MetricsWriter(MetricsFormat format) : format_(format) {}

  void set_prefix(std::string_view prefix) { prefix_ = prefix; }
  std::string_view prefix() const { return prefix_; }
  // Of all samples from now on, but for those that have one of that name.
  void set_labels(const Labels& labels) { common_.assign(labels.begin(), labels.end()); }

  void head(MetricKind kind, std::string_view name, std::string_view help);
  // A sample of the family whose head was written last.
  template <typename T>
  void value(std::string_view name, T number, const Labels& labels = {}) {
    if constexpr (std::is_floating_point_v<T>)
      sample(name, number_text(static_cast<double>(number)), labels);
    else
      sample(name, fmt::to_string(static_cast<uint64_t>(number)), labels);
  }
  template <typename T>
  void gauge(std::string_view name, T number, std::string_view help) {
    head(MetricKind::kGauge, name, help);
    value(name, number);
  }
  template <typename T>
  void counter(std::string_view name, T number, std::string_view help) {
    head(MetricKind::kCounter, name, help);
    value(name, number);
  }
  // `bounds` are among those that it counts by.
  void histogram(const std::string& name, const Histogram& histogram, const std::vector<double>& bounds,
                 std::string_view help);
  // All that was written.
  std::string take();

 private:
  static std::string number_text(double number);
  void sample(std::string_view name, std::string_view number, const Labels& labels);
  const char* kind_text(MetricKind kind) const;
  template <typename... Args>
  void append(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(*text_), format, std::forward<Args>(args)...);
  }

  const MetricsFormat format_;
  std::string prefix_ = "llmrt_";
  std::vector<std::pair<std::string, std::string>> common_;
  std::deque<std::string> families_;
  std::map<std::string, size_t> by_name_;
  std::string* text_ = nullptr;  // the family that is written
};

}  // namespace llmrt::server
