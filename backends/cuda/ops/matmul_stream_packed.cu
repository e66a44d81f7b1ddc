// matmul of quantised weights for up to 8 rows, on devices with asynchronous bulk copies (compute capability 9 and
// later), as matmul_stream.cuh says; x f16 [rows, K], W [N, K] packed, K a multiple of 256.
//
// A bulk copy costs the warp that asks for it some 70 cycles, whatever its size, so a stage is 16 rows of up to 4,096
// columns, and each plane has a warp that copies: 8 rows in one copy where a stage holds whole rows, which follow each
// other without gaps, else row by row. The multiplying warps take blocks of 256 columns (8 units of 32) in turn.
// Integers are multiplied as they are, and the sums over each unit scaled in f32 (dequant.cuh).
//
// The matrix units have 8 columns of x: the rows, or for one row, the 8 units of a block, each with zeros at the other
// units' numbers. Then a lane scales what is in its own columns, two units of a row for the 8 of the other way. Either
// way the sums of a unit have the same bits, and those of the units of a block are kept apart, to be added in one
// order. (q6_k's numbers are multiplied by their scale before: its blocks have one sum, in column 0.)
#include "backends/cuda/dequant.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/matmul_stream.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kBlock = 256, kBlockUnits = kBlock / kUnit;
constexpr uint32_t kBlocksKept = 2;  // of a warp, whose x stays in registers

// Where a lane has its x.
enum class XPlace { kOneKept, kOneShared, kMoreKept, kMoreAhead };
constexpr bool is_one(XPlace x) {
  return x == XPlace::kOneKept || x == XPlace::kOneShared;
}
constexpr bool is_kept(XPlace x) {
  return x == XPlace::kOneKept || x == XPlace::kMoreKept;
}

// What a stage of the ring holds.
template <Encoding E>
struct Stage {
  static constexpr uint32_t kBlocks = E == Encoding::kQ8_0 ? 8 : 16;
  static constexpr bool has(uint32_t plane) { return step_bytes(E).plane[plane] != 0; }
  static constexpr uint32_t block_bytes(uint32_t plane) { return 2 * step_bytes(E).plane[plane]; }
  static constexpr uint32_t plane_bytes(uint32_t plane) { return kSlabOut * kBlocks * block_bytes(plane); }
  // Of a plane in the stage; of plane 4, of the stage.
  static constexpr uint32_t offset(uint32_t plane) {
    uint32_t sum = 0;
    for (uint32_t p = 0; p < plane; ++p) sum += plane_bytes(p);
    return sum;
  }
  static constexpr uint32_t kBytes = offset(kNumPlanes);
  // Planes 2 and 3 share one: with 12 warps in all a thread has 168 registers, with 13 it has 128.
  static constexpr uint32_t kCopyWarps = has(1) ? 3 : 2;
  static constexpr uint32_t kThreads = (kStreamWarps + 1 + kCopyWarps) * kWarp;
};
// A row of x of 14,336 columns has 28 KB beside the ring.
template <Encoding E, XPlace kX>
constexpr uint32_t kStages = (kX == XPlace::kOneShared ? 186u << 10 : 216u << 10) / Stage<E>::kBytes;
template <Encoding E, XPlace kX>
using Shared = StreamShared<kStages<E, kX>>;
template <Encoding E, XPlace kX>
using Place = StreamPlace<kStages<E, kX>>;

struct Args {
  StreamArgs stream;
  bool whole_rows;  // in every stage
};

// From block `first` of a row on, to row `row` of a stage, `blocks` of each of `rows` rows. By one thread.
template <Encoding E, uint32_t kPlane>
__device__ void copy_rows(uint8_t* stage, uint32_t row, const PackedMatrix& weight, uint64_t weight_row, uint32_t rows,
                          uint32_t first, uint32_t blocks, uint64_t* full) {
  constexpr uint32_t kOffset = Stage<E>::offset(kPlane), kBlockBytes = Stage<E>::block_bytes(kPlane);
  const uint32_t num_blocks = weight.columns / kBlock, stage_blocks = min(num_blocks, Stage<E>::kBlocks);
  copy_bytes(stage + kOffset + row * stage_blocks * kBlockBytes,
             weight.plane[kPlane] + (weight_row * num_blocks + first) * kBlockBytes, rows * blocks * kBlockBytes, full);
}

