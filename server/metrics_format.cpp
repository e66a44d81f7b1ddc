#include "server/metrics_format.h"

#include <algorithm>

#include "server/header_list.h"

namespace llmrt::server {
namespace {

struct MediaRange {
  std::string_view type, subtype, version;
  double weight = 1;
};

MediaRange parse_range(std::string_view text) {
  MediaRange range;
  std::string_view type = cut_element(&text, ';');
  range.type = cut_element(&type, '/');
  range.subtype = type;
  while (!text.empty()) {
    std::string_view value = cut_element(&text, ';');
    const std::string_view name = cut_element(&value, '=');
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
    if (same_word(name, "version")) range.version = value;
    if (same_word(name, "q")) range.weight = parse_weight(value);
  }
  return range;
}

// One format that we have: what the ranges seen so far say of it.
struct Offer {
  std::string_view type, subtype, version;
  int precision = -1;  // 0 */*, 1 type/*, 2 type/subtype, 3 with the version
  double weight = 0;

  void weigh(const MediaRange& range) {
    int now = -1;
    if (range.type == "*" && range.subtype == "*") {
      now = 0;
    } else if (same_word(range.type, type)) {
      if (range.subtype == "*") now = 1;
      if (same_word(range.subtype, subtype) && range.version.empty()) now = 2;
      if (same_word(range.subtype, subtype) && range.version == version) now = 3;
    }
    if (now < 0 || now < precision) return;
    weight = now > precision ? range.weight : std::max(weight, range.weight);
    precision = now;
  }
};

}  // namespace

const char* metrics_content_type(MetricsFormat format) {
  return format == MetricsFormat::kOpenMetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                               : "text/plain; version=0.0.4; charset=utf-8";
}

MetricsFormat negotiate_metrics(std::string_view accept) {
  Offer text{.type = "text", .subtype = "plain", .version = "0.0.4"};
  Offer open{.type = "application", .subtype = "openmetrics-text", .version = "1.0.0"};
  while (!accept.empty()) {
    const MediaRange range = parse_range(cut_element(&accept, ','));
    text.weigh(range);
    open.weigh(range);
  }
  const bool is_named = open.precision >= 2 && open.weight > 0;
  const bool wins = open.weight > text.weight || (is_named && open.weight == text.weight);
  return wins ? MetricsFormat::kOpenMetrics : MetricsFormat::kText;
}

}  // namespace llmrt::server
