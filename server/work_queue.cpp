#include "server/work_queue.h"

#include <algorithm>

#include "core/platform/free_memory.h"

#ifdef __linux__
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace llmrt::server {
namespace {

constexpr uint64_t kOldestEvery = 4;

}  // namespace

void lower_thread_priority() {
#ifdef __linux__
  constexpr int kNice = 5;
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);  // of this thread; it may fail
#endif
}

WorkQueue::WorkQueue(int threads) {
  for (int i = 0; i < std::max(2, threads); ++i) threads_.emplace_back([this, i] { serve(/*small_only=*/i == 0); });
}

WorkQueue::~WorkQueue() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkQueue::post(size_t size_bytes, std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    const uint64_t number = num_posted_++;
    waiting_.emplace(Key{size_bytes, number}, std::move(work));
    by_age_.emplace(number, size_bytes);
  }
  arrived_.notify_all();  // one of them may not take it
}

std::optional<WorkQueue::Key> WorkQueue::next(bool small_only) {
  if (waiting_.empty()) return std::nullopt;
  const Key smallest = waiting_.begin()->first;
  if (small_only) return smallest.first <= kSmallBytes ? std::optional(smallest) : std::nullopt;
  if (++num_taken_ % kOldestEvery != 0) return smallest;
  const auto [number, size] = *by_age_.begin();
  return Key{size, number};
}

void WorkQueue::serve(bool small_only) {
  if (!small_only) lower_thread_priority();
  std::unique_lock lock(mutex_);
  while (true) {
    std::optional<Key> key;
    arrived_.wait(lock, [&] { return stopping_ || (key = next(small_only)).has_value(); });
    if (stopping_) return;
    std::function<void()> work = std::move(waiting_.find(*key)->second);
    waiting_.erase(*key);
    by_age_.erase(key->second);
    lock.unlock();
    work();
    work = nullptr;  // with all that it holds, before the next wait
    if (key->first >= kLargeBytes) return_free_memory();
    lock.lock();
  }
}

}  // namespace llmrt::server
