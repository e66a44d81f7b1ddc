// The place of a request in its client's trace, as the header `traceparent` says it (W3C Trace Context). Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace llmrt::server {

struct TraceContext {
  std::string trace_id;   // 32 hexadecimal digits
  std::string parent_id;  // 16: the client's own span
  std::string flags;      // 2
};

// Nothing where the value breaks the form: it is then to be ignored. Of later versions what this one knows is read.
std::optional<TraceContext> parse_traceparent(std::string_view value);
// As version 00.
std::string traceparent_of(const TraceContext& context);

}  // namespace llmrt::server
