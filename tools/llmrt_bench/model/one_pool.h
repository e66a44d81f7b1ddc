// For commands that look into the KV pool and know one kind of it.
#pragma once

#include "core/base/status.h"
#include "core/engine/pool_shapes.h"
#include "core/model/model.h"

namespace llmrt::bench {

// The pool of all layers, without its size. Unsupported where layers differ in window, KV heads or size of heads.
inline Result<KvGroup> only_pool(const Model& model, const EngineConfig& config) {
  const PoolShapes shapes(model.config, config);
  if (shapes.size() == 1) return shapes.first();
  return make_error(ErrorCode::kUnsupported,
                    "{}: this command measures models whose layers share one KV pool, found {} pools", model.path,
                    shapes.size());
}

}  // namespace llmrt::bench
