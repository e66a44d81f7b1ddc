// What happens when the KV pool is full.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace llmrt {

enum class OnExhaustion : uint8_t {
  // What is admitted has blocks for all of its max_tokens, so it never has to yield. Who finds no room ...
  kReject,  // is refused at once (overloaded)
  kQueue,   // waits
  // More is admitted than has room for the longest answers; when the pool runs out somebody yields, and what was
  // computed is ...
  kPreempt,    // stored in the host tier or computed again, whichever the cost model says is cheaper
  kSwap,       // stored in the host tier
  kRecompute,  // computed again
};
constexpr const char* on_exhaustion_name(OnExhaustion policy) {
  constexpr const char* kNames[] = {"reject", "queue", "preempt", "swap", "recompute"};
  return kNames[static_cast<int>(policy)];
}
constexpr std::optional<OnExhaustion> parse_on_exhaustion(std::string_view name) {
  for (int i = 0; i < 5; ++i)
    if (name == on_exhaustion_name(static_cast<OnExhaustion>(i))) return static_cast<OnExhaustion>(i);
  return std::nullopt;
}
// Whether admission reserves all that a request may ever need.
constexpr bool reserves_all(OnExhaustion policy) {
  return policy == OnExhaustion::kReject || policy == OnExhaustion::kQueue;
}

}  // namespace llmrt
