// What stands around the products of experts for many rows: the order of routed rows by expert, and the sum of their
// products.
//
// order: offsets[e] = how many routed rows go to experts below e, order[offsets[e] ...] = those that go to e, in their
// order; where experts_tiles follows also their x in f16, in that order. The blocks of an expert each look through all
// ids, which are few beside what the experts multiply: so no block waits for another, and nothing is counted with
// atomics. A block's warps have a run of ids each, which they read twice: to count, and to write. Of the expert's rows
// of x each block copies every kOrderParts-th, a warp a row.
//
// sum: out[t][n] = the sum over t's routed rows, in their order, of partials[k][n]. A thread has four outputs.
#include "backends/cuda/launch.cuh"
#include "backends/cuda/numbers.cuh"
#include "backends/cuda/ops/experts.h"
#include "backends/cuda/ops/experts_rows.cuh"
#include "backends/cuda/reduce.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kOrderWarps = 8, kOrderThreads = kOrderWarps * kWarp, kSumThreads = 128;
constexpr uint32_t kOrderParts = 8;

// Copies a row of x, by a warp; columns are a multiple of 8.
template <class X>
__device__ void copy_row(const X* from, __half* to, uint32_t columns) {
#pragma unroll 4
  for (uint32_t c = threadIdx.x % kWarp * 8; c < columns; c += kWarp * 8)
    *reinterpret_cast<uint4*>(to + c) = load_x(from, c, columns);
}

// X: of the rows that are copied; void: none are.
template <class X>
__global__ void __launch_bounds__(kOrderThreads)
    order_experts_kernel(const ExpertArgs args, uint32_t* offsets, uint32_t* order, __half* sorted) {
  __shared__ uint32_t below[kOrderWarps], same[kOrderWarps];
  const uint32_t routed = live_rows(args) * args.per_row;
  grid_dependency_wait();
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, expert = blockIdx.x;
  const uint32_t run = (routed + kOrderThreads - 1) / kOrderThreads * kWarp;
  const uint32_t begin = min(warp * run, routed), end = min(begin + run, routed);
  uint32_t num_below = 0, num_same = 0;
#pragma unroll 8
  for (uint32_t i = begin + lane; i < end; i += kWarp) {
    const uint32_t id = static_cast<uint32_t>(args.ids[i]);
    num_below += id < expert;
    num_same += id == expert;
  }
  num_below = warp_reduce(num_below, SumOf());
  num_same = warp_reduce(num_same, SumOf());
  if (lane == 0) below[warp] = num_below, same[warp] = num_same;
  __syncthreads();
  uint32_t at = 0;
  for (uint32_t w = 0; w < kOrderWarps; ++w) at += below[w];
  if (threadIdx.x == 0 && blockIdx.y == 0) offsets[expert] = at;
  for (uint32_t w = 0; w < warp; ++w) at += same[w];
  if (threadIdx.x == 0 && blockIdx.y == 0 && expert + 1 == args.num_experts) offsets[expert + 1] = routed;
  if (num_same == 0) return;
  for (uint32_t i = begin; i < end; i += kWarp) {
    const bool is_mine = i + lane < end && static_cast<uint32_t>(args.ids[i + lane]) == expert;
    uint32_t mine = __ballot_sync(kFullMask, is_mine);
    if (is_mine && blockIdx.y == 0) order[at + count_bits(mine & ((1u << lane) - 1))] = i + lane;
    for (; mine != 0; mine &= mine - 1, ++at) {
      if constexpr (!std::is_void_v<X>) {
        if (at % gridDim.y != blockIdx.y) continue;
        const uint32_t k = i + static_cast<uint32_t>(__ffs(static_cast<int>(mine))) - 1, columns = args.gate.columns;
        const uint32_t row = std::is_same_v<X, float> ? k / args.per_row : k;
        copy_row(static_cast<const X*>(args.x) + uint64_t{row} * columns, sorted + uint64_t{at} * columns, columns);
      }
    }
  }
}

template <uint32_t kWidth>
__global__ void __launch_bounds__(kSumThreads)
    sum_experts_kernel(const float* partials, float* out, uint32_t outs, const ExpertArgs args) {
  const uint32_t num_live = live_rows(args);
  grid_dependency_wait();
  const uint32_t t = blockIdx.x, n = (blockIdx.y * kSumThreads + threadIdx.x) * kWidth;
  if (t >= num_live || n >= outs) return;
  using Numbers = Vec<float, static_cast<int>(kWidth)>;
  Numbers sum{};
  const float* from = partials + uint64_t{t} * args.per_row * outs + n;
#pragma unroll 8
  for (uint32_t k = 0; k < args.per_row; ++k) {
    const Numbers one = *reinterpret_cast<const Numbers*>(from + uint64_t{k} * outs);
#pragma unroll
    for (uint32_t j = 0; j < kWidth; ++j) sum.v[j] += one.v[j];
  }
  *reinterpret_cast<Numbers*>(out + uint64_t{t} * args.outs + n) = sum;
}

uint32_t sum_width(uint32_t outs, uint32_t stride) {
  return outs % 4 == 0 && stride % 4 == 0 ? 4 : 1;
}

}  // namespace

void lay_out_order(const ExpertShape& shape, ExpertChoice* choice) {
  choice->grid = {shape.num_experts, choice->copies_x ? kOrderParts : 1};
  choice->threads = kOrderThreads;
}

Status order_experts(const ExpertChoice& choice, const ExpertArgs& args, void* sorted, const OpContext& at) {
  const auto kernel = !choice.copies_x  ? order_experts_kernel<void>
                      : choice.is_gated ? order_experts_kernel<float>
                                        : order_experts_kernel<__half>;
  return launch(at, choice, kernel, args, const_cast<uint32_t*>(args.offsets), const_cast<uint32_t*>(args.order),
                static_cast<__half*>(sorted));
}

void lay_out_sum(const ExpertShape& shape, ExpertChoice* choice) {
  choice->grid = {shape.num_rows, ceil_div(choice->out_count, kSumThreads * sum_width(choice->out_count, shape.outs))};
  choice->threads = kSumThreads;
}

Status sum_experts(const ExpertChoice& choice, const float* partials, const ExpertArgs& args, const OpContext& at) {
  return launch(at, choice, sum_width(choice.out_count, args.outs) == 4 ? sum_experts_kernel<4> : sum_experts_kernel<1>,
                partials, static_cast<float*>(args.out) + choice.out_begin, choice.out_count, args);
}

}  // namespace llmrt::cuda
