// matmul of 16-bit weights for up to 8 rows, on devices with asynchronous bulk copies (compute capability 9 and later),
// as matmul_stream.cuh says; x f16 [rows, K], W [N, K] f16.
//
// One warp copies, a row of a slab a lane. Each multiplying warp takes a step of 128 columns of a stage; x (8 rows,
// zero where not live) stays in a lane's registers where K is small.
#include "backends/cuda/dequant.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/matmul_stream.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kCopyWarp = kStreamWarps, kStoreWarp = kStreamWarps + 1, kThreads = (kStreamWarps + 2) * kWarp;
constexpr uint32_t kThreadsBound = 512;  // at most 128 registers a thread
constexpr uint32_t kStageColumns = kStreamWarps * kStep;
// Of a row in a stage. Room between rows, so that two rows of a load do not share their banks, was measured slower: the
// copies then take longer.
constexpr uint32_t kRowBytes = kStageColumns * 2;
constexpr uint32_t kStageBytes = kSlabOut * kRowBytes;
constexpr uint32_t kStages = 6;
constexpr uint32_t kStepsKept = 4;  // of a warp, whose x stays in registers

// Where a lane has its x.
enum class XPlace { kKept, kAhead, kNormedKept };

using Shared = StreamShared<kStages>;
constexpr uint32_t kSharedBytes = kStages * kStageBytes + sizeof(Shared) + kCopyAlignment;
using Place = StreamPlace<kStages>;

// By one warp; a row of a slab is a lane's.
__device__ void copy_slabs(uint8_t* ring, Shared& shared, const StreamArgs& args) {
  const uint32_t lane = threadIdx.x % kWarp, row_stride = args.weight.row_stride, num_slabs = num_slabs_of(args);
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

  // From [rows, columns] in global or in shared memory.
  __device__ void load(const __half* x, uint32_t columns, uint32_t live, uint32_t step) {
    const uint32_t g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
    const __half* row = x + uint64_t{g} * columns;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t column = step * kStep + i * kUnit + t * 8;
      words[i] = g < live && column < columns ? *reinterpret_cast<const uint4*>(row + column) : uint4{};
    }
  }
};

// sum += the products of the warp's step of a stage, of which `bytes` of each row are there.
__device__ void add_step(float (&sum)[4], const uint8_t* stage, uint32_t bytes, const XWords& x) {
  const uint32_t lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4, warp = threadIdx.x / kWarp;
  Fragment<Encoding::kF16> upper, lower;
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

// `normed`: x in shared memory.
template <XPlace kX>
__device__ void multiply(const uint8_t* ring, const uint8_t* normed, Shared& shared, const StreamArgs& args,
                         uint32_t live) {
  const uint32_t warp = threadIdx.x / kWarp, row_stride = args.weight.row_stride;
  const uint32_t num_stages = (row_stride + kRowBytes - 1) / kRowBytes, num_slabs = num_slabs_of(args);
  constexpr bool kKept = kX != XPlace::kAhead;
  XWords x[kKept ? kStepsKept : 1], next;
  if constexpr (kKept) {
    const __half* from = kX == XPlace::kNormedKept ? reinterpret_cast<const __half*>(normed) : args.x;
#pragma unroll
    for (uint32_t i = 0; i < kStepsKept; ++i) x[i].load(from, args.weight.columns, live, i * kStreamWarps + warp);
  } else {
    next.load(args.x, args.weight.columns, live, warp);
  }
  Place place;
  uint32_t count = 0;
  for (uint32_t slab = blockIdx.x; slab < num_slabs; slab += gridDim.x, ++count) {
    float sum[4] = {};
    const auto take_stage = [&](uint32_t i, const XWords& words) {
      barrier_wait(&shared.full[place.stage], place.round & 1);
      add_step(sum, ring + place.stage * kStageBytes, row_stride - i * kRowBytes, words);
      warp_arrive(&shared.free[place.stage]);
      place.next();
    };
    if constexpr (kKept) {
#pragma unroll
      for (uint32_t i = 0; i < kStepsKept; ++i)
        if (i < num_stages) take_stage(i, x[i]);
    } else {
      for (uint32_t i = 0; i < num_stages; ++i) {
        x[0] = next;
        next.load(args.x, args.weight.columns, live, (i + 1 < num_stages ? i + 1 : 0) * kStreamWarps + warp);
        take_stage(i, x[0]);
      }
    }
    hand_over(shared, count, {{sum[0], sum[1], sum[2], sum[3]}});
  }
}

template <XPlace kX>
__global__ void __launch_bounds__(kThreadsBound) matmul_stream_kernel(StreamArgs args) {
#if defined(LLMRT_BULK_COPIES)
  __shared__ Shared shared;
  uint8_t* ring = dynamic_shared_for_copies();
  const uint32_t warp = threadIdx.x / kWarp;
  if (threadIdx.x == 0) {
    shared.init(1);
    barriers_visible();
  }
  __syncthreads();
  grid_dependency_release();
  if (warp == kCopyWarp) {
    copy_slabs(ring, shared, args);  // weights never change
    return;
  }
  const uint32_t live = min(*args.live, kTileRows);
  if (warp == kStoreWarp) {
    grid_dependency_wait();
    store_slabs(shared, args, live);
  } else {
    uint8_t* normed = ring + kStages * kStageBytes;
    if constexpr (kX == XPlace::kNormedKept)
      make_x(shared, args, live, normed);
    else
      grid_dependency_wait();
    multiply<kX>(ring, normed, shared, args, live);
  }
#else
  __trap();  // OpContext::has_bulk_copies says that this is not the code that runs
#endif
}

}  // namespace

