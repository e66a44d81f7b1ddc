#include "server/metrics_format.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace llmrt::server {
namespace {

constexpr std::string_view kBlanks = " \t";

std::string_view strip(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// Cuts off what stands before the next separator that is not in quotes, and the separator.
std::string_view cut(std::string_view* rest, char separator) {
  bool quoted = false;
  size_t i = 0;
  for (; i < rest->size() && (quoted || (*rest)[i] != separator); ++i) {
    if ((*rest)[i] == '"') quoted = !quoted;
    if (quoted && (*rest)[i] == '\\') ++i;
  }
  const size_t end = std::min(i, rest->size());
  const std::string_view part = rest->substr(0, end);
  rest->remove_prefix(std::min(end + 1, rest->size()));
  return strip(part);
}

bool same_word(std::string_view a, std::string_view b) {
  const auto fold = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::ranges::equal(a, b, {}, fold, fold);
}

struct MediaRange {
  std::string_view type, subtype, version;
  double weight = 1;
};

MediaRange parse_range(std::string_view text) {
  MediaRange range;
  std::string_view type = cut(&text, ';');
  range.type = cut(&type, '/');
  range.subtype = type;
  while (!text.empty()) {
    std::string_view value = cut(&text, ';');
    const std::string_view name = cut(&value, '=');
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
    if (same_word(name, "version")) range.version = value;
    if (!same_word(name, "q")) continue;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), range.weight);
    const bool is_weight = error == std::errc() && end == value.data() + value.size();
    if (!is_weight || !(range.weight >= 0 && range.weight <= 1)) range.weight = 0;  // broken: as if it were not there
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
    const MediaRange range = parse_range(cut(&accept, ','));
    text.weigh(range);
    open.weigh(range);
  }
  const bool is_named = open.precision >= 2 && open.weight > 0;
  const bool wins = open.weight > text.weight || (is_named && open.weight == text.weight);
  return wins ? MetricsFormat::kOpenMetrics : MetricsFormat::kText;
}

}  // namespace llmrt::server
