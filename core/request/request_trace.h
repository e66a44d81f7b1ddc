// The record of one branch of a request that is over: when it was where, and what it took. The scheduler knows all but
// when bytes were sent; whoever sends them tells that when it lets go of the branch.
//
// The stages follow each other without a gap: queue (arrival to the first step that computes something of it), prefill
// (to its first token), decode (to its end), stream (to the last byte sent). What a preempted branch waits counts for
// the stage it was in. A stage that was not reached, and what follows it, has no time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/metrics/latency_sketch.h"
#include "core/request/request.h"

namespace llmrt {

// When a receiver sent the first and the last bytes of a branch's answer; 0 = none were sent (or nobody sends).
struct SentTimes {
  TimeNs first_ns = 0, last_ns = 0;
  void add(TimeNs now) {
    if (first_ns == 0) first_ns = now;
    last_ns = now;
  }
};

// When what happened to a sequence. A fixed size, and little before it runs.
struct BranchTimes {
  TimeNs added_ns = 0, admitted_ns = 0, first_token_ns = 0, last_token_ns = 0, ended_ns = 0;  // 0 = not yet
  uint32_t num_samples = 0;                    // tokens; with beam search steps, as tokens are known only at the end
  std::unique_ptr<LatencySketch> inter_token;  // from the second token on
  SentTimes sent;

  void add_token(TimeNs now) {
    if (first_token_ns == 0) {
      first_token_ns = now;
    } else {
      if (!inter_token) inter_token = std::make_unique<LatencySketch>();
      inter_token->add(now - last_token_ns);
    }
    last_token_ns = now;
    ++num_samples;
  }
  std::optional<double> tpot_ms() const {
    if (num_samples < 2) return std::nullopt;
    return ms_between(first_token_ns, last_token_ns) / (num_samples - 1);
  }
};

struct RequestTrace {
  RequestId id = 0;
  RequestNames names;
  uint32_t branch = 0;
  uint32_t adapter_id = 0;  // 0 = none
  RequestClass request_class = RequestClass::kInteractive;
  uint32_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  uint32_t reserved_kv_tokens = 0;  // that the last admission counted on; 0 = never admitted
  uint32_t kv_blocks_peak = 0;      // in its tables, of all KV groups; shared ones count
  uint32_t num_preemptions = 0;
  FinishReason finish = FinishReason::kNone;

  std::optional<double> queue_ms = {}, prefill_ms = {}, decode_ms = {}, stream_ms = {};
  std::optional<double> ttft_ms = {};         // arrival to first token
  std::optional<double> tpot_ms = {};         // (last sampled - first) / (N - 1)
  std::optional<double> client_tpot_ms = {};  // (last sent - first) / (N - 1), where tokens are sent singly
  std::optional<double> itl_p50_ms = {}, itl_p95_ms = {}, itl_p99_ms = {};  // within 1/32 (LatencySketch)

  // The times; `arrival_ns` is the request's.
  void set_times(TimeNs arrival_ns, const BranchTimes& times);
};

// Where records go. Called on the engine's thread; must only hand over, never block.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  virtual void put(RequestTrace trace) = 0;
};

}  // namespace llmrt