// By one warp, for its planes.
template <Encoding E, XPlace kX, uint32_t... kPlanes>
__device__ void copy_planes(uint8_t* ring, Shared<E, kX>& shared, const Args& args) {
  using S = Stage<E>;
  constexpr uint32_t kBlockBytes = (S::block_bytes(kPlanes) + ...);
  const StreamArgs& stream = args.stream;
  const uint32_t num_blocks = stream.weight.columns / kBlock, num_slabs = num_slabs_of(stream);
  const uint32_t rows = args.whole_rows ? 8 : 1, num_copies = kSlabOut / rows, lane = threadIdx.x % kWarp;
  const uint32_t row = lane * rows % kSlabOut;
  Place<E, kX> place;
  for (uint32_t slab = blockIdx.x; slab < num_slabs; slab += gridDim.x) {
    const uint32_t weight_row = slab_row(stream, slab, row);
    for (uint32_t first = 0; first < num_blocks; first += S::kBlocks) {
      const uint32_t blocks = min(S::kBlocks, num_blocks - first);
      uint8_t* stage = ring + place.stage * S::kBytes;
      uint64_t* full = &shared.full[place.stage];
      barrier_wait(&shared.free[place.stage], ~place.round & 1);
      if (lane == 0) barrier_arrive_for_bytes(full, kSlabOut * blocks * kBlockBytes);
      __syncwarp();
      if (lane < num_copies)
        (copy_rows<E, kPlanes>(stage, row, stream.weight, weight_row, rows, first, blocks, full), ...);
      place.next();
    }
  }
}

// By warp `i` of those that copy.
template <Encoding E, XPlace kX>
__device__ void copy_planes_of(uint32_t i, uint8_t* ring, Shared<E, kX>& shared, const Args& args) {
  if (i == 0) return copy_planes<E, kX, 0>(ring, shared, args);
  if constexpr (Stage<E>::has(1))
    if (i == 1) return copy_planes<E, kX, 1>(ring, shared, args);
  if constexpr (Stage<E>::has(3))
    copy_planes<E, kX, 2, 3>(ring, shared, args);
  else
    copy_planes<E, kX, 2>(ring, shared, args);
}

// This lane's share of a block of x: chunk t of each unit, where its column g has numbers.
template <Encoding E, XPlace kX>
struct XBlock {
  uint4 words[kBlockUnits] = {};

  __device__ static bool has(uint32_t unit, uint32_t live) {
    const uint32_t g = threadIdx.x % kWarp / 4;
    if (!is_one(kX)) return g < live;
    return g == (Fragment<E>::kPairs ? 0 : unit) && live > 0;
  }
  // From the first row of x, in global or in shared memory.
  __device__ void load(const uint8_t* x, uint32_t columns, uint32_t live, uint32_t block) {
    const uint32_t g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
    if (block >= columns / kBlock) return;
    const uint8_t* first = x + 2 * ((is_one(kX) ? 0 : uint64_t{g} * columns) + block * kBlock + t * 8);
#pragma unroll
    for (uint32_t u = 0; u < kBlockUnits; ++u)
      if (has(u, live)) words[u] = *reinterpret_cast<const uint4*>(first + 2 * u * kUnit);
  }
};

