// What requests have of one adapter, whatever the name that the server gives it. The engine's thread writes, any thread
// reads; who makes the request owns it together with the requests.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace llmrt {

// Since the start. Several adapters may share one.
struct AdapterCounts {
  std::atomic<uint64_t> num_requests = 0, prompt_tokens = 0, generated_tokens = 0;
};

struct AdapterUse {
  explicit AdapterUse(std::shared_ptr<AdapterCounts> counted) : counts(std::move(counted)) {}

  const std::shared_ptr<AdapterCounts> counts;
  std::atomic<uint32_t> num_in_system = 0;  // branches that wait or run
  std::atomic<uint32_t> num_running = 0;    // of these
};

}  // namespace llmrt
