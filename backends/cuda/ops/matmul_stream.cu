// matmul of 16-bit weights for up to 8 rows, on devices with asynchronous bulk copies (compute capability 9 and later):
// out[r][n] = sum over k of x[r][k] * W[n][k] + bias[n]; x f16 [rows, K], W [N, K] f16 or bf16.
//
// Bound by reading W once, so the copies never stop: a block stays on its multiprocessor and walks over slabs of 16
// outputs n. One warp asks for their columns in stages of a ring in shared memory, as far ahead as there is room, also
// before the kernel that writes x has ended, and across slabs. 8 warps each take a step of 128 columns of a stage: W is
// the 16x16 operand of the matrix units, x (8 rows, zero where not live) the 16x8 one, whose numbers a lane keeps in
// registers where K is small. Another warp adds the 8 warps' sums in their order and stores them, while they go on with
// the next slab.
#include "backends/cuda/activation.cuh"
#include "backends/cuda/dequant.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/matmul.h"
#include "backends/cuda/reduce.cuh"
#include "backends/cuda/warpgroup.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kWarps = 8;  // that multiply
constexpr uint32_t kCopyWarp = kWarps, kStoreWarp = kWarps + 1, kThreads = (kWarps + 2) * kWarp;
constexpr uint32_t kThreadsBound = 512;  // at most 128 registers a thread
constexpr uint32_t kSlabOut = 16, kRowsMax = 8;
constexpr uint32_t kStageColumns = kWarps * kStep;
// Of a row in a stage. Room between rows, so that two rows of a load do not share their banks, was measured slower: the
// copies then take longer.
constexpr uint32_t kRowBytes = kStageColumns * 2;
constexpr uint32_t kStageBytes = kSlabOut * kRowBytes;
constexpr uint32_t kStages = 6;
constexpr uint32_t kStepsKept = 4;  // of a warp, whose x stays in registers

struct Args {
  PackedMatrix weight;
  const __half* x;
  const float* bias;  // or null
  std::byte* out;
  uint32_t out_stride;
  MatmulResult result;  // not kF16
  Activation activation;
  const uint32_t* live;
};

struct Shared {
  float4 sums[2][kWarps][kWarp];  // of slabs in turn
  uint64_t full[kStages], free[kStages];
  uint64_t sums_full[2], sums_free[2];
};

// A place in the ring, and how often it has gone round.
struct Place {
  uint32_t stage = 0, round = 0;

  __device__ void next() {
    if (++stage < kStages) return;
    stage = 0;
    ++round;
  }
};

// The row of W that is row i of a slab: where the results go through a gated activation, 8 rows of the gate and the 8
// of the other half that belong to them. Rows past the end repeat the last one, whose sums are not stored.
__device__ uint32_t slab_row(const Args& args, uint32_t slab, uint32_t i) {
  if (args.result != MatmulResult::kGated) return min(slab * kSlabOut + i, args.weight.rows - 1);
  const uint32_t half = args.weight.rows / 2;
  return min(slab * 8 + i % 8, half - 1) + i / 8 * half;
}

// By one warp; a row of a slab is a lane's.
__device__ void copy_slabs(uint8_t* ring, Shared& shared, const Args& args, uint32_t num_slabs) {
  const uint32_t lane = threadIdx.x % kWarp, row_stride = args.weight.row_stride;
  Place place;
  for (uint32_t slab = blockIdx.x; slab < num_slabs; slab += gridDim.x) {
    const uint8_t* row = args.weight.plane[0] + uint64_t{slab_row(args, slab, lane % kSlabOut)} * row_stride;
    for (uint32_t first = 0; first < row_stride; first += kRowBytes) {
      const uint32_t bytes = min(kRowBytes, row_stride - first);
      barrier_wait(&shared.free[place.stage], ~place.round & 1);
      if (lane == 0) barrier_arrive_for_bytes(&shared.full[place.stage], bytes * kSlabOut);
      __syncwarp();
      if (lane < kSlabOut)
        copy_bytes(ring + place.stage * kStageBytes + lane * kRowBytes, row + first, bytes, &shared.full[place.stage]);
      place.next();
    }
  }
}

