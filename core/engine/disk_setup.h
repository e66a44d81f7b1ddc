// How an engine gets its disk tier.
#pragma once

#include <memory>
#include <span>

#include "core/backend/backend.h"
#include "core/base/sha256.h"
#include "core/disk/disk_tier.h"
#include "core/engine/engine_config.h"
#include "core/model/model.h"

namespace llmrt {

// Checks what a disk tier or an exchange needs, and gives it a host tier where none is configured: as much as one
// sequence of the whole context takes, 1 GiB at most; for an exchange as much as four, 4 GiB at most. Nothing without a
// folder or an exchange. Errors: invalid_argument.
Status resolve_disk(const Model& model, EngineConfig* config);

// The disk tier of an engine whose KV pools `backend` has, or in its place the engine's end of an exchange; null
// without a folder that is opened and without an exchange. The backend outlives it. Errors: overloaded when another
// program has the folder open; io_error; invalid_argument for too little room; unsupported when the backend's host
// memory cannot be read.
Result<std::unique_ptr<DiskTier>> open_disk(const EngineConfig& config, const MemoryPlan& plan,
                                            std::span<const KvGroup> groups, const Digest& cache_identity,
                                            Backend* backend);

}  // namespace llmrt
