// An engine door for tests: answers come from a script or are written by the test, on a thread of its own where asked.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <thread>

#include "server/engine_door.h"

namespace llmrt::server {

class FakeEngine : public EngineDoor {
 public:
  // Answers each request with `tokens` (then end by length), one event each, `pause` apart, on a thread; branch b of it
  // with each token b higher and b * 0.25 more likely.
  std::vector<int32_t> tokens;
  std::vector<int32_t> prompt_tokens;    // told before, as of the prompt
  std::vector<TopLogprob> alternatives;  // of each token
  std::chrono::milliseconds pause{0};
  std::optional<Error> refuse;       // submit() fails with it
  bool has_memory = true;            // else submit() throws
  std::optional<Error> fail_at_end;  // instead of the last token; while answers are under way by set_fail_at_end()
  void set_fail_at_end(std::optional<Error> error) {
    std::lock_guard lock(mutex_);
    fail_at_end = std::move(error);
  }
  std::optional<std::string> trouble_text;
  EngineStats shown_stats;
  std::vector<server::ServedWorker> shown_workers;  // empty: it is the only one

  ~FakeEngine() override { join(); }

  Result<RequestId> submit(Request request) override {
    if (refuse) return *refuse;
    if (!has_memory) throw std::bad_alloc();
    std::lock_guard lock(mutex_);
    const RequestId id = last_id_ + 1;
    last_id_ += request.n;
    requests_.push_back(request);
    requests_.back().sink.reset();  // which keeps the door, this, alive
    for (uint32_t branch = 0; branch < request.n; ++branch)
      threads_.emplace_back([this, id, branch, sink = request.sink, max = request.max_tokens] {
        answer(id + branch, branch, *sink, max);
      });
    return id;
  }
  void cancel(RequestId id, const SentTimes& sent) override {
    std::lock_guard lock(mutex_);
    cancelled_.insert(id);
    if (sent.last_ns != 0) sent_[id] = sent;
    changed_.notify_all();
  }
  void disconnect(RequestId id, const SentTimes& sent) override {
    {
      std::lock_guard lock(mutex_);
      disconnected_.insert(id);
    }
    cancel(id, sent);
  }
  // Nothing of it is told meanwhile.
  void set_paused(RequestId id, bool is_paused) override {
    std::lock_guard lock(mutex_);
    num_pauses_ += is_paused;
    is_paused ? void(paused_.insert(id)) : void(paused_.erase(id));
    changed_.notify_all();
  }
  void drained(RequestId id, const SentTimes& sent) override {
    std::lock_guard lock(mutex_);
    drained_.insert(id);
    if (sent.last_ns != 0) sent_[id] = sent;
    changed_.notify_all();
  }
  std::vector<server::ServedWorker> workers() const override {
    if (!shown_workers.empty()) return shown_workers;
    return {{.name = {}, .stats = shown_stats}};
  }
  std::optional<std::string> trouble() const override { return trouble_text; }
  void stop() override {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

  void join() {
    stop();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  // Waits for the answers that were begun: before what they read is changed.
  void wait_ended() {
    std::vector<std::thread> threads;
    {
      std::lock_guard lock(mutex_);
      threads.swap(threads_);
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<Request> requests() const {
    std::lock_guard lock(mutex_);
    return requests_;
  }
  // False when it did not happen within 20 seconds.
  bool wait_cancelled(size_t count) { return wait(cancelled_, count); }
  bool wait_drained(size_t count) { return wait(drained_, count); }
  bool wait_paused(size_t count) { return wait(paused_, count); }
  size_t num_disconnected() const {
    std::lock_guard lock(mutex_);
    return disconnected_.size();
  }
  size_t num_pauses() const {
    std::lock_guard lock(mutex_);
    return num_pauses_;
  }
  size_t num_told() const { return num_told_; }  // events
  // Requests that the server needs no more: acknowledged, or cancelled though their end may be under way.
  bool wait_let_go(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return count_let_go() >= count; });
  }
  size_t num_let_go() const {
    std::lock_guard lock(mutex_);
    return count_let_go();
  }
  SentTimes sent_times(RequestId id) const {
    std::lock_guard lock(mutex_);
    const auto it = sent_.find(id);
    return it == sent_.end() ? SentTimes() : it->second;
  }
  size_t num_cancelled() const {
    std::lock_guard lock(mutex_);
    return cancelled_.size();
  }

 private:
  size_t count_let_go() const {
    std::set<RequestId> ids = drained_;
    ids.insert(cancelled_.begin(), cancelled_.end());
    return ids.size();
  }
  bool wait(const std::set<RequestId>& set, size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return set.size() >= count; });
  }
  bool is_over(RequestId id) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, pause, [&] { return stopped_ || cancelled_.contains(id); });
    changed_.wait(lock, [&] { return stopped_ || cancelled_.contains(id) || !paused_.contains(id); });
    return stopped_ || cancelled_.contains(id);
  }
  void answer(RequestId id, uint32_t branch, EventSink& sink, uint32_t max_tokens) {
    for (const int32_t token : prompt_tokens) {
      if (is_over(id)) break;
      const TokenEvent event{{.token = token}, /*is_prompt=*/true, id, branch};
      sink.on_events({&event, 1});
    }
    const size_t count = std::min<size_t>(tokens.size(), max_tokens);
    for (size_t i = 0; i < count; ++i) {
      TokenEvent event;
      event.request_id = id;
      event.branch = branch;
      if (is_over(id)) {
        event.finish = FinishReason::kCancelled;
        sink.on_events({&event, 1});
        return;
      }
      event.token = tokens[i] + static_cast<int32_t>(branch);
      event.top_logprobs = alternatives;
      event.has_logprob = true;
      event.logprob = -0.5f + 0.25f * static_cast<float>(branch);
      if (i + 1 == count) event.finish = FinishReason::kLength;
      std::unique_lock lock(mutex_);
      if (i + 1 == count && fail_at_end) {
        event.finish = FinishReason::kError;
        event.error = *fail_at_end;
        event.token = -1;
      }
      lock.unlock();
      ++num_told_;
      sink.on_events({&event, 1});
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  RequestId last_id_ = 0;
  bool stopped_ = false;
  std::vector<Request> requests_;
  std::set<RequestId> cancelled_, drained_, disconnected_, paused_;
  size_t num_pauses_ = 0;
  std::atomic<size_t> num_told_{0};
  std::map<RequestId, SentTimes> sent_;
  std::vector<std::thread> threads_;
};

}  // namespace llmrt::server
