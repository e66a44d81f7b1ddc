// The engine as the server sees it: one thread runs it, others talk to it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/engine/engine.h"
#include "core/sample_trace/trace_writer.h"
#include "server/engine_door.h"

namespace llmrt::cli {

class LocalEngine final : public server::EngineDoor {
 public:
  LocalEngine(Engine* engine, std::shared_ptr<TraceWriter> trace) : engine_(engine), trace_(std::move(trace)) {}

  Result<RequestId> submit(Request request) override {
    if (trace_) trace_->record(&request);
    return engine_->submit(std::move(request));
  }
  void cancel(RequestId id, const SentTimes& sent) override { engine_->cancel(id, sent); }
  void drained(RequestId id, const SentTimes& sent) override { engine_->drained(id, sent); }
  EngineStats stats() const override { return engine_->stats(); }
  void stop() override { engine_->stop(); }
  std::optional<std::string> trouble() const override {
    {
      std::lock_guard lock(mutex_);
      if (trouble_) return trouble_;
    }
    const std::optional<StalledStep> stalled = engine_->stalled();
    if (!stalled) return std::nullopt;
    return fmt::format("the device has been at step {} for {:.0f} s", stalled->step, stalled->seconds);
  }
  void set_trouble(std::string text) {
    std::lock_guard lock(mutex_);
    trouble_ = std::move(text);
  }

 private:
  Engine* engine_;
  const std::shared_ptr<TraceWriter> trace_;
  mutable std::mutex mutex_;
  std::optional<std::string> trouble_;
};

}  // namespace llmrt::cli
