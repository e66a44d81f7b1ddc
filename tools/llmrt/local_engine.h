// The engine as the server sees it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <utility>

#include "core/engine/engine_thread.h"
#include "core/sample_trace/trace_writer.h"
#include "server/engine_door.h"

namespace llmrt::cli {

class LocalEngine final : public server::EngineDoor {
 public:
  // `thread` and its engine outlive close().
  LocalEngine(const EngineThread* thread, std::shared_ptr<TraceWriter> trace)
      : thread_(thread), trace_(std::move(trace)) {}

  // What still calls, as connections do that hear of the end of an answer nobody waits for, reaches nobody from now on.
  void close() {
    std::unique_lock lock(mutex_);
    thread_ = nullptr;
  }

  Result<RequestId> submit(Request request) override {
    if (trace_) trace_->record(&request);
    std::shared_lock lock(mutex_);
    if (!thread_) return make_error(ErrorCode::kCancelled, "the model is unloaded");
    return thread_->engine().submit(std::move(request));
  }
  void cancel(RequestId id, const SentTimes& sent) override {
    std::shared_lock lock(mutex_);
    if (thread_) thread_->engine().cancel(id, sent);
  }
  void drained(RequestId id, const SentTimes& sent) override {
    std::shared_lock lock(mutex_);
    if (thread_) thread_->engine().drained(id, sent);
  }
  Result<ReadyAdapter> load_adapter(const std::string& path) override {
    std::shared_lock lock(mutex_);
    if (!thread_) return make_error(ErrorCode::kCancelled, "the model is unloaded");
    return thread_->engine().load_adapter(path);
  }
  std::vector<server::ServedWorker> workers() const override {
    std::shared_lock lock(mutex_);
    return {{.name = {}, .stats = thread_ ? thread_->engine().stats() : EngineStats()}};
  }
  void stop() override {
    std::shared_lock lock(mutex_);
    if (thread_) thread_->engine().stop();
  }
  std::optional<std::string> trouble() const override {
    std::shared_lock lock(mutex_);
    return thread_ ? thread_->trouble() : std::optional<std::string>("the model is unloaded");
  }
  void disconnect(RequestId id, const SentTimes& sent) override {
    std::shared_lock lock(mutex_);
    if (thread_) thread_->engine().cancel(id, sent, FinishReason::kDisconnected);
  }
  void set_paused(RequestId id, bool is_paused) override {
    std::shared_lock lock(mutex_);
    if (thread_) thread_->engine().set_paused(id, is_paused);
  }

 private:
  mutable std::shared_mutex mutex_;
  const EngineThread* thread_;
  const std::shared_ptr<TraceWriter> trace_;
};

}  // namespace llmrt::cli
