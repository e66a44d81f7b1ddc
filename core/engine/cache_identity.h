// What an engine's keys and values depend on beside a request: equal tokens under another identity are other blocks.
#pragma once

#include "core/base/sha256.h"
#include "core/engine/engine_config.h"
#include "core/model/model.h"

namespace llmrt {

// Model (its RoPE among it) and KV dtype. The numeric mode is a request's.
Digest cache_identity(const Model& model, const EngineConfig& config);

}  // namespace llmrt