// d (+)= 16 rows by x, of one unit.
__device__ void multiply_unit(float (&d)[4], bool add, const uint32_t (&up)[4], const uint32_t (&low)[4],
                              const uint4& x) {
  if (add)
    mma_16x8x16(d, {up[0], low[0], up[1], low[1]}, {x.x, x.y});
  else
    mma_16x8x16_first(d, {up[0], low[0], up[1], low[1]}, {x.x, x.y});
  mma_16x8x16(d, {up[2], low[2], up[3], low[3]}, {x.z, x.w});
}
// The same of ones: sums of x.
__device__ void sum_unit(float (&d)[4], bool add, const uint4& x) {
  constexpr uint32_t kOnes[4] = {both_halves(0x3c00), both_halves(0x3c00), both_halves(0x3c00), both_halves(0x3c00)};
  multiply_unit(d, add, kOnes, kOnes, x);
}
// Columns 2t and 2t + 1 of units summed in turn in four sums: those of a unit are in one of them, the others have zero.
__device__ float2 of_four(const float (&d)[4][4], uint32_t first) {
  return {d[0][first] + d[2][first], d[1][first + 1] + d[3][first + 1]};
}
__device__ float2 fma_two(const float2& a, const float2& b, const float2& c) {
  return {fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y)};
}

// A block of rows g and g + 8 of a slab, as a lane has them.
template <Encoding E>
struct Weights {
  Fragment<E> upper[2], lower[2];
  TwoScales<E> upper_scales, lower_scales;

  // `upper_block`, `lower_block`: in the stage, counted over its rows.
  __device__ void load(const uint8_t* stage, uint32_t upper_block, uint32_t lower_block) {
    // (A constexpr function of a loop's index would be called at run time.)
    constexpr uint32_t kSecond = Stage<E>::offset(1), kThird = Stage<E>::offset(2), kFourth = Stage<E>::offset(3);
    const uint8_t* const planes[kNumPlanes] = {stage, stage + kSecond, stage + kThird, stage + kFourth};
    const uint32_t t = threadIdx.x % 4;
#pragma unroll
    for (uint32_t s = 0; s < 2; ++s) {
      upper[s].load_shared(planes, upper_block * 2 + s, t);
      lower[s].load_shared(planes, lower_block * 2 + s, t);
    }
    upper_scales.load(planes[2], upper_block, t);
    lower_scales.load(planes[2], lower_block, t);
  }
};

// The sums of rows g and g + 8 of a slab over a warp's blocks, for this lane's columns 2t and 2t + 1 of x.
template <Encoding E, XPlace kX>
struct Sums {
  static constexpr bool kByUnits = is_one(kX) && !Fragment<E>::kPairs;  // columns are units
  static constexpr uint32_t kApart = is_one(kX) || Fragment<E>::kPairs ? 1 : kBlockUnits;
  float2 upper[kApart] = {}, lower[kApart] = {};

  // Sums of the block's units of x, where rows are scaled by them.
  __device__ static float2 sum_x(const XBlock<E, kX>& x) {
    if constexpr (kByUnits && Fragment<E>::kBased) {
      float d[4][4];
#pragma unroll
      for (uint32_t u = 0; u < kBlockUnits; ++u) sum_unit(d[u % 4], u >= 4, x.words[u]);
      return of_four(d, 0);
    }
    return {};
  }

  __device__ void add(const Weights<E>& w, const XBlock<E, kX>& x, const float2& x_sum) {
    const uint32_t t = threadIdx.x % 4;
    float d[4][4];
#pragma unroll
    for (uint32_t u = 0; u < kBlockUnits; ++u) {
      uint32_t up_pairs[4], low_pairs[4];
      w.upper[u / 4].decode(u % 4, t, up_pairs);
      w.lower[u / 4].decode(u % 4, t, low_pairs);
      multiply_unit(d[u % 4], u >= 4 && kApart == 1, up_pairs, low_pairs, x.words[u]);
      if constexpr (kApart > 1) add_unit(u, w.upper[u / 4], w.lower[u / 4], d[u % 4], x.words[u]);
    }
    if constexpr (kByUnits) {
      const auto add_row = [&](float2& sum, const TwoScales<E>& scales, uint32_t first) {
        float2 scale, base;
        scales.read(t, &scale, &base);
        sum = fma_two(scale, of_four(d, first), sum);
        if constexpr (Fragment<E>::kBased) sum = fma_two(base, x_sum, sum);
      };
      add_row(upper[0], w.upper_scales, 0);
      add_row(lower[0], w.lower_scales, 2);
    } else if constexpr (kApart == 1) {
      const auto add_row = [&](float2& sum, const Fragment<E>& row, uint32_t c) {
        const float2 all = {(d[0][c] + d[1][c]) + (d[2][c] + d[3][c]),
                            (d[0][c + 1] + d[1][c + 1]) + (d[2][c + 1] + d[3][c + 1])};
        const float scale = row.scale(0, 0);
        sum = fma_two({scale, scale}, all, sum);
      };
      add_row(upper[0], w.upper[0], 0);
      add_row(lower[0], w.lower[0], 2);
    }
  }
  __device__ void add_unit(uint32_t u, const Fragment<E>& up, const Fragment<E>& low, const float (&d)[4],
                           const uint4& x) {
    float x_sum[4];
    if constexpr (Fragment<E>::kBased) sum_unit(x_sum, false, x);
    const auto add_row = [&](float2& sum, const Fragment<E>& row, uint32_t first) {
      const float scale = row.scale(u % 4, u / 4);
      sum = fma_two({scale, scale}, {d[first], d[first + 1]}, sum);
      if constexpr (Fragment<E>::kBased) {
        const float base = row.base(u % 4, u / 4);
        sum = fma_two({base, base}, {x_sum[0], x_sum[1]}, sum);
      }
    };
    add_row(upper[u], up, 0);
    add_row(lower[u], low, 2);
  }

