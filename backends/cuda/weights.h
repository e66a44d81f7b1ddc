// The weights of a model in device memory: every tensor packed (packed_matrix.h) in its place (weight_layout.h). Loaded
// once, then read-only.
#pragma once

#include <cuda_runtime_api.h>

#include <span>
#include <vector>

#include "backends/cuda/memory.h"
#include "backends/cuda/packed_matrix.h"
#include "backends/cuda/weight_layout.h"
#include "core/backend/backend.h"
#include "core/base/status.h"
#include "core/weights/weight_table.h"

namespace llmrt::cuda {

struct OpContext;

class DeviceWeights {
 public:
  // Copies with several threads, each with pinned staging of its own; `progress` is called on this thread.
  Status load(const WeightTable& table, int device, MemoryBook* book, const Progress& progress);
  // Keeps quantised runs in f16 too, the smallest first, in at most so many bytes; none where fewer than half of them
  // would fit. 0 takes them away again.
  Status add_f16_copies(uint64_t bytes_max, MemoryBook* book, const OpContext& at);

  std::span<const PackedMatrix> tensors() const { return tensors_; }
  std::span<const DeviceGroup> groups() const { return groups_; }
  const PackedMatrix& tensor(WeightId id) const { return tensors_[static_cast<size_t>(id)]; }
  const DeviceGroup& group(WeightGroupId id) const { return groups_[static_cast<size_t>(id)]; }
  // Bytes of the largest run that matmul may write out in f16 first; 0: there is none.
  uint64_t f16_bytes_max() const;

 private:
  Status allocate(const WeightTable& table, MemoryBook* book);
  Status check_ranges();

  DeviceBuffer slab_, f16_slab_;
  std::vector<PackedMatrix> tensors_;
  std::vector<DeviceGroup> groups_;
};

// ops/repack.cu. Rows [row_begin, row_begin + num_rows) of `target` from `raw`, the file's bytes in device memory.
Status repack(const PackedMatrix& target, const uint8_t* raw, uint64_t row_begin, uint32_t num_rows,
              cudaStream_t stream);
// What of a bf16, mxfp4 or fp8 matrix lies where, as bits that are added to *range (device memory). Passed: a number is
// (or with other bits of its scale would be) beyond f16's range. Reached, not told of bf16: numbers can be as great as
// 2^-13, so that f16, which counts 2^-24 near zero, has the smaller ones too as exactly as the sums need.
inline constexpr uint32_t kRangePassed = 1, kRangeReached = 2;
Status check_f16_range(const PackedMatrix& matrix, uint32_t* range, cudaStream_t stream);
// Makes f16 of a bf16 matrix, in its place.
Status bf16_to_f16(const PackedMatrix& matrix, cudaStream_t stream);

}  // namespace llmrt::cuda
