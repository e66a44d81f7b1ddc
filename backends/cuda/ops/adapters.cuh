// Which rows of a step have which adapter, and where its matrices lie in the pool: what the kernels of adapters share.
#pragma once

#include <cuda_fp16.h>

#include "backends/cuda/numbers.cuh"
#include "backends/cuda/op_context.h"
#include "backends/cuda/reduce.cuh"
#include "backends/cuda/step_inputs.cuh"
#include "backends/cuda/weights.h"
#include "core/ops/adapter_ops.h"

namespace llmrt::cuda {

struct AdapterArgs {
  const std::byte* pool;
  const uint32_t* inputs;
  uint32_t header;  // word that counts the items; offsets of items and of rows follow
  uint32_t group, num_groups;
};
static_assert(kFwdAdapterItems == kFwdNumAdapterItems + 1 && kFwdAdapterRows == kFwdNumAdapterItems + 2);
static_assert(kSmpAdapterItems == kSmpNumAdapterItems + 1 && kSmpAdapterRows == kSmpNumAdapterItems + 2);

// Rows of one item.
struct AdapterPiece {
  const AdapterEntry* entry = nullptr;
  const AdapterRow* rows = nullptr;
  uint32_t count = 0;  // 0: there is no such piece
};

// Piece `piece` of all items, which are cut into pieces of `most` rows. Each warp finds it for itself.
__device__ inline AdapterPiece find_piece(const AdapterArgs& args, uint32_t piece, uint32_t most) {
  const uint32_t num_items = args.inputs[args.header], lane = threadIdx.x % kWarp;
  const AdapterItem* items = input_array<AdapterItem>(args.inputs, args.header + 1);
  uint32_t before = 0;
  for (uint32_t first = 0; first < num_items; first += kWarp) {
    const uint32_t i = first + lane, mine = i < num_items ? (items[i].num_rows + most - 1) / most : 0;
    const uint32_t end = before + warp_prefix_sum(mine);
    const uint32_t behind = __ballot_sync(kFullMask, piece < end);
    if (behind != 0) {
      const uint32_t found = static_cast<uint32_t>(__ffs(static_cast<int>(behind))) - 1;
      const uint32_t skip = (piece - __shfl_sync(kFullMask, end - mine, found)) * most;
      const AdapterItem item = items[first + found];
      const AdapterEntry* table = reinterpret_cast<const AdapterEntry*>(args.pool);
      return {table + item.slot * args.num_groups + args.group,
              input_array<AdapterRow>(args.inputs, args.header + 2) + item.first + skip,
              min(most, item.num_rows - skip)};
    }
    before = __shfl_sync(kFullMask, end, kWarp - 1);
  }
  return {};
}

__device__ inline const __half* pool_numbers(const AdapterArgs& args, uint32_t offset) {
  return reinterpret_cast<const __half*>(args.pool + uint64_t{offset} * kAdapterAlignment);
}

__device__ inline void eight_halves(const uint4& bits, float (&out)[8]) {
  const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = __low2float(half2_of(words[i]));
    out[2 * i + 1] = __high2float(half2_of(words[i]));
  }
}

// The part of an entry that has a row of out.
struct EntryPart {
  uint32_t row_begin = 0, rank_begin = 0, rank_end = 0, index = 0;
};
__device__ inline EntryPart part_of(const AdapterEntry& entry, uint32_t row) {
  EntryPart part;
  while (part.index + 1 < entry.num_parts && row >= entry.row_end[part.index]) {
    part.row_begin = entry.row_end[part.index];
    part.rank_begin = entry.rank_end[part.index];
    ++part.index;
  }
  part.rank_end = entry.rank_end[part.index];
  return part;
}

inline Status make_args(int32_t group, bool samples, const OpContext& at, AdapterArgs* args) {
  if (!at.adapter_pool)
    return make_error(ErrorCode::kInvalidArgument, "adapters: expected a pool of them behind a list that has any");
  *args = {at.adapter_pool, samples ? at.sample_inputs : at.forward_inputs,
           samples ? uint32_t{kSmpNumAdapterItems} : uint32_t{kFwdNumAdapterItems}, static_cast<uint32_t>(group),
           static_cast<uint32_t>(at.weights->groups().size())};
  return {};
}

}  // namespace llmrt::cuda
