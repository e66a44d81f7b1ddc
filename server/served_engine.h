// A model with the engine that answers for it: what a request holds while it is answered (core/router/model_host.h).
#pragma once

#include <memory>
#include <utility>

#include "core/router/model_host.h"
#include "server/engine_door.h"
#include "server/served_model.h"

namespace llmrt::server {

class ServedEngine : public LoadedModel {
 public:
  // `served` has passed finish_model; `bytes`: what its engine holds.
  ServedEngine(ServedModel served, std::shared_ptr<EngineDoor> its_door, uint64_t bytes)
      : model(std::move(served)), door(std::move(its_door)), bytes_(bytes) {}
  uint64_t held_bytes() const override { return bytes_; }

  const ServedModel model;
  const std::shared_ptr<EngineDoor> door;

 private:
  const uint64_t bytes_;
};

// Keeps the model loaded, and what is below alive.
using ServedLease = std::shared_ptr<const ServedEngine>;
// Every model of a server's host is one.
inline ServedLease to_served(ModelLease lease) {
  return std::static_pointer_cast<const ServedEngine>(std::move(lease));
}

// Checks the name (UTF-8, as every answer is JSON and says it) and computes text_bytes_max.
Status finish_model(ServedModel* model);

}  // namespace llmrt::server
