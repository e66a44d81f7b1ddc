// The thread that runs an engine, for a program that serves others meanwhile. All methods but start() and join() are
// thread-safe.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/engine/engine.h"

namespace llmrt {

class EngineThread {
 public:
  // `engine` outlives this.
  explicit EngineThread(Engine* engine) : engine_(engine) {}
  ~EngineThread() { (void)join(); }  // who wants to know has asked
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  // Once. When the engine fails, `on_failure` is called on its thread, after every request has been ended; trouble()
  // says why by then.
  void start(std::function<void()> on_failure);
  // Stops the engine and waits for its thread; says what Engine::run() returned.
  Status join();

  // Why no step can run: the engine has failed, or a step does not end. Nothing when all is well.
  std::optional<std::string> trouble() const;
  // What Engine::run() has failed with, if it has.
  std::optional<Error> failure() const;
  Engine& engine() const { return *engine_; }

 private:
  Engine* const engine_;
  std::thread thread_;
  mutable std::mutex mutex_;
  Status ran_;  // guarded by mutex_
};

}  // namespace llmrt