  // In the order that both ways have: neighbouring units first. What is not a row's column is not stored.
  __device__ float4 total() const {
    if constexpr (kByUnits) {
      const auto of_lanes = [](float sum) {
        sum += __shfl_xor_sync(kFullMask, sum, 1);
        return sum + __shfl_xor_sync(kFullMask, sum, 2);
      };
      return {of_lanes(upper[0].x + upper[0].y), 0, of_lanes(lower[0].x + lower[0].y), 0};
    } else if constexpr (kApart == 1) {
      return {upper[0].x, upper[0].y, lower[0].x, lower[0].y};
    } else {
      const auto of_units = [](const float2(&s)[kApart]) {
        const auto two = [&](uint32_t i) -> float2 { return {s[i].x + s[i + 1].x, s[i].y + s[i + 1].y}; };
        const float2 a = two(0), b = two(2), c = two(4), e = two(6);
        return float2{(a.x + b.x) + (c.x + e.x), (a.y + b.y) + (c.y + e.y)};
      };
      const float2 up = of_units(upper), low = of_units(lower);
      return {up.x, up.y, low.x, low.y};
    }
  }
};

// Takes a warp's blocks out of the ring, in turns: in each one the 8 warps have one block of a row each, or none where
// it ends.
template <Encoding E, XPlace kX>
struct Reader {
  using S = Stage<E>;
  const uint8_t* ring;
  Shared<E, kX>& shared;
  uint32_t num_blocks, turn_blocks;  // of a row, and those that its turns would have
  Place<E, kX> place;
  uint32_t first = 0;  // block of the row in this turn

  // Reads without a branch, also what nobody needs, so that registers need no copies.
  __device__ void load(Weights<E>& weights, bool needed) {
    const uint32_t warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4;
    const uint32_t stage_blocks = min(num_blocks, S::kBlocks);
    const uint32_t block = min(first % S::kBlocks + warp, stage_blocks - 1);
    if (needed && first % S::kBlocks == 0 && first < num_blocks)
      barrier_wait(&shared.full[place.stage], place.round & 1);
    weights.load(ring + place.stage * S::kBytes, g * stage_blocks + block, (g + 8) * stage_blocks + block);
  }
  // What was loaded is there.
  __device__ void end_turn() {
    const bool has_stage = first < num_blocks;
    first += kStreamWarps;
    if (has_stage && (first % S::kBlocks == 0 || first >= num_blocks)) {
      __syncwarp();
      if (threadIdx.x % kWarp == 0) barrier_arrive(&shared.free[place.stage]);
      place.next();
    }
    if (first == turn_blocks) first = 0;
  }
};

