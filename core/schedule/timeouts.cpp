#include "core/schedule/timeouts.h"

#include <algorithm>

namespace llmrt {

void Timeouts::set(Sequence& sequence) {
  const Request& request = sequence.request;
  const TimeNs before = sequence.times_out_ns;
  sequence.times_out_ns = 0;
  const auto no_later_than = [&](TimeNs at) {
    if (at != 0) sequence.times_out_ns = sequence.times_out_ns == 0 ? at : std::min(sequence.times_out_ns, at);
  };
  no_later_than(request.deadline_ns);
  no_later_than(request.expiry_ns);
  if (sequence.state() == RequestState::kQueued) no_later_than(request.start_by_ns);
  if (sequence.times_out_ns == before) return;
  if (before != 0) times_.erase({before, request.id});
  if (sequence.times_out_ns != 0) times_.emplace(sequence.times_out_ns, request.id);
}

void Timeouts::erase(const Sequence& sequence) {
  if (sequence.times_out_ns != 0) times_.erase({sequence.times_out_ns, sequence.request.id});
}

std::optional<RequestId> Timeouts::due(TimeNs now) const {
  if (times_.empty() || times_.begin()->first > now) return std::nullopt;
  return times_.begin()->second;
}

Error timed_out(const Sequence& sequence, TimeNs now) {
  const Request& request = sequence.request;
  const auto ms_to = [&request](TimeNs at) { return static_cast<double>(at - request.arrival_ns) * 1e-6; };
  const TimeNs at = sequence.times_out_ns;
  if (at != request.deadline_ns && at != request.expiry_ns)
    return make_error(ErrorCode::kTimeout,
                      "timeout: expected a start within {:.0f} ms, found it waiting after {:.0f} ms", ms_to(at),
                      ms_to(now));
  return make_error(ErrorCode::kTimeout,
                    "timeout: expected the whole answer within {:.0f} ms ({}), found {} of at most {} tokens after "
                    "{:.0f} ms",
                    ms_to(at), at == request.deadline_ns ? "its deadline" : "this engine's limit",
                    sequence.num_known() - sequence.num_prompt, request.max_tokens, ms_to(now));
}

}  // namespace llmrt