bool can_stream(const PackedMatrix& weight, uint32_t rows, const CompileInputs& inputs) {
  if (!inputs.device.has_bulk_copies) return false;
  if (is_quantized(weight.encoding)) return can_stream_packed(weight, rows, inputs);
  return rows <= kTileRows && weight.encoding == Encoding::kF16 && kSharedBytes <= inputs.device.shared_bytes_max;
}

bool can_stream_normed(const PackedMatrix& weight, const CompileInputs& inputs) {
  if (weight.columns > kNormColumnsMax || !can_stream(weight, 1, inputs)) return false;
  if (is_quantized(weight.encoding)) return can_stream_packed_normed(weight, inputs.device);
  return kSharedBytes + weight.columns * 2 <= inputs.device.shared_bytes_max;
}

void lay_out_stream(const MatmulShape& shape, const CompileInputs& inputs, MatmulChoice* choice) {
  if (is_quantized(shape.weight.encoding)) return lay_out_stream_packed(shape, inputs.device, choice);
  static_assert(kNormColumnsMax <= kStepsKept * kStageColumns);
  choice->grid = {std::min(ceil_div(shape.weight.rows, kSlabOut), inputs.device.num_sms)};
  choice->threads = kThreads;
  choice->shared_bytes = kStages * kStageBytes + (shape.has_norm ? shape.weight.columns * 2 : 0);
  choice->stages = kStages;
  choice->stream_x = shape.has_norm                                       ? StreamX::kNormedKept
                     : shape.weight.columns <= kStepsKept * kStageColumns ? StreamX::kKept
                                                                          : StreamX::kAhead;
}

Status matmul_stream(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at) {
  if (is_quantized(args.weight.encoding)) return matmul_stream_packed(choice, args, at);
  const auto kernel = choice.stream_x == StreamX::kNormedKept ? matmul_stream_kernel<XPlace::kNormedKept>
                      : choice.stream_x == StreamX::kKept     ? matmul_stream_kernel<XPlace::kKept>
                                                              : matmul_stream_kernel<XPlace::kAhead>;
  return launch(at, choice, kernel, stream_args(args, choice.result));
}

}  // namespace llmrt::cuda
