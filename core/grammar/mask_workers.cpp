#include "core/grammar/mask_workers.h"

#include <utility>

namespace llmrt {

MaskWorkers::MaskWorkers(uint32_t num_threads) {
  for (uint32_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { run(); });
}

MaskWorkers::~MaskWorkers() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  has_work_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void MaskWorkers::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  has_work_.notify_one();
}

void MaskWorkers::run() {
  while (true) {
    std::unique_lock lock(mutex_);
    has_work_.wait(lock, [this] { return is_over_ || !work_.empty(); });
    if (is_over_) return;
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
  }
}

}  // namespace llmrt
