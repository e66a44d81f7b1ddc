#include "server/trace_context.h"

#include <algorithm>

namespace llmrt::server {
namespace {

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
bool is_zero(std::string_view text) {
  return text.find_first_not_of('0') == std::string_view::npos;
}

}  // namespace

std::optional<TraceContext> parse_traceparent(std::string_view value) {
  constexpr size_t kSize = 55;  // vv-tttttttttttttttttttttttttttttttt-pppppppppppppppp-ff
  if (value.size() < kSize) return std::nullopt;
  const std::string_view version = value.substr(0, 2), trace = value.substr(3, 32), parent = value.substr(36, 16),
                         flags = value.substr(53, 2);
  if (value[2] != '-' || value[35] != '-' || value[52] != '-') return std::nullopt;
  for (const std::string_view part : {version, trace, parent, flags})
    if (!is_hex(part)) return std::nullopt;
  if (version == "ff" || is_zero(trace) || is_zero(parent)) return std::nullopt;
  if (value.size() > kSize && (version == "00" || value[kSize] != '-')) return std::nullopt;
  return TraceContext{std::string(trace), std::string(parent), std::string(flags)};
}

std::string traceparent_of(const TraceContext& context) {
  return "00-" + context.trace_id + '-' + context.parent_id + '-' + context.flags;
}

}  // namespace llmrt::server