template <Encoding E, XPlace kX>
__device__ void multiply(const uint8_t* ring, uint8_t* x_shared, Shared<E, kX>& shared, const StreamArgs& args,
                         uint32_t live) {
  // Weights for the next turn are loaded ahead of this one's products, where there are registers.
  constexpr bool kAhead = is_one(kX), kKept = is_kept(kX);
  const uint32_t warp = threadIdx.x / kWarp, columns = args.weight.columns, num_blocks = columns / kBlock;
  const uint32_t num_slabs = num_slabs_of(args);
  const uint8_t* x_global = reinterpret_cast<const uint8_t*>(args.x);
  XBlock<E, kX> x[kKept ? kBlocksKept : 1], x_next;
  float2 x_sum[kKept ? kBlocksKept : 1];
  if constexpr (kKept) {
#pragma unroll
    for (uint32_t i = 0; i < kBlocksKept; ++i) x[i].load(x_global, columns, live, i * kStreamWarps + warp);
#pragma unroll
    for (uint32_t i = 0; i < kBlocksKept; ++i) x_sum[i] = Sums<E, kX>::sum_x(x[i]);
  } else if constexpr (kX == XPlace::kMoreAhead) {
    x_next.load(x_global, columns, live, warp);
  } else {
    // Each warp what it reads itself.
    const uint32_t at = threadIdx.x % kWarp * 16;
#pragma unroll 8
    for (uint32_t block = warp; block < num_blocks; block += kStreamWarps)
      *reinterpret_cast<uint4*>(x_shared + block * kBlock * 2 + at) =
          *reinterpret_cast<const uint4*>(x_global + block * kBlock * 2 + at);
    __syncwarp();
  }
  const uint32_t turn_blocks =
      kKept ? kBlocksKept * kStreamWarps : (num_blocks + kStreamWarps - 1) / kStreamWarps * kStreamWarps;
  Reader<E, kX> reader{ring, shared, num_blocks, turn_blocks};
  Weights<E> weights, next;
  uint32_t slab = blockIdx.x, count = 0;
  if constexpr (kAhead) reader.load(next, slab < num_slabs);
  for (; slab < num_slabs; slab += gridDim.x, ++count) {
    Sums<E, kX> sums;
    const auto take_turn = [&](uint32_t first, const auto& add) {
      const uint32_t block = first + warp;
      if constexpr (kAhead) {
        weights = next;
        reader.end_turn();
        reader.load(next, first + kStreamWarps < turn_blocks || slab + gridDim.x < num_slabs);
      } else {
        reader.load(weights, true);
      }
      if (block < num_blocks) add(block);
      if constexpr (!kAhead) reader.end_turn();
    };
    if constexpr (kKept) {
#pragma unroll
      for (uint32_t i = 0; i < kBlocksKept; ++i)
        take_turn(i * kStreamWarps, [&](uint32_t) { sums.add(weights, x[i], x_sum[i]); });
    } else {
      for (uint32_t first = 0; first < num_blocks; first += kStreamWarps)
        take_turn(first, [&](uint32_t block) {
          if constexpr (kX == XPlace::kOneShared) {
            x[0].load(x_shared, columns, live, block);
          } else {
            x[0] = x_next;
            x_next.load(x_global, columns, live, block + kStreamWarps < num_blocks ? block + kStreamWarps : warp);
          }
          sums.add(weights, x[0], Sums<E, kX>::sum_x(x[0]));
        });
    }
    hand_over(shared, count, sums.total());
  }
}

template <Encoding E, XPlace kX>
__global__ void __launch_bounds__(Stage<E>::kThreads, 1) matmul_stream_packed_kernel(Args args) {
#if defined(LLMRT_BULK_COPIES)
  using S = Stage<E>;
  __shared__ Shared<E, kX> shared;
  uint8_t* ring = dynamic_shared();
  const uint32_t warp = threadIdx.x / kWarp;
  if (threadIdx.x == 0) {
    shared.init(S::kCopyWarps);
    barriers_visible();
  }
  __syncthreads();
  grid_dependency_release();
  if (warp > kStreamWarps) {
    copy_planes_of<E, kX>(warp - kStreamWarps - 1, ring, shared, args);  // weights never change
    return;
  }
  const uint32_t live = min(*args.stream.live, kStreamRowsMax);
  grid_dependency_wait();
  if (warp == kStreamWarps)
    store_slabs(shared, args.stream, live);
  else
    multiply<E, kX>(ring, ring + kStages<E, kX> * Stage<E>::kBytes, shared, args.stream, live);
#else
  __trap();  // OpContext::has_bulk_copies says that this is not the code that runs
#endif
}

