// A mutex whose holder can let waiting threads go first in the middle of long work.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>

namespace llmrt {

class YieldingMutex {
 public:
  void lock() {
    num_waiting_.fetch_add(1, std::memory_order_relaxed);
    mutex_.lock();
    num_waiting_.fetch_sub(1, std::memory_order_relaxed);
  }
  void unlock() { mutex_.unlock(); }
  // By the holder: those that wait now have had it before this returns, or most of them.
  void let_others() {
    if (num_waiting_.load(std::memory_order_relaxed) == 0) return;
    mutex_.unlock();
    for (int i = 0; i < 1000 && num_waiting_.load(std::memory_order_relaxed) > 0; ++i) std::this_thread::yield();
    lock();
  }

 private:
  std::mutex mutex_;
  std::atomic<uint32_t> num_waiting_ = 0;
};

}  // namespace llmrt
