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

// Checks what a disk tier needs, and gives it a host tier where none is configured: as much as one sequence of the
// whole context takes, 1 GiB at most. Nothing without a folder. Errors: invalid_argument.
Status resolve_disk(const Model& model, EngineConfig* config);

// The disk tier of an engine whose KV pools `backend` has; null without a folder that is opened. The backend outlives
// it. Errors: overloaded when another program has the folder open; io_error; invalid_argument for too little room;
// unsupported when the backend's host memory cannot be read.
Result<std::unique_ptr<DiskTier>> open_disk(const EngineConfig& config, const MemoryPlan& plan,
                                            std::span<const KvGroup> groups, const Digest& cache_identity,
                                            Backend* backend);

}  // namespace llmrt
