#include "core/trace/trace_line.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <iterator>
#include <limits>

#include "core/base/utf8.h"
#include "core/metrics/engine_stats.h"

namespace llmrt {
namespace {

namespace json = boost::json;

std::string quoted(const std::string& text) {
  return json::serialize(json::value(is_valid_utf8(text) ? text : replace_invalid_utf8(text)));
}

std::string quoted_or_null(const std::string& text) {
  return text.empty() ? "null" : quoted(text);
}

std::string number_or_null(const std::optional<double>& number) {
  return number ? fmt::format("{:.3f}", *number) : "null";
}

// What stands in the line, for a message.
std::string described(const json::value& value) {
  constexpr size_t kShownBytes = 60;
  std::string text = json::serialize(value);
  if (text.size() > kShownBytes) text = text.substr(0, kShownBytes) + "...";
  return replace_invalid_utf8(text);
}

std::optional<FinishReason> parse_finish(std::string_view name) {
  for (int i = 1; i < kNumFinishReasons; ++i)
    if (name == finish_reason_name(static_cast<FinishReason>(i))) return static_cast<FinishReason>(i);
  return std::nullopt;
}

const char* expected(TraceKind kind) {
  switch (kind) {
    case TraceKind::kText:
      return "a string";
    case TraceKind::kTextOrNull:
      return "a string or null";
    case TraceKind::kCount:
      return "a whole number of at least 0";
    case TraceKind::kCountOrNull:
      return "a whole number of at least 0 or null";
    case TraceKind::kMs:
      return "a number from 0 to 1e12";
    case TraceKind::kMsOrNull:
      return "a number from 0 to 1e12 or null";
    case TraceKind::kClass:
      return "interactive, agent, batch, evaluation or background";
    case TraceKind::kFinish:
      return "a finish reason, as eos, length, cancelled, disconnected or error";
  }
  return "";
}

std::optional<double> number_of(const json::value& value) {
  if (!value.is_number()) return std::nullopt;
  const double number = value.to_number<double>();
  if (!std::isfinite(number) || number < 0) return std::nullopt;
  return number;
}

// `max`: what the member can hold.
std::optional<uint64_t> count_of(const json::value& value, double max) {
  const std::optional<double> number = number_of(value);
  if (!number || *number != std::floor(*number) || *number > max) return std::nullopt;
  return static_cast<uint64_t>(*number);
}

// Puts the value where it belongs; false when it is not of the field's kind.
bool take(const TraceField& field, const json::value& value, TraceRow* row) {
  RequestTrace& trace = row->trace;
  const std::string_view name = field.name;
  switch (field.kind) {
    case TraceKind::kTextOrNull:
      if (value.is_null()) return true;
      [[fallthrough]];
    case TraceKind::kText: {
      if (!value.is_string()) return false;
      std::string& text = name == "request_id"        ? trace.names.answer
                          : name == "http_request_id" ? trace.names.http
                          : name == "trace_id"        ? trace.names.trace_id
                          : name == "model"           ? row->origin.model
                                                      : row->origin.worker_id;
      text = value.get_string();
      return true;
    }
    case TraceKind::kCountOrNull:
      if (value.is_null()) return true;
      [[fallthrough]];
    case TraceKind::kCount: {
      constexpr double kExact = 9007199254740992.0;  // 2^53: whole numbers up to it are exact in a double
      const bool is_time = name == "written_unix_ms";
      const auto count = count_of(value, is_time ? kExact : std::numeric_limits<uint32_t>::max());
      if (!count) return false;
      if (is_time) row->written_unix_ms = static_cast<int64_t>(*count);
      const auto small = static_cast<uint32_t>(*count);
      if (name == "branch") trace.branch = small;
      if (name == "adapter") trace.adapter_id = small;
      if (name == "prompt_tokens") trace.prompt_tokens = small;
      if (name == "cached_tokens") trace.cached_tokens = small;
      if (name == "output_tokens") trace.output_tokens = small;
      if (name == "reserved_kv_tokens") trace.reserved_kv_tokens = small;
      if (name == "kv_blocks_peak") trace.kv_blocks_peak = small;
      if (name == "preemptions") trace.num_preemptions = small;
      return true;
    }
    case TraceKind::kMsOrNull:
      if (value.is_null()) return true;
      [[fallthrough]];
    case TraceKind::kMs: {
      const std::optional<double> ms = number_of(value);
      if (!ms || *ms > kTraceMsMax) return false;
      if (name == "queue_ms") trace.queue_ms = ms;
      if (name == "prefill_ms") trace.prefill_ms = ms;
      if (name == "decode_ms") trace.decode_ms = ms;
      if (name == "stream_ms") trace.stream_ms = ms;
      if (name == "ttft_ms") trace.ttft_ms = ms;
      if (name == "tpot_ms") trace.tpot_ms = ms;
      if (name == "client_tpot_ms") trace.client_tpot_ms = ms;
      if (name == "itl_p50_ms") trace.itl_p50_ms = ms;
      if (name == "itl_p95_ms") trace.itl_p95_ms = ms;
      if (name == "itl_p99_ms") trace.itl_p99_ms = ms;
      return true;
    }
    case TraceKind::kClass: {
      const auto parsed = value.is_string() ? parse_request_class(value.get_string()) : std::nullopt;
      if (parsed) trace.request_class = *parsed;
      return parsed.has_value();
    }
    case TraceKind::kFinish: {
      const auto parsed = value.is_string() ? parse_finish(value.get_string()) : std::nullopt;
      if (parsed) trace.finish = *parsed;
      return parsed.has_value();
    }
  }
  return false;
}

}  // namespace

std::string format_trace_line(const TraceRow& row) {
  const RequestTrace& trace = row.trace;
  std::string line;
  const auto out = std::back_inserter(line);
  fmt::format_to(out, R"({{"written_unix_ms":{},"request_id":{},"branch":{},"model":{},)", row.written_unix_ms,
                 quoted(trace.names.answer.empty() ? std::to_string(trace.id) : trace.names.answer), trace.branch,
                 quoted(row.origin.model));
  fmt::format_to(out, R"("http_request_id":{},"trace_id":{},)", quoted_or_null(trace.names.http),
                 quoted_or_null(trace.names.trace_id));
  fmt::format_to(out, R"("adapter":{},"class":"{}","worker_id":{},)",
                 trace.adapter_id == 0 ? "null" : std::to_string(trace.adapter_id),
                 request_class_name(trace.request_class), quoted(row.origin.worker_id));
  fmt::format_to(out, R"("prompt_tokens":{},"cached_tokens":{},"output_tokens":{},"reserved_kv_tokens":{},)",
                 trace.prompt_tokens, trace.cached_tokens, trace.output_tokens, trace.reserved_kv_tokens);
  fmt::format_to(out, R"("kv_blocks_peak":{},"preemptions":{},)", trace.kv_blocks_peak, trace.num_preemptions);
  fmt::format_to(out, R"("queue_ms":{:.3f},"prefill_ms":{},"decode_ms":{},"stream_ms":{},)", trace.queue_ms.value_or(0),
                 number_or_null(trace.prefill_ms), number_or_null(trace.decode_ms), number_or_null(trace.stream_ms));
  fmt::format_to(out, R"("ttft_ms":{},"tpot_ms":{},"client_tpot_ms":{},)", number_or_null(trace.ttft_ms),
                 number_or_null(trace.tpot_ms), number_or_null(trace.client_tpot_ms));
  fmt::format_to(out, R"("itl_p50_ms":{},"itl_p95_ms":{},"itl_p99_ms":{},"finish_reason":"{}"}})",
                 number_or_null(trace.itl_p50_ms), number_or_null(trace.itl_p95_ms), number_or_null(trace.itl_p99_ms),
                 finish_reason_name(trace.finish));
  return line;
}

Result<TraceRow> read_trace_line(std::string_view line) {
  if (line.size() > kTraceLineBytesMax)
    return make_error(ErrorCode::kInvalidArgument, "too long: expected at most {} bytes, found {}", kTraceLineBytesMax,
                      line.size());
  boost::system::error_code error;
  json::parse_options options;
  options.max_depth = 4;
  const json::value parsed = json::parse(line, error, {}, options);
  if (error)
    return make_error(ErrorCode::kInvalidArgument, "not JSON: expected one object, found an error: {}",
                      error.message());
  if (!parsed.is_object())
    return make_error(ErrorCode::kInvalidArgument, "not a record: expected a JSON object, found {}", described(parsed));
  const json::object& object = parsed.get_object();
  TraceRow row;
  for (const TraceField& field : kTraceFields) {
    const json::value* value = object.if_contains(field.name);
    if (value == nullptr)
      return make_error(ErrorCode::kInvalidArgument, "{}: expected {}, found no such field", field.name,
                        expected(field.kind));
    if (!take(field, *value, &row))
      return make_error(ErrorCode::kInvalidArgument, "{}: expected {}, found {}", field.name, expected(field.kind),
                        described(*value));
  }
  if (object.size() == kTraceFields.size()) return row;
  for (const auto& member : object) {
    const auto is_known = [&](const TraceField& field) { return field.name == std::string_view(member.key()); };
    if (std::ranges::none_of(kTraceFields, is_known))
      return make_error(ErrorCode::kInvalidArgument, "{}: expected no such field",
                        described(json::value(member.key())));
  }
  return row;
}

}  // namespace llmrt