// This lane's share of a step of x.
struct XWords {
  uint4 words[4];

  __device__ void load(const Args& args, uint32_t live, uint32_t step) {
    const uint32_t g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
    const __half* x = args.x + uint64_t{g} * args.weight.columns;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t column = step * kStep + i * kUnit + t * 8;
      words[i] = g < live && column < args.weight.columns ? *reinterpret_cast<const uint4*>(x + column) : uint4{};
    }
  }
};

// sum += the products of the warp's step of a stage, of which `bytes` of each row are there.
template <Encoding E>
__device__ void add_step(float (&sum)[4], const uint8_t* stage, uint32_t bytes, const XWords& x) {
  const uint32_t lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4, warp = threadIdx.x / kWarp;
  Fragment<E> upper, lower;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t offset = 2 * (warp * kStep + i * kUnit + t * 8);
    const auto load = [&](uint32_t row) {
      return offset < bytes ? *reinterpret_cast<const uint4*>(stage + row * kRowBytes + offset) : uint4{};
    };
    upper.numbers[i] = load(g);
    lower.numbers[i] = load(g + 8);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t up[4], low[4];
    upper.decode(i, t, up);
    lower.decode(i, t, low);
    mma_16x8x16(sum, {up[0], low[0], up[1], low[1]}, {x.words[i].x, x.words[i].y});
    mma_16x8x16(sum, {up[2], low[2], up[3], low[3]}, {x.words[i].z, x.words[i].w});
  }
}

template <Encoding E, bool kKept>
__device__ void multiply(const uint8_t* ring, Shared& shared, const Args& args, uint32_t live, uint32_t num_slabs) {
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, row_stride = args.weight.row_stride;
  const uint32_t num_stages = (row_stride + kRowBytes - 1) / kRowBytes;
  XWords x[kKept ? kStepsKept : 1], next;
  if constexpr (kKept) {
#pragma unroll
    for (uint32_t i = 0; i < kStepsKept; ++i) x[i].load(args, live, i * kWarps + warp);
  } else {
    next.load(args, live, warp);
  }
  Place place;
  uint32_t count = 0;
  for (uint32_t slab = blockIdx.x; slab < num_slabs; slab += gridDim.x, ++count) {
    float sum[4] = {};
    const auto take_stage = [&](uint32_t i, const XWords& words) {
      barrier_wait(&shared.full[place.stage], place.round & 1);
      add_step<E>(sum, ring + place.stage * kStageBytes, row_stride - i * kRowBytes, words);
      __syncwarp();
      if (lane == 0) barrier_arrive(&shared.free[place.stage]);
      place.next();
    };
    if constexpr (kKept) {
#pragma unroll
      for (uint32_t i = 0; i < kStepsKept; ++i)
        if (i < num_stages) take_stage(i, x[i]);
    } else {
      for (uint32_t i = 0; i < num_stages; ++i) {
        x[0] = next;
        next.load(args, live, (i + 1 < num_stages ? i + 1 : 0) * kWarps + warp);
        take_stage(i, x[0]);
      }
    }
    const uint32_t half = count % 2;
    barrier_wait(&shared.sums_free[half], ~(count / 2) & 1);
    shared.sums[half][warp][lane] = {sum[0], sum[1], sum[2], sum[3]};
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.sums_full[half]);
  }
}

// The sums of rows i and i + 8 of a slab, for row `row` of x.
__device__ void store_two(const Args& args, uint32_t slab, uint32_t i, uint32_t row, float first, float second) {
  const auto bias = [&](uint32_t n) { return args.bias ? args.bias[n] : 0.0f; };
  const uint64_t row_first = uint64_t{row} * args.out_stride;
  if (args.result == MatmulResult::kGated) {
    const uint32_t half = args.weight.rows / 2, n = slab * 8 + i;
    if (n >= half) return;
    const float gated = activate(args.activation, first + bias(n)) * (second + bias(n + half));
    reinterpret_cast<__half*>(args.out)[row_first + n] = __float2half_rn(gated);
    return;
  }
  const auto store = [&](uint32_t n, float sum) {
    if (n >= args.weight.rows) return;
    float* out = reinterpret_cast<float*>(args.out) + row_first + n;
    *out = sum + bias(n) + (args.result == MatmulResult::kAdded ? *out : 0.0f);
  };
  store(slab * kSlabOut + i, first);
  store(slab * kSlabOut + i + 8, second);
}

