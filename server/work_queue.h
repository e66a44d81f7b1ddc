// Threads for work that may take long: parsing, templates, tokenising, large answers. Small pieces of work do not wait
// behind large ones: the first thread takes small ones alone, the others the smallest first and every fourth time the
// one that has waited longest. On Linux the threads for large work run at a lower priority, so that they slow neither
// the engine nor connections. Thread-safe.
#pragma once

#include <boost/asio.hpp>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace llmrt::server {

// Of the calling thread, on Linux: for work that others should not wait for.
void lower_thread_priority();

class WorkQueue {
 public:
  static constexpr size_t kSmallBytes = 16 << 10;
  static constexpr size_t kLargeBytes = 1 << 20;  // behind work of this size free memory goes back to the system

  // At least two threads are made: one for small work, the others for any.
  explicit WorkQueue(int threads);
  // Finishes what has begun; the rest is dropped.
  ~WorkQueue();

  // `size_bytes`: of what the work reads, its price. `work` must not throw.
  void post(size_t size_bytes, std::function<void()> work);

  // Runs `work` there; its result or exception comes back on the caller's executor. R must be movable.
  template <typename R>
  boost::asio::awaitable<R> run(size_t size_bytes, std::function<R()> work);

 private:
  using Key = std::pair<size_t, uint64_t>;  // size, number
  void serve(bool small_only);
  std::optional<Key> next(bool small_only);  // locked

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<Key, std::function<void()>> waiting_;
  std::map<uint64_t, size_t> by_age_;  // number to size
  uint64_t num_posted_ = 0, num_taken_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

template <typename R>
boost::asio::awaitable<R> WorkQueue::run(size_t size_bytes, std::function<R()> work) {
  namespace asio = boost::asio;
  auto begin = [this, size_bytes](auto handler, std::function<R()> job) {
    using Handler = decltype(handler);
    struct Call {
      Handler handler;
      std::function<R()> job;
      std::exception_ptr thrown = nullptr;
      std::optional<R> result = std::nullopt;
    };
    const auto executor =
        asio::prefer(asio::get_associated_executor(handler), asio::execution::outstanding_work.tracked);
    auto call = std::make_shared<Call>(Call{std::move(handler), std::move(job)});
    post(size_bytes, [call, executor] {
      try {
        call->result.emplace(call->job());
      } catch (...) {
        call->thrown = std::current_exception();
        call->result.emplace();
      }
      call->job = nullptr;
      asio::post(executor, [call] { std::move(call->handler)(call->thrown, std::move(*call->result)); });
    });
  };
  return asio::async_initiate<const asio::use_awaitable_t<>&, void(std::exception_ptr, R)>(
      std::move(begin), asio::use_awaitable, std::move(work));
}

}  // namespace llmrt::server