template <Encoding E>
bool has_whole_rows(const PackedMatrix& weight) {
  return weight.columns <= Stage<E>::kBlocks * kBlock && weight.rows % kSlabOut == 0;
}

// Copies are of multiples of 16 bytes, from such addresses.
template <Encoding E>
bool can_copy(const PackedMatrix& weight) {
  for (int p = 0; p < kNumPlanes; ++p) {
    if (reinterpret_cast<uintptr_t>(weight.plane[p]) % 16 != 0) return false;
    if (!has_whole_rows<E>(weight) && plane_row_bytes(E, p, weight.columns) % 16 != 0) return false;
  }
  return true;
}

template <Encoding E, XPlace kX>
constexpr uint32_t kSharedBytes = kStages<E, kX>* Stage<E>::kBytes + sizeof(Shared<E, kX>);

template <Encoding E>
Status start(const MatmulArgs& args, const StreamResult& result, const OpContext& at) {
  const Args kernel_args{stream_args(args, result), has_whole_rows<E>(args.weight)};
  const uint32_t num_blocks = std::min(ceil_div(args.weight.rows, kSlabOut), static_cast<uint32_t>(at.num_sms));
  const auto start_with = [&]<XPlace kX>(uint32_t x_bytes) {
    const Grid grid{num_blocks, Stage<E>::kThreads, kStages<E, kX> * Stage<E>::kBytes + x_bytes};
    return launch(at, "matmul_stream", matmul_stream_packed_kernel<E, kX>, grid, kernel_args);
  };
  const bool one = args.num_rows == 1;
  const uint32_t x_bytes = args.weight.columns * 2;
  if (args.weight.columns <= kBlocksKept * kStreamWarps * kBlock)
    return one ? start_with.template operator()<XPlace::kOneKept>(0)
               : start_with.template operator()<XPlace::kMoreKept>(0);
  if (one && kSharedBytes<E, XPlace::kOneShared> + x_bytes <= at.shared_bytes_max)
    return start_with.template operator()<XPlace::kOneShared>(x_bytes);
  return start_with.template operator()<XPlace::kMoreAhead>(0);
}

// fn.template operator()<E>() for a quantised encoding.
template <class Fn>
auto with_quantized(Encoding encoding, Fn fn) {
  switch (encoding) {
    case Encoding::kQ4_0:
      return fn.template operator()<Encoding::kQ4_0>();
    case Encoding::kQ4_1:
      return fn.template operator()<Encoding::kQ4_1>();
    case Encoding::kQ5_0:
      return fn.template operator()<Encoding::kQ5_0>();
    case Encoding::kQ5_1:
      return fn.template operator()<Encoding::kQ5_1>();
    case Encoding::kQ8_0:
      return fn.template operator()<Encoding::kQ8_0>();
    case Encoding::kQ4_K:
      return fn.template operator()<Encoding::kQ4_K>();
    case Encoding::kQ5_K:
      return fn.template operator()<Encoding::kQ5_K>();
    default:
      return fn.template operator()<Encoding::kQ6_K>();
  }
}

}  // namespace

bool can_stream_packed(const PackedMatrix& weight, const OpContext& at) {
  return weight.columns % kBlock == 0 && with_quantized(weight.encoding, [&]<Encoding E>() {
           return can_copy<E>(weight) && kSharedBytes<E, XPlace::kMoreKept> <= at.shared_bytes_max;
         });
}

Status matmul_stream_packed(const MatmulArgs& args, const StreamResult& result, const OpContext& at) {
  return with_quantized(args.weight.encoding, [&]<Encoding E>() { return start<E>(args, result, at); });
}

}  // namespace llmrt::cuda
