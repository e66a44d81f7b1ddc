#include "core/request/request_trace.h"

namespace llmrt {

void RequestTrace::set_times(TimeNs arrival_ns, const BranchTimes& times) {
  const TimeNs ended = times.ended_ns;
  queue_ms = ms_between(arrival_ns, times.admitted_ns != 0 ? times.admitted_ns : ended);
  if (times.admitted_ns != 0)
    prefill_ms = ms_between(times.admitted_ns, times.first_token_ns != 0 ? times.first_token_ns : ended);
  if (times.first_token_ns != 0) {
    decode_ms = ms_between(times.first_token_ns, ended);
    ttft_ms = ms_between(arrival_ns, times.first_token_ns);
  }
  // Bytes may leave before the end, and none after it.
  if (times.sent.last_ns != 0) stream_ms = std::max(0.0, ms_between(ended, times.sent.last_ns));
  tpot_ms = times.tpot_ms();
  if (output_tokens > 1 && times.sent.last_ns > times.sent.first_ns)
    client_tpot_ms = ms_between(times.sent.first_ns, times.sent.last_ns) / (output_tokens - 1);
  if (!times.inter_token) return;
  itl_p50_ms = times.inter_token->quantile_ms(0.50);
  itl_p95_ms = times.inter_token->quantile_ms(0.95);
  itl_p99_ms = times.inter_token->quantile_ms(0.99);
}

}  // namespace llmrt
