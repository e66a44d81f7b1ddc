#include "server/header_list.h"

#include <algorithm>
#include <charconv>

#include "server/ascii.h"

namespace llmrt::server {

std::string_view cut_element(std::string_view* rest, char separator) {
  bool quoted = false;
  size_t i = 0;
  for (; i < rest->size() && (quoted || (*rest)[i] != separator); ++i) {
    if ((*rest)[i] == '"') quoted = !quoted;
    if (quoted && (*rest)[i] == '\\') ++i;
  }
  const size_t end = std::min(i, rest->size());
  const std::string_view part = rest->substr(0, end);
  rest->remove_prefix(std::min(end + 1, rest->size()));
  return trim(part);
}

bool same_word(std::string_view a, std::string_view b) {
  const auto fold = [](char c) { return lower(c); };
  return std::ranges::equal(a, b, {}, fold, fold);
}

double parse_weight(std::string_view value) {
  double weight = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), weight);
  const bool is_weight = error == std::errc() && end == value.data() + value.size();
  return is_weight && weight >= 0 && weight <= 1 ? weight : 0;
}

}  // namespace llmrt::server
