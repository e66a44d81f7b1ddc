// The engine as the server sees it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/engine/engine_thread.h"
#include "core/sample_trace/trace_writer.h"
#include "server/engine_door.h"

namespace llmrt::cli {

class LocalEngine final : public server::EngineDoor {
 public:
  // `thread` outlives the server's last call.
  LocalEngine(const EngineThread* thread, std::shared_ptr<TraceWriter> trace)
      : thread_(thread), trace_(std::move(trace)) {}

  Result<RequestId> submit(Request request) override {
    if (trace_) trace_->record(&request);
    return engine().submit(std::move(request));
  }
  void cancel(RequestId id, const SentTimes& sent) override { engine().cancel(id, sent); }
  void disconnect(RequestId id, const SentTimes& sent) override {
    engine().cancel(id, sent, FinishReason::kDisconnected);
  }
  void set_paused(RequestId id, bool is_paused) override { engine().set_paused(id, is_paused); }
  void drained(RequestId id, const SentTimes& sent) override { engine().drained(id, sent); }
  EngineStats stats() const override { return engine().stats(); }
  void stop() override { engine().stop(); }
  std::optional<std::string> trouble() const override { return thread_->trouble(); }

 private:
  Engine& engine() const { return thread_->engine(); }

  const EngineThread* const thread_;
  const std::shared_ptr<TraceWriter> trace_;
};

}  // namespace llmrt::cli
