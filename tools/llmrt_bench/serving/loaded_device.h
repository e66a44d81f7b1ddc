// A device that holds a model's weights while engines come and go on it, one at a time.
#pragma once

#include <memory>
#include <string>

#include "core/engine/engine.h"

namespace llmrt::bench {

class LoadedDevice {
 public:
  LoadedDevice() = default;  // nothing; load() makes one
  static Result<LoadedDevice> load(std::unique_ptr<Backend> backend, std::shared_ptr<const Model> model,
                                   const Clock* clock);

  // State and KV pool are made anew, weights stay. The engine before must be gone, with nothing in flight.
  Result<std::unique_ptr<Engine>> make_engine(const EngineConfig& config) const;

  // Gives back the last engine's KV pool, for who else uses the device. The engine must be gone.
  Status free_pool() const;

  const Caps& caps() const { return backend_->caps(); }
  double load_s() const { return load_s_; }

 private:
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<const Model> model_;
  const Clock* clock_ = nullptr;
  double load_s_ = 0;
};

}  // namespace llmrt::bench
