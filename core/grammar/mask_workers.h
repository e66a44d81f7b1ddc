// Threads that make masks, for all grammars of an engine. Any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace llmrt {

class MaskWorkers {
 public:
  explicit MaskWorkers(uint32_t num_threads);
  ~MaskWorkers();  // what has not begun is dropped

  void post(std::function<void()> work);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable has_work_;
  std::deque<std::function<void()>> work_;
  bool is_over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace llmrt
