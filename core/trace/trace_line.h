// A request's record as a line of JSON, and back. docs/request_trace.schema.json is the published form of the same
// table; a test holds them together.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/request/request_trace.h"

namespace llmrt {

// What stands in a line beside the record.
struct TraceOrigin {
  std::string model;      // as clients name it
  std::string worker_id;  // which of several engines
};

struct TraceRow {
  TraceOrigin origin;
  int64_t written_unix_ms = 0;
  RequestTrace trace;
};

enum class TraceKind : uint8_t { kText, kTextOrNull, kCount, kCountOrNull, kMs, kMsOrNull, kClass, kFinish };
struct TraceField {
  std::string_view name;
  TraceKind kind;
};
// In the order of a line. All are always there.
inline constexpr std::array kTraceFields = {
    TraceField{"written_unix_ms", TraceKind::kCount},
    TraceField{"request_id", TraceKind::kText},
    TraceField{"branch", TraceKind::kCount},
    TraceField{"model", TraceKind::kText},
    TraceField{"http_request_id", TraceKind::kTextOrNull},
    TraceField{"trace_id", TraceKind::kTextOrNull},
    TraceField{"adapter", TraceKind::kCountOrNull},
    TraceField{"class", TraceKind::kClass},
    TraceField{"worker_id", TraceKind::kText},
    TraceField{"prompt_tokens", TraceKind::kCount},
    TraceField{"cached_tokens", TraceKind::kCount},
    TraceField{"output_tokens", TraceKind::kCount},
    TraceField{"reserved_kv_tokens", TraceKind::kCount},
    TraceField{"kv_blocks_peak", TraceKind::kCount},
    TraceField{"preemptions", TraceKind::kCount},
    TraceField{"queue_ms", TraceKind::kMs},
    TraceField{"prefill_ms", TraceKind::kMsOrNull},
    TraceField{"decode_ms", TraceKind::kMsOrNull},
    TraceField{"stream_ms", TraceKind::kMsOrNull},
    TraceField{"ttft_ms", TraceKind::kMsOrNull},
    TraceField{"tpot_ms", TraceKind::kMsOrNull},
    TraceField{"client_tpot_ms", TraceKind::kMsOrNull},
    TraceField{"itl_p50_ms", TraceKind::kMsOrNull},
    TraceField{"itl_p95_ms", TraceKind::kMsOrNull},
    TraceField{"itl_p99_ms", TraceKind::kMsOrNull},
    TraceField{"finish_reason", TraceKind::kFinish},
};

inline constexpr size_t kTraceLineBytesMax = 64 << 10;
inline constexpr double kTraceMsMax = 1e12;  // 31 years

// Without the end of the line. Texts that are not UTF-8 are mended.
std::string format_trace_line(const TraceRow& row);

// From outside, so nothing is believed: one JSON object with these fields and no others, each of its kind, counts below
// 2^32 (of the time of writing up to 2^53), times up to kTraceMsMax. invalid_argument with the field, what was expected
// and what was found.
Result<TraceRow> read_trace_line(std::string_view line);

}  // namespace llmrt
