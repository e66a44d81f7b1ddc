// Copies the tensors of a file to their places in device memory, with several threads.
#pragma once

#include <vector>

#include "backends/cuda/memory.h"
#include "backends/cuda/packed_matrix.h"
#include "core/backend/backend.h"
#include "core/weights/weight_table.h"

namespace llmrt::cuda {

// `targets`: by WeightId. Each thread has pinned staging memory of its own; `progress` is called on this thread.
// Returns when all copies have ended.
Status load_tensors(const WeightTable& table, const std::vector<PackedMatrix>& targets, int device, MemoryBook* book,
                    const Progress& progress);

}  // namespace llmrt::cuda
