// What is done about a stream whose client reads more slowly than the engine writes. Plain values.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace llmrt::server {

enum class SlowClients : uint8_t {
  kBuffer,      // what it has not read waits for it, as long as it reads fast enough
  kThrottle,    // its answer is not computed any further until it has read what waits
  kDisconnect,  // it is given up as soon as too much waits
};
inline constexpr std::array<const char*, 3> kSlowClients = {"buffer", "throttle", "disconnect"};
constexpr std::optional<SlowClients> parse_slow_clients(std::string_view name) {
  for (size_t i = 0; i < kSlowClients.size(); ++i)
    if (name == kSlowClients[i]) return static_cast<SlowClients>(i);
  return std::nullopt;
}

struct StreamLimits {
  SlowClients slow_clients = SlowClients::kBuffer;
  size_t buffer_bytes = 256 << 10;  // of events that wait behind the write under way
  int stall_s = 30;                 // without progress
};
// A client that is throttled must read so many bytes in each stall_s: a byte now and then is no progress.
inline constexpr size_t kThrottledBytesMin = 4 << 10;

// Whether one write goes on fast enough. Time is a parameter.
class WritePace {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // `rate_min`: bytes a second, of a write that takes longer than stall_s.
  WritePace(const StreamLimits& limits, double rate_min, Time begin)
      : limits_(limits), rate_min_(rate_min), begin_(begin), mark_(begin) {}

  // So many bytes went out; `waiting`: what is left of the write and behind it, `is_stream`: that can be bounded.
  // False: the client is to be given up.
  bool take(size_t num_bytes, size_t waiting, bool is_stream, Time now);

 private:
  const StreamLimits limits_;
  const double rate_min_;
  const Time begin_;
  size_t done_ = 0;
  Time mark_;
  size_t done_at_mark_ = 0;
};

// For /metrics.
enum class SlowOutcome : uint8_t { kThrottled, kBufferFull, kStalled };
inline constexpr std::array<const char*, 3> kSlowOutcomes = {"throttled", "buffer_full", "stalled"};

}  // namespace llmrt::server