// Lane 4 * g + t has rows 2t and 2t + 1 of outputs g and g + 8 of a slab.
__device__ void store_slabs(Shared& shared, const Args& args, uint32_t live, uint32_t num_slabs) {
  const uint32_t lane = threadIdx.x % kWarp, g = lane / 4, row = lane % 4 * 2;
  uint32_t count = 0;
  for (uint32_t slab = blockIdx.x; slab < num_slabs; slab += gridDim.x, ++count) {
    const uint32_t half = count % 2;
    barrier_wait(&shared.sums_full[half], count / 2 & 1);
    float4 total{};
#pragma unroll
    for (uint32_t w = 0; w < kWarps; ++w) {
      const float4 part = shared.sums[half][w][lane];
      total = {total.x + part.x, total.y + part.y, total.z + part.z, total.w + part.w};
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.sums_free[half]);
    if (row < live) store_two(args, slab, g, row, total.x, total.z);
    if (row + 1 < live) store_two(args, slab, g, row + 1, total.y, total.w);
  }
}

template <Encoding E, bool kKept>
__global__ void __launch_bounds__(kThreadsBound) matmul_stream_kernel(Args args) {
#if defined(LLMRT_BULK_COPIES)
  __shared__ Shared shared;
  uint8_t* ring = dynamic_shared();
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t num_outputs = args.weight.rows, num_slabs = (num_outputs + kSlabOut - 1) / kSlabOut;
  if (threadIdx.x == 0) {
    for (uint32_t s = 0; s < kStages; ++s) {
      barrier_init(&shared.full[s], 1);
      barrier_init(&shared.free[s], kWarps);
    }
    for (uint32_t half = 0; half < 2; ++half) {
      barrier_init(&shared.sums_full[half], kWarps);
      barrier_init(&shared.sums_free[half], 1);
    }
    barriers_visible();
  }
  __syncthreads();
  grid_dependency_release();
  if (warp == kCopyWarp) {
    copy_slabs(ring, shared, args, num_slabs);  // weights never change
    return;
  }
  const uint32_t live = min(*args.live, kRowsMax);
  grid_dependency_wait();
  if (warp == kStoreWarp)
    store_slabs(shared, args, live, num_slabs);
  else
    multiply<E, kKept>(ring, shared, args, live, num_slabs);
#else
  __trap();  // OpContext::has_bulk_copies says that this is not the code that runs
#endif
}

}  // namespace

bool can_stream(const PackedMatrix& weight, uint32_t rows, const OpContext& at) {
  return at.has_bulk_copies && is_plain16(weight.encoding) && rows <= kRowsMax &&
         kStages * kStageBytes + sizeof(Shared) <= at.shared_bytes_max;
}

Status matmul_stream(const MatmulArgs& args, const StreamResult& result, const OpContext& at) {
  const Args kernel_args{args.weight,       static_cast<const __half*>(args.x),
                         args.bias,         reinterpret_cast<std::byte*>(args.out),
                         args.out_stride,   result.kind,
                         result.activation, args.live};
  const Grid grid{std::min(ceil_div(args.weight.rows, kSlabOut), static_cast<uint32_t>(at.num_sms)), kThreads,
                  kStages * kStageBytes};
  const auto start = [&](auto kept, auto each) {
    return launch(at, "matmul_stream", args.weight.columns <= kStepsKept * kStageColumns ? kept : each, grid,
                  kernel_args);
  };
  if (args.weight.encoding == Encoding::kF16)
    return start(matmul_stream_kernel<Encoding::kF16, true>, matmul_stream_kernel<Encoding::kF16, false>);
  return start(matmul_stream_kernel<Encoding::kBF16, true>, matmul_stream_kernel<Encoding::kBF16, false>);
}

}  // namespace llmrt::cuda
