#include "backends/cuda/row_map.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "backends/cuda/check.h"

namespace llmrt::cuda {
namespace {

// From cuda.h, whose numbers are fixed.
using Encode = int (*)(void* map, int type, uint32_t rank, void* base, const uint64_t* sizes, const uint64_t* strides,
                       const uint32_t* box, const uint32_t* steps, int interleave, int swizzle, int promotion,
                       int fill);
constexpr int kFloat16 = 6, kNoInterleave = 0, kNoSwizzle = 0, kSwizzle128 = 3, kPromote256 = 3, kZeros = 0;

Result<Encode> find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  CUDA_TRY(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
           "cuTensorMapEncodeTiled");
  if (found != cudaDriverEntryPointSuccess)
    return make_error(ErrorCode::kUnsupported, "the driver has no cuTensorMapEncodeTiled");
  return reinterpret_cast<Encode>(function);
}

}  // namespace

Result<RowMap> make_row_map(const void* base, uint64_t num_rows, uint32_t columns, uint32_t box_rows,
                            uint32_t box_columns) {
  static const Result<Encode> encode = find_encode();
  if (!encode) return encode.error();
  constexpr uint32_t kBoxColumns = 64;  // 128 bytes, as wide as the swizzle
  const bool is_wide = box_columns > kBoxColumns;
  const uint64_t sizes[3] = {is_wide ? kBoxColumns : columns, num_rows, columns / kBoxColumns};
  const uint64_t strides[2] = {uint64_t{columns} * 2, kBoxColumns * 2};
  const uint32_t box[3] = {std::min(box_columns, kBoxColumns), box_rows, box_columns / kBoxColumns};
  const uint32_t steps[3] = {1, 1, 1};
  RowMap map;
  const int code = (*encode)(&map, kFloat16, is_wide ? 3 : 2, const_cast<void*>(base), sizes, strides, box, steps,
                             kNoInterleave, box_columns < kBoxColumns ? kNoSwizzle : kSwizzle128, kPromote256, kZeros);
  if (code != 0)
    return make_error(ErrorCode::kUnsupported, "a map of {} rows of {} numbers, {} by {} at a time: the driver says {}",
                      num_rows, columns, box_rows, box_columns, code);
  return map;
}

}  // namespace llmrt::cuda
