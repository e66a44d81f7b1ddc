// matmul of f16 weights and the gated activation behind it for many rows, on compute capability 9.0, by the products of
// warpgroups: out[r][n] = activation(x[r] * W[n]) * (x[r] * W[N/2 + n]) in f16, sums in f32.
//
// A pair of blocks makes 256 rows, each block 128 of them, of kTileOuts outputs: so many that the 14,336 outputs of an
// 8B model fill 132 multiprocessors twice, but for three per cent. The pair shares the weights, one copying the gate's
// rows to both, the other those of the other half. Two warpgroups multiply, each 64 rows by twice kTileOuts, and have
// gate and other half of an output in one lane. One thread copies to a ring in shared memory, through to the next tile
// of a persistent grid, weights also before the kernel that writes x has ended.
#include "backends/cuda/activation.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/matmul.h"
#include "backends/cuda/reduce.cuh"
#include "backends/cuda/warpgroup.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kGroupThreads = 128, kConsumers = 2, kConsumerWarps = kConsumers * kGroupThreads / kWarp;
constexpr uint32_t kThreads = (1 + kConsumers) * kGroupThreads;
constexpr uint32_t kBlockRows = 128, kPairRows = 2 * kBlockRows, kGroupRows = kBlockRows / kConsumers;
constexpr uint32_t kTileOuts = 112, kTileEights = kTileOuts / 8;
// A stage is 64 columns, rows of 128 bytes: of x, of the gate, of the other half.
constexpr uint32_t kStageColumns = 64, kRowBytes = kStageColumns * 2;
constexpr uint32_t kXBytes = kBlockRows * kRowBytes, kHalfBytes = kTileOuts * kRowBytes;
constexpr uint32_t kStageBytes = kXBytes + 2 * kHalfBytes, kStages = 5;
// Stages stand at multiples of 1024 bytes, which dynamic shared memory need not.
constexpr uint32_t kSharedBytes = 1024 + kStages * kStageBytes + kStages * 2 * 8;
static_assert(kHalfBytes % 1024 == 0 && kSharedBytes <= 227 << 10);
// Of 168 that a thread starts with.
constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;

struct Args {
  uint32_t num_outs, num_stages;  // of a tile
  uint32_t row_pairs, num_works;
  __half* out;
  const uint32_t* live;
};
struct Maps {
  RowMap x, weights;
};

// Place and phase of a stage, counted through all tiles.
struct Place {
  uint32_t s = 0, parity = 0;

  __device__ void next() {
    if (++s < kStages) return;
    s = 0;
    parity ^= 1;
  }
};

struct Ring {
  uint8_t* stages;
  uint64_t *full, *free;  // [kStages]
  uint32_t rank;

  __device__ uint8_t* x(uint32_t s) const { return stages + s * kStageBytes; }
  __device__ uint8_t* weights(uint32_t s) const { return x(s) + kXBytes; }
};

// What the pair makes: 256 rows and kTileOuts outputs from here on.
struct Work {
  uint32_t row_first, out_first;

  __device__ Work(const Args& args, uint32_t i)
      : row_first(i % args.row_pairs * kPairRows), out_first(i / args.row_pairs * kTileOuts) {}
};

// By one thread.
__device__ void fill_ring(const Ring& ring, const Args& args, const Maps& maps) {
  const auto ask_weights = [&](uint32_t s, uint32_t column, const Work& work) {
    barrier_arrive_for_bytes(&ring.full[s], kStageBytes);
    copy_rows<2>(ring.weights(s) + ring.rank * kHalfBytes, maps.weights, column,
                 ring.rank * args.num_outs + work.out_first, &ring.full[s]);
  };
  const auto ask_x = [&](uint32_t s, uint32_t column, const Work& work) {
    copy_rows<1>(ring.x(s), maps.x, column, work.row_first + ring.rank * kBlockRows, &ring.full[s]);
  };
  prefetch_map(maps.x);
  const Work first(args, blockIdx.x);
  const uint32_t ahead = min(args.num_stages, kStages);
  for (uint32_t n = 0; n < ahead; ++n) ask_weights(n, n * kStageColumns, first);
  grid_dependency_wait();  // weights never change
  for (uint32_t n = 0; n < ahead; ++n) ask_x(n, n * kStageColumns, first);
  Place place;
  for (uint32_t i = blockIdx.x; i < args.num_works; i += gridDim.x) {
    const Work work(args, i);
    for (uint32_t n = 0; n < args.num_stages; ++n, place.next()) {
      if (i == blockIdx.x && n < ahead) continue;
      barrier_wait(&ring.free[place.s], ~place.parity & 1);
      ask_weights(place.s, n * kStageColumns, work);
      ask_x(place.s, n * kStageColumns, work);
    }
  }
}

