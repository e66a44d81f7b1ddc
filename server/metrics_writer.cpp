#include "server/metrics_writer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/base/check.h"
#include "core/base/utf8.h"

namespace llmrt::server {
namespace {

// The same in both formats, so that a series keeps its labels whatever a scraper asks for: as OpenMetrics has it, "1.0"
// and "1.048576e+06".
std::string bound_text(double bound) {
  if (bound >= 1e6) {
    std::array<char, 32> digits;
    const auto [end, error] =
        std::to_chars(digits.data(), digits.data() + digits.size(), bound, std::chars_format::scientific);
    return {digits.data(), end};
  }
  std::string text = fmt::format("{}", bound);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string label_value(std::string_view text) {
  std::string out;
  for (const char c : replace_invalid_utf8(text)) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

}  // namespace

void MetricsWriter::head(MetricKind kind, std::string_view name, std::string_view help) {
  LLMRT_CHECK(name.ends_with("_total") == (kind == MetricKind::kCounter), "counters end in _total, and nothing else");
  const bool is_open = format_ == MetricsFormat::kOpenMetrics;
  std::string family = fmt::format("{}{}", prefix_, name);
  if (const auto known = by_name_.find(family); known != by_name_.end()) {
    text_ = &families_[known->second];
    return;
  }
  by_name_.emplace(family, families_.size());
  text_ = &families_.emplace_back();
  if (is_open && kind == MetricKind::kCounter) family.resize(family.size() - std::string_view("_total").size());
  if (is_open && kind == MetricKind::kInfo) family.resize(family.size() - std::string_view("_info").size());
  append("# HELP {} {}\n# TYPE {} {}\n", family, help, family, kind_text(kind));
  if (!is_open) return;
  for (const std::string_view unit : {"seconds", "bytes", "ratio"})
    if (family.ends_with(fmt::format("_{}", unit))) append("# UNIT {} {}\n", family, unit);
}

void MetricsWriter::sample(std::string_view name, std::string_view number, const Labels& labels) {
  append("{}{}", prefix_, name);
  std::string_view before = "{";
  const auto add = [&](std::string_view label, std::string_view text) {
    append("{}{}=\"{}\"", std::exchange(before, ","), label, label_value(text));
  };
  for (const auto& [label, text] : common_) {
    const bool is_own =
        std::any_of(labels.begin(), labels.end(), [&label = label](const auto& own) { return own.first == label; });
    if (!is_own) add(label, text);
  }
  for (const auto& [label, text] : labels) add(label, text);
  append("{} {}\n", before == "{" ? "" : "}", number);
}

void MetricsWriter::histogram(const std::string& name, const Histogram& histogram, const std::vector<double>& bounds,
                              std::string_view help) {
  head(MetricKind::kHistogram, name, help);
  for (const double bound : bounds) value(name + "_bucket", histogram.count_up_to(bound), {{"le", bound_text(bound)}});
  value(name + "_bucket", histogram.count(), {{"le", "+Inf"}});
  value(name + "_sum", histogram.sum());
  value(name + "_count", histogram.count());
}

std::string MetricsWriter::take() {
  std::string text;
  for (const std::string& family : families_) text += family;
  if (format_ == MetricsFormat::kOpenMetrics) text += "# EOF\n";
  return text;
}

std::string MetricsWriter::number_text(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", number);
}

const char* MetricsWriter::kind_text(MetricKind kind) const {
  switch (kind) {
    case MetricKind::kGauge:
      return "gauge";
    case MetricKind::kCounter:
      return "counter";
    case MetricKind::kHistogram:
      return "histogram";
    case MetricKind::kInfo:
      return format_ == MetricsFormat::kOpenMetrics ? "info" : "gauge";  // which the text format does not have
  }
  return "unknown";
}

}  // namespace llmrt::server
