// What an engine's keys and values depend on beside a request: equal tokens under another identity are other blocks.
#pragma once

#include <span>

#include "core/backend/caps.h"
#include "core/base/sha256.h"
#include "core/engine/engine_config.h"
#include "core/model/model.h"

namespace llmrt {

// Model (its RoPE among it) and KV dtype. The numeric mode is a request's.
Digest cache_identity(const Model& model, const EngineConfig& config);

// The same for blocks that engines hand over: how they lie in memory. The device is not among it, so what stands for
// equal tokens differs by rounding.
Digest exchange_layout(const Digest& cache_identity, std::span<const KvGroup> groups);

// The same for what outlives the process: beside it the device, how its blocks lie in memory, and the version of the
// program, whose kernels made them.
Digest disk_identity(const Digest& cache_identity, const Caps& caps, std::span<const KvGroup> groups);

}  // namespace llmrt
