// What clients make the server hold: bodies, waiting requests, answers that are not sent yet. One total with a bound;
// every connection has an account. Thread-safe.
//
// Below half of the bound any account may grow. Above it only an account may grow that holds less than its fair share
// of that half, so that a few large answers are ended rather than many small ones refused; at the bound nothing grows.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace llmrt::server {

class ClientMemory {
 public:
  explicit ClientMemory(uint64_t limit_bytes) : limit_(limit_bytes) {}
  uint64_t limit_bytes() const { return limit_; }
  uint64_t used_bytes() const { return used_.load(std::memory_order_relaxed); }

 private:
  friend class MemoryAccount;
  // An account that holds less counts as none and may always grow up to the bound.
  uint64_t small_bytes() const { return limit_ / 2048; }
  bool allows(uint64_t total_bytes, uint64_t account_bytes) const;

  const uint64_t limit_;
  std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> num_large_{0};  // accounts above small_bytes
};

class MemoryAccount {
 public:
  // Each part has one writer at a time.
  enum Part : size_t { kBody, kRequest, kEvents, kAnswer, kNumParts };

  explicit MemoryAccount(std::shared_ptr<ClientMemory> memory) : memory_(std::move(memory)) {}
  MemoryAccount(const MemoryAccount&) = delete;
  ~MemoryAccount() { clear(); }

  // The part now holds so many bytes; false, and nothing is changed, where there is no room for more than it held.
  bool set(Part part, uint64_t bytes);
  void clear();
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t peak_bytes() const { return peak_bytes_.load(std::memory_order_relaxed); }  // since the last clear

 private:
  void change(uint64_t from, uint64_t to);

  const std::shared_ptr<ClientMemory> memory_;
  std::array<std::atomic<uint64_t>, kNumParts> parts_{};
  std::atomic<uint64_t> bytes_{0}, peak_bytes_{0};
};

}  // namespace llmrt::server