using Sums = float[2 * kTileEights][4];  // outputs n, n + 1 of a row and of the one 8 further on, the gate's first

// The sums of a tile in f16, which become results while the next tile is multiplied.
struct Finished {
  uint32_t gates[kTileEights][2], others[kTileEights][2];
  uint32_t row, n;  // of the first pair

  __device__ void keep(const Sums& sums, const Work& work, uint32_t row_in_pair) {
    const uint32_t lane = threadIdx.x % kWarp;
    row = work.row_first + row_in_pair + lane / 4;
    n = work.out_first + lane % 4 * 2;
    const auto pair = [&](uint32_t j, uint32_t r) {
      return half2_bits(__floats2half2_rn(sums[j][2 * r], sums[j][2 * r + 1]));
    };
#pragma unroll
    for (uint32_t j = 0; j < kTileEights; ++j)
#pragma unroll
      for (uint32_t r = 0; r < 2; ++r) {
        gates[j][r] = pair(j, r);
        others[j][r] = pair(j + kTileEights, r);
      }
  }
  // Eight number `j` of the outputs.
  template <Activation kActivation>
  __device__ void store(uint32_t j, const Args& args, uint32_t live) const {
    const uint32_t at = n + j * 8;
#pragma unroll
    for (uint32_t r = 0; r < 2; ++r) {
      const __half2 gate = half2_of(gates[j][r]), other = half2_of(others[j][r]);
      const float first = activate(kActivation, __low2float(gate)) * __low2float(other);
      const float second = activate(kActivation, __high2float(gate)) * __high2float(other);
      if (at < args.num_outs && row + r * 8 < live)
        *reinterpret_cast<__half2*>(args.out + uint64_t{row + r * 8} * args.num_outs + at) =
            __floats2half2_rn(first, second);
    }
  }
};

template <Activation kActivation>
__device__ void multiply(const Ring& ring, const Args& args) {
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp - kGroupThreads / kWarp;
  const uint32_t live = *args.live, x_first = warp / 4 * kGroupRows * kRowBytes;
  // By the lanes of a warp: it has read the stage. The other block may write to it too.
  const auto release = [&](uint32_t s) {
    if (lane < 2) barrier_arrive_at(&ring.free[s], lane);
  };
  const bool stores_meanwhile = args.num_stages >= kTileEights;
  Place place;
  Finished finished;
  for (uint32_t i = blockIdx.x; i < args.num_works; i += gridDim.x) {
    Sums sums = {};
    uint32_t before = 0;
    const auto multiply_stage = [&](bool is_first, auto meanwhile) {
      barrier_wait(&ring.full[place.s], place.parity);
      const uint64_t x = product_operand(shared_address(ring.x(place.s)) + x_first, 0);
      const uint64_t weights = product_operand(shared_address(ring.weights(place.s)), 0);
      products_begin();
#pragma unroll
      for (uint32_t k = 0; k < kStageColumns / 16; ++k) warpgroup_product(sums, x + k * 2, weights + k * 2);
      products_commit();
      meanwhile();
      products_wait_older<1>();  // the stage before may be written over
      if (!is_first) release(before);
      before = place.s;
      place.next();
    };
    uint32_t n = 0;
    if (i != blockIdx.x && stores_meanwhile) {
#pragma unroll
      for (uint32_t j = 0; j < kTileEights; ++j)
        multiply_stage(j == 0, [&] { finished.store<kActivation>(j, args, live); });
      n = kTileEights;
    }
    for (; n < args.num_stages; ++n) multiply_stage(n == 0, [] {});
    products_wait<0>(sums);
    release(before);
    grid_dependency_wait();
    finished.keep(sums, Work(args, i), ring.rank * kBlockRows + warp * 16);
    if (i + gridDim.x < args.num_works && stores_meanwhile) continue;
#pragma unroll
    for (uint32_t j = 0; j < kTileEights; ++j) finished.store<kActivation>(j, args, live);
  }
}

