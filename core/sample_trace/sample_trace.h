// A record of how tokens were drawn, complete enough to draw them again elsewhere. A file of JSON lines, in order of
// time, branches interleaved:
//
//   {"type":"header", ...}    once: the format and where it was recorded
//   {"type":"request", ...}   a branch, before its first token: its prompt and all that its draws depend on
//   {"type":"token", ...}     one drawn token
//   {"type":"end", ...}       its finish reason
//
// docs/sample_trace.md has the fields. Each branch of a request is a request of its own here, as it is in the engine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/request/request.h"

namespace llmrt {

inline constexpr int kSampleTraceVersion = 1;

// Where it was recorded.
struct SampleTraceOrigin {
  std::string model;         // path, or name of a synthetic one
  std::string model_digest;  // hexadecimal; other weights, other tokens
  std::string device;
  std::string kv_dtype;
};

struct TracedDraw {
  int32_t token;
  Draw draw;
};

struct TracedBranch {
  Request request;                      // n = 1, without sink, stop strings, policy and the program's own processors
  std::string adapter_digest = {};      // hexadecimal, of its adapter; empty: it had none
  std::vector<std::string> processors;  // what was applied to its logits, by name, in order
  std::vector<TracedDraw> draws;        // behind request.begun
  std::string finish;                   // empty: the file ends before the branch does

  // Drafts that were proposed while it was recorded, and those of them that were right and taken.
  uint64_t num_proposed() const;
  uint64_t num_accepted() const;
};

struct SampleTrace {
  SampleTraceOrigin origin;
  std::vector<TracedBranch> branches;  // in order of their first tokens
};

// Lines of the file, without the line end.
std::string header_line(const SampleTraceOrigin& origin);
std::string request_line(RequestId id, const Request& request);
std::string token_line(RequestId id, const SamplingParams& sampling, uint32_t position, int32_t token,
                       const Draw& draw);
std::string end_line(RequestId id, FinishReason finish, size_t num_tokens);

// The whole text of a file; its last line may be cut short, as by a program that was ended. Values inside the requests
// are validate()'s business. invalid_argument with line and field.
Result<SampleTrace> parse_sample_trace(std::string_view text);

}  // namespace llmrt
