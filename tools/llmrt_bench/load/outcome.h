// What came of each request of a load run, and the figures over all of them. Times are those of one clock.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"

namespace llmrt::bench {

enum class Failure : uint8_t {
  kConnect,     // no connection, or it broke before an answer began
  kStatus,      // an HTTP status but 200
  kBadReply,    // not HTTP, not an event stream, not the JSON of an answer
  kLongLine,    // a line without an end
  kErrorEvent,  // an error inside the stream
  kCutStream,   // the stream ended before the answer did
  kTooLong,     // it goes on and on behind what was asked for
  kNoTokens,    // an answer that ended well and held nothing
  kTimeout,
  kRefused,  // by the engine in process: its queue is full, or the request can never fit
  kEngine,   // the engine in process ended it
};
const char* failure_name(Failure failure);  // "connect", "status", ...

// With '?' for control characters: bytes of a stranger, fit for a terminal.
std::string printable(std::string_view text);

// What was said, where a request asked for structure; at most kAnswerBytesMax of it, and nothing where it was more.
inline constexpr size_t kAnswerBytesMax = 256u << 10;
inline constexpr size_t kCallsMax = 128;
struct CalledTool {
  std::string name, arguments;
};
struct AnswerText {
  std::string content;
  std::vector<CalledTool> calls;
};

struct Outcome {
  TimeNs due_ns = 0;                      // when it was to be sent; all times count from here
  TimeNs sent_ns = 0;                     // later only when this program was late
  TimeNs end_ns = 0;                      // the answer is over, or has failed
  std::vector<TimeNs> times_ns;           // of chunks with text; in process: of tokens
  uint32_t asked_tokens = 0;              // of output
  uint32_t output_tokens = 0;             // as the server says, else as many as chunks
  uint32_t prompt_tokens = 0;             // as the server says, else as the workload means; 0 = not known
  std::optional<uint32_t> cached_tokens;  // of the prompt, as the server says
  bool is_counted_by_server = false;
  bool is_sent_again = false;  // the kept connection it went to had been closed
  std::optional<Failure> failure;
  std::string failure_detail;
  unsigned http_status = 0;    // of kStatus
  std::string finish_reason;   // as the server says; "" before the end, or where it says none
  bool is_structured = false;  // asked for a schema or tools: it ends by itself, and `answer` is kept
  bool keeps_answer = false;   // likewise, of an answer that does not
  AnswerText answer;

  std::optional<double> ttft_ms() const;  // none before the first token
  double e2e_ms() const { return ms_between(due_ns, end_ns); }
  // What a server said may stand in the detail: it is kept as printable().
  void fail(Failure kind, std::string_view detail);
  // "" of an answer that is complete.
  std::string failure_text() const;
  // Between the first token and the last; none of an answer of one token, or that came in one chunk.
  std::optional<double> tpot_ms() const;
  std::vector<double> itls_ms() const;  // between chunks
};

// With linear interpolation between the two nearest; not a number of none.
double percentile(std::vector<double> values, double share);

// Samples of what is known: a request without such a figure is none. Without any sample all figures are not a number,
// which is shown as "-" and written as null.
struct Distribution {
  std::vector<double> samples;
  double mean = NAN, p50 = NAN, p90 = NAN, p95 = NAN, p99 = NAN;
};
Distribution distribution_of(std::vector<double> samples);

// Service level objectives of a request; one that is not set is met.
struct LoadSlo {
  std::optional<double> ttft_ms = {}, tpot_ms = {}, e2e_ms = {};

  bool is_set() const { return ttft_ms || tpot_ms || e2e_ms; }
  // A failure meets none, whatever it had reached. An answer without a TPOT meets that objective: there is no gap that
  // could be too long, and a server that sends many tokens at once pays in TTFT and e2e. Without a TTFT none is met.
  bool is_met(const Outcome& outcome) const;
};

// The figures of a whole run. Latencies and token rates are of the requests that did not fail.
struct Summary {
  size_t num_requests = 0, num_completed = 0, num_good = 0;
  std::map<std::string, size_t> failures;  // by name; "status 503"
  double seconds = 0;                      // from the first request's due time to the last one's end
  uint64_t output_tokens = 0, prompt_tokens = 0;
  size_t num_counted_by_server = 0;
  size_t num_sent_again = 0;
  std::map<std::string, size_t> finish_reasons;
  size_t num_stopped_early = 0;  // with fewer tokens than were asked for, though without structure
  uint64_t tokens_short = 0;     // of those
  Distribution ttft_ms, tpot_ms, itl_ms, e2e_ms;
  Distribution late_ms;  // sent after it was due: this program's own fault

  double per_s(double count) const { return seconds > 0 ? count / seconds : 0; }
};
Summary summarize(std::span<const Outcome> outcomes, const LoadSlo& slo);

}  // namespace llmrt::bench