template <Activation kActivation>
__global__ void __launch_bounds__(kThreads, 1) matmul_gated_kernel(const Args args, const __grid_constant__ Maps maps) {
#if defined(LLMRT_SM_90A)
  uint8_t* base = dynamic_shared_at_1024();
  uint64_t* barriers = reinterpret_cast<uint64_t*>(base + kStages * kStageBytes);
  const Ring ring{base, barriers, barriers + kStages, blockIdx.y};
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < kStages; ++i) {
      barrier_init(&ring.full[i], 1);
      barrier_init(&ring.free[i], 2 * kConsumerWarps);
    }
    barriers_visible();
  }
  cluster_sync();
  grid_dependency_release();
  if (threadIdx.x < kGroupThreads) {
    fewer_registers<kProducerRegisters>();
    if (threadIdx.x == 0) fill_ring(ring, args, maps);
    __syncwarp();
  } else {
    more_registers<kConsumerRegisters>();
    multiply<kActivation>(ring, args);
  }
  cluster_sync();  // nobody leaves while the other one copies or arrives here
#else
  __trap();  // OpContext::has_warpgroups says that this is not the code that runs
#endif
}

}  // namespace

// Where it takes less time than cuBLAS and the activation behind it: rows that are computed for nothing cost as much as
// others.
bool can_gate(const PackedMatrix& weight, uint32_t rows, const CompileInputs& inputs) {
  const uint32_t computed = ceil_div(rows, kPairRows) * kPairRows;
  return inputs.device.has_warpgroups && weight.encoding == Encoding::kF16 && weight.rows % 4 == 0 &&
         rows >= inputs.tuning.gated_rows_min &&
         (rows <= kPairRows || uint64_t{rows} * 8 >= uint64_t{computed} * inputs.tuning.gated_useful_eighths);
}

void lay_out_gated(const MatmulShape& shape, const CompileInputs& inputs, MatmulChoice* choice) {
  const uint32_t num_works = ceil_div(shape.weight.rows / 2, kTileOuts) * ceil_div(shape.num_rows, kPairRows);
  choice->tile_rows = kPairRows;
  choice->tile_outs = kTileOuts;
  choice->grid = {std::max(1u, std::min(num_works, inputs.device.num_sms / 2)), 2};
  choice->threads = kThreads;
  choice->shared_bytes = kSharedBytes;
  choice->cluster = 2;
  choice->stages = kStages;
}

Status matmul_gated(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at) {
  const PackedMatrix& w = args.weight;
  const Result<RowMap> x = make_row_map(args.x, args.num_rows, w.columns, kBlockRows);
  if (!x) return x.error();
  const Result<RowMap> weights = make_row_map(w.plane[0], w.rows, w.row_stride / 2, kTileOuts);
  if (!weights) return weights.error();
  const uint32_t num_outs = w.rows / 2, row_pairs = ceil_div(args.num_rows, kPairRows);
  const Args kernel_args{num_outs,
                         ceil_div(w.columns, kStageColumns),
                         row_pairs,
                         ceil_div(num_outs, kTileOuts) * row_pairs,
                         reinterpret_cast<__half*>(args.out),
                         args.live};
  const auto kernel = args.activation == Activation::kSilu ? matmul_gated_kernel<Activation::kSilu>
                                                           : matmul_gated_kernel<Activation::kGelu>;
  return launch(at, choice, kernel, kernel_args, Maps{*x, *weights});
}

}  // namespace llmrt::cuda
