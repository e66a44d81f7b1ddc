// What an engine is given to draft with: a model and an unused backend on the engine's device. Null: nothing.
#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "core/model/model.h"

namespace llmrt {

struct DraftParts {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Backend> backend;
};

}  // namespace llmrt
