// Weights on the device, in ranges of its memory: rows as weight_rows.h arranges them, in the pieces of
// weight_pieces.h.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/vulkan/memory.h"
#include "backends/vulkan/weight_pieces.h"
#include "core/backend/backend.h"
#include "core/weights/weight_table.h"

namespace llmrt::vulkan {

class Pipelines;
class Transfer;

class Weights {
 public:
  // Errors: out_of_memory; unsupported (a vector that is not f32 where kernels want f32 is found when an op uses it).
  static Result<Weights> load(const Device& device, MemoryBook* book, Transfer* transfer, const WeightTable& table,
                              const Progress& progress);

  const WeightPieces& pieces() const { return pieces_; }
  // Backend::add_f16_copies. The caller has dropped recordings, which may read the present copies. There are none where
  // lanes do not fill matrices.
  Status add_f16_copies(uint64_t bytes_max, const Device& device, MemoryBook* book, Pipelines* pipelines,
                        Transfer* transfer);

 private:
  RangeSet ranges_, f16_copies_;
  WeightPieces pieces_;
};

}  // namespace llmrt::vulkan
