#include "server/slow_clients.h"

namespace llmrt::server {

bool WritePace::take(size_t num_bytes, size_t waiting, bool is_stream, Time now) {
  done_ += num_bytes;
  const double elapsed_s = std::chrono::duration<double>(now - begin_).count();
  if (elapsed_s <= limits_.stall_s) return true;
  if (is_stream && limits_.slow_clients == SlowClients::kThrottle) {
    if (now - mark_ < std::chrono::seconds(limits_.stall_s)) return true;
    if (done_ - done_at_mark_ < kThrottledBytesMin) return false;
    mark_ = now;
    done_at_mark_ = done_;
    return true;
  }
  if (static_cast<double>(done_) < elapsed_s * rate_min_) return false;
  return !is_stream || waiting <= limits_.buffer_bytes;
}

}  // namespace llmrt::server
