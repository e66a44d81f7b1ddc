#include "server/client_memory.h"

#include <algorithm>

namespace llmrt::server {

bool ClientMemory::allows(uint64_t total_bytes, uint64_t account_bytes) const {
  const uint64_t half = limit_ / 2;
  if (total_bytes <= half) return true;
  if (total_bytes > limit_) return false;
  const uint64_t share = half / std::max<uint64_t>(1, num_large_.load(std::memory_order_relaxed));
  return account_bytes <= std::max(small_bytes(), share);
}

// The account's sum: accounts that cross the line between small and large are counted.
void MemoryAccount::change(uint64_t from, uint64_t to) {
  const uint64_t before = to >= from ? bytes_.fetch_add(to - from) : bytes_.fetch_sub(from - to);
  const uint64_t after = before + to - from;
  const uint64_t small = memory_->small_bytes();
  if (before <= small && after > small) ++memory_->num_large_;
  if (before > small && after <= small) --memory_->num_large_;
  if (after > peak_bytes_.load(std::memory_order_relaxed)) peak_bytes_.store(after, std::memory_order_relaxed);
}

bool MemoryAccount::set(Part part, uint64_t bytes) {
  const uint64_t old = parts_[part].load(std::memory_order_relaxed);
  if (bytes > old) {
    const uint64_t more = bytes - old;
    uint64_t used = memory_->used_.load(std::memory_order_relaxed);
    do {
      if (!memory_->allows(used + more, this->bytes() + more)) return false;
    } while (!memory_->used_.compare_exchange_weak(used, used + more));
  } else {
    memory_->used_ -= old - bytes;
  }
  parts_[part].store(bytes, std::memory_order_relaxed);
  change(old, bytes);
  return true;
}

void MemoryAccount::clear() {
  for (size_t part = 0; part < kNumParts; ++part) set(static_cast<Part>(part), 0);
  peak_bytes_.store(0, std::memory_order_relaxed);
}

}  // namespace llmrt::server
