#include "core/engine/engine_thread.h"

#include <utility>

namespace llmrt {

void EngineThread::start(std::function<void()> on_failure) {
  LLMRT_CHECK(!thread_.joinable(), "an engine has one thread");
  thread_ = std::thread([this, on_failure = std::move(on_failure)] {
    Status ran = engine_->run();
    if (ran.ok()) return;
    {
      std::lock_guard lock(mutex_);
      ran_ = std::move(ran);
    }
    on_failure();
  });
}

Status EngineThread::join() {
  if (thread_.joinable()) {
    engine_->stop();
    thread_.join();
  }
  std::lock_guard lock(mutex_);
  return ran_;
}

std::optional<Error> EngineThread::failure() const {
  std::lock_guard lock(mutex_);
  return ran_ ? std::nullopt : std::optional(ran_.error());
}

std::optional<std::string> EngineThread::trouble() const {
  if (const std::optional<Error> failed = failure()) return failed->message;
  const std::optional<StalledStep> stalled = engine_->stalled();
  if (!stalled) return std::nullopt;
  return fmt::format("the device has been at step {} for {:.0f} s", stalled->step, stalled->seconds);
}

}  // namespace llmrt
