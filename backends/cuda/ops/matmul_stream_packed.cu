// matmul of quantised weights for up to 8 rows, on devices with asynchronous bulk copies (compute capability 9 and
// later), and for up to 16 on those with warpgroups, as matmul_stream.cuh says; x f16 [rows, K], W [N, K] packed, K a
// multiple of 256.
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
//
// 9 to 16 rows are two tiles of columns of x. There the numbers of W are scaled and rounded to f16 first, since scaling
// the sums would take as long for each tile, and all of x stays in registers, of which the warps that multiply take
// over what the others do not need.
#include "backends/cuda/dequant.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/matmul_stream.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kBlock = 256, kBlockUnits = kBlock / kUnit;
constexpr uint32_t kBlocksKept = 2;  // of a warp, whose x stays in registers
constexpr uint32_t kRingBytes = 186 << 10;
// Of x: float2 by unit and pair of its rows.
constexpr uint32_t kBlockSums = kBlockUnits * 4, kBlockSumsBytes = kBlockSums * sizeof(float2);

// Where a lane has its x. (Normed: made by StreamArgs::norm.)
enum class XPlace { kOneKept, kOneShared, kMoreKept, kMoreAhead, kTwoTilesKept, kNormedKept, kNormedShared };
constexpr bool is_normed(XPlace x) {
  return x == XPlace::kNormedKept || x == XPlace::kNormedShared;
}
constexpr bool is_one(XPlace x) {
  return x == XPlace::kOneKept || x == XPlace::kOneShared || is_normed(x);
}
constexpr bool is_kept(XPlace x) {
  return x == XPlace::kOneKept || x == XPlace::kMoreKept || x == XPlace::kTwoTilesKept || x == XPlace::kNormedKept;
}
constexpr uint32_t tiles_of(XPlace x) {
  return x == XPlace::kTwoTilesKept ? 2 : 1;
}

// What a stage of the ring holds.
template <Encoding E>
struct Stage {
  static constexpr uint32_t kBlocks = kIsBytes<E> ? 8 : 16;
  static constexpr uint32_t kBlocksWarp = kBlocks / kStreamWarps;
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
  static constexpr uint32_t kStages = kRingBytes / kBytes;
  static constexpr uint32_t kPlanes = has(0) + has(1) + has(2) + has(3);
  // Multiplying warps, the one that stores, one for each plane.
  static constexpr uint32_t kThreads = (kStreamWarps + 1 + kPlanes) * kWarp;
};
template <Encoding E, uint32_t kTiles>
using Shared = StreamShared<Stage<E>::kStages, kTiles>;
template <Encoding E>
using Place = StreamPlace<Stage<E>::kStages>;

// Two tiles: in whole warpgroups, two of which multiply. How many registers a thread has then.
constexpr uint32_t kTwoTilesThreads = 3 * 4 * kWarp;
constexpr int kMultiplyRegisters = 224, kOtherRegisters = 56;
template <Encoding E, XPlace kX>
constexpr uint32_t kThreads = tiles_of(kX) == 1 ? Stage<E>::kThreads : kTwoTilesThreads;
template <Encoding E>
constexpr bool kHasTwoTiles = Stage<E>::kThreads <= kTwoTilesThreads;

struct Args {
  StreamArgs stream;
  bool whole_rows;       // in every stage
  uint32_t sums_blocks;  // of x, whose sums there is room for
};

// By one warp.
template <Encoding E, uint32_t kPlane, uint32_t kTiles>
__device__ void copy_plane(uint8_t* ring, Shared<E, kTiles>& shared, const Args& args) {
  using S = Stage<E>;
  constexpr uint32_t kOffset = S::offset(kPlane);
  constexpr uint32_t kBlockBytes = S::block_bytes(kPlane), kRowBytesMax = S::kBlocks * kBlockBytes;
  const uint32_t lane = threadIdx.x % kWarp, row_bytes = args.stream.weight.columns / kBlock * kBlockBytes;
  const uint32_t rows_copy = args.whole_rows ? 8 : 1, num_copies = kSlabOut / rows_copy;
  const uint32_t row = lane * rows_copy % kSlabOut, stage_row_bytes = min(row_bytes, kRowBytesMax);
  uint8_t* to = ring + kOffset + row * stage_row_bytes;
  const uint32_t num_slabs = num_slabs_of(args.stream);
  Place<E> place;
  for (uint32_t slab = blockIdx.x; slab < num_slabs; slab += gridDim.x) {
    const uint8_t* from = args.stream.weight.plane[kPlane] + uint64_t{slab_row(args.stream, slab, row)} * row_bytes;
    for (uint32_t first = 0; first < row_bytes; first += kRowBytesMax) {
      const uint32_t bytes = min(kRowBytesMax, row_bytes - first) * rows_copy;
      uint64_t* full = &shared.full[place.stage];
      barrier_wait(&shared.free[place.stage], ~place.round & 1);
      if (lane == 0) barrier_arrive_for_bytes(full, bytes * num_copies);
      __syncwarp();
      if (lane < num_copies) copy_bytes(to + place.stage * S::kBytes, from + first, bytes, full);
      place.next();
    }
  }
}

// Number `i` of the warps that copy.
template <Encoding E, uint32_t kTiles>
__device__ void copy_planes(uint8_t* ring, Shared<E, kTiles>& shared, const Args& args, uint32_t i) {
  using S = Stage<E>;
  if (i == 0) return copy_plane<E, 0>(ring, shared, args);
  if constexpr (S::has(1))
    if (i-- == 1) return copy_plane<E, 1>(ring, shared, args);
  if (i == 1) return copy_plane<E, 2>(ring, shared, args);
  if constexpr (S::has(3)) copy_plane<E, 3>(ring, shared, args);
}

// Of one row, whether the columns of x are its units.
template <Encoding E, XPlace kX>
inline constexpr bool kByUnits = is_one(kX) && !Fragment<E>::kPairs;

// This lane's share of a block of x: chunk t of each unit, where its column g of a tile has numbers.
template <Encoding E, XPlace kX>
struct XBlock {
  uint4 words[tiles_of(kX) * kBlockUnits] = {};
  uint4 own = {};  // where columns are units: the one of these words that may not be zero

  __device__ static bool has(uint32_t tile, uint32_t live) {
    const uint32_t g = threadIdx.x % kWarp / 4;
    return is_one(kX) ? g == 0 && live > 0 : tile * kTileRows + g < live;
  }
  // From the first row of x, in global or in shared memory.
  __device__ void load(const uint8_t* x, uint32_t columns, uint32_t live, uint32_t block) {
    const uint32_t g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
    if (block >= columns / kBlock) return;
    const uint8_t* first = x + 2 * ((is_one(kX) ? 0 : uint64_t{g} * columns) + block * kBlock + t * 8);
    if constexpr (kByUnits<E, kX>) {
      own = live > 0 ? *reinterpret_cast<const uint4*>(first + 2 * g * kUnit) : uint4{};
#pragma unroll
      for (uint32_t u = 0; u < kBlockUnits; ++u) words[u] = g == u ? own : uint4{};
    } else {
#pragma unroll
      for (uint32_t i = 0; i < tiles_of(kX); ++i)
#pragma unroll
        for (uint32_t u = 0; u < kBlockUnits; ++u)
          if (has(i, live))
            words[i * kBlockUnits + u] =
                *reinterpret_cast<const uint4*>(first + 2 * (uint64_t{i} * kTileRows * columns + u * kUnit));
    }
  }
};

// Products of a unit of 16 rows with x.
struct UnitSums {
  static constexpr uint32_t kTurns = 4;  // where units are columns: so many sums, which units take in turn
  float sums[4];

  template <bool kAdds>
  __device__ void take(const uint32_t (&up)[4], const uint32_t (&low)[4], const uint4& x) {
    if constexpr (kAdds)
      mma_16x8x16(sums, {up[0], low[0], up[1], low[1]}, {x.x, x.y});
    else
      mma_16x8x16_first(sums, {up[0], low[0], up[1], low[1]}, {x.x, x.y});
    mma_16x8x16(sums, {up[2], low[2], up[3], low[3]}, {x.z, x.w});
  }
  __device__ float of(uint32_t i) const { return sums[i]; }
};
// The same of Fragment::decode_stored, in which odd pairs count 16 times as much: by kStored.
struct StoredUnitSums {
  static constexpr uint32_t kTurns = 2;
  float even[4], odd[4];

  template <bool kAdds>
  __device__ void take(const uint32_t (&up)[4], const uint32_t (&low)[4], const uint4& x) {
    if constexpr (kAdds) {
      mma_16x8x16(even, {up[0], low[0], up[2], low[2]}, {x.x, x.z});
      mma_16x8x16(odd, {up[1], low[1], up[3], low[3]}, {x.y, x.w});
    } else {
      mma_16x8x16_first(even, {up[0], low[0], up[2], low[2]}, {x.x, x.z});
      mma_16x8x16_first(odd, {up[1], low[1], up[3], low[3]}, {x.y, x.w});
    }
  }
  __device__ float of(uint32_t i) const { return fmaf(odd[i], 1.0f / 16, even[i]); }
};
constexpr float kStored = 0x1p-24f;

// The sums of columns 2t and 2t + 1 of x, by kStored.
__device__ float2 sum_unit(const uint4& x) {
  constexpr uint32_t kOnes[4] = {both_halves(1), both_halves(1), both_halves(1), both_halves(1)};
  UnitSums all;
  all.take<false>(kOnes, kOnes, x);
  return {all.of(0), all.of(1)};
}
// Columns 2t and 2t + 1 of units summed in turn: what belongs to a unit is in one sum, the others have zero.
template <class Units>
__device__ float2 of_turns(const Units (&turns)[Units::kTurns], uint32_t first) {
  if constexpr (Units::kTurns == 2)
    return {turns[0].of(first), turns[1].of(first + 1)};
  else
    return {turns[0].of(first) + turns[2].of(first), turns[1].of(first + 1) + turns[3].of(first + 1)};
}
__device__ float2 fma_two(const float2& a, const float2& b, const float2& c) {
  return {fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y)};
}

// The sums of rows g and g + 8 of a slab over a warp's blocks, for this lane's columns 2t and 2t + 1 of x; by kStored
// where rows have a base.
template <Encoding E, XPlace kX>
struct Sums {
  using Units = std::conditional_t<Fragment<E>::kBased, StoredUnitSums, UnitSums>;
  static constexpr uint32_t kApart = is_one(kX) || Fragment<E>::kPairs ? 1 : kBlockUnits;
  float2 upper[kApart] = {}, lower[kApart] = {};

  // Sums of the block's units of x, where rows are scaled by them.
  __device__ static float2 sum_x(const XBlock<E, kX>& x) {
    if constexpr (kByUnits<E, kX> && Fragment<E>::kBased) return sum_unit(x.own);
    return {};
  }

  // `x_sum`: where columns are units; `unit_sums`: [unit][t], where they are rows.
  __device__ void add(const PlanePointers& up_row, const PlanePointers& low_row, uint32_t block, const XBlock<E, kX>& x,
                      const float2& x_sum, const float2* unit_sums) {
    const uint32_t t = threadIdx.x % 4;
    Fragment<E> up[2], low[2];
#pragma unroll
    for (uint32_t s = 0; s < 2; ++s) {
      up[s].load_shared(up_row, block * 2 + s, t);
      low[s].load_shared(low_row, block * 2 + s, t);
    }
    const auto decode = [&](const Fragment<E>& row, uint32_t u, uint32_t(&pairs)[4]) {
      if constexpr (Fragment<E>::kBased)
        row.decode_stored(u, pairs);
      else
        row.decode(u, t, pairs);
    };
    Units turns[Units::kTurns];
#pragma unroll
    for (uint32_t u = 0; u < kBlockUnits; ++u) {
      uint32_t up_pairs[4], low_pairs[4];
      decode(up[u / 4], u % 4, up_pairs);
      decode(low[u / 4], u % 4, low_pairs);
      Units& unit = turns[u % Units::kTurns];
      if (kApart == 1 && u >= Units::kTurns)
        unit.template take<true>(up_pairs, low_pairs, x.words[u]);
      else
        unit.template take<false>(up_pairs, low_pairs, x.words[u]);
      if constexpr (kApart > 1)
        add_unit(u, up[u / 4], low[u / 4], unit, Fragment<E>::kBased ? unit_sums[u * 4 + t] : float2{});
    }
    if constexpr (kByUnits<E, kX>) {
      TwoScales<E> scales;
      const auto add_row = [&](float2& sum, const PlanePointers& row, uint32_t first) {
        scales.load(row[2], block, t);
        sum = fma_two(scales.scale, of_turns(turns, first), sum);
        if constexpr (Fragment<E>::kBased) sum = fma_two(scales.base, x_sum, sum);
      };
      add_row(upper[0], up_row, 0);
      add_row(lower[0], low_row, 2);
    } else if constexpr (kApart == 1) {
      const auto add_row = [&](float2& sum, const Fragment<E>& row, uint32_t c) {
        const auto all_of = [&](uint32_t i) {
          return (turns[0].of(i) + turns[1].of(i)) + (turns[2].of(i) + turns[3].of(i));
        };
        const float2 all = {all_of(c), all_of(c + 1)};
        const float scale = row.scale(0, 0);
        sum = fma_two({scale, scale}, all, sum);
      };
      add_row(upper[0], up[0], 0);
      add_row(lower[0], low[0], 2);
    }
  }
  __device__ void add_unit(uint32_t u, const Fragment<E>& up, const Fragment<E>& low, const Units& unit,
                           const float2& x_sum) {
    const auto add_row = [&](float2& sum, const Fragment<E>& row, uint32_t first) {
      const float scale = row.scale(u % 4, u / 4);
      sum = fma_two({scale, scale}, {unit.of(first), unit.of(first + 1)}, sum);
      if constexpr (Fragment<E>::kBased) {
        const float base = row.base(u % 4, u / 4);
        sum = fma_two({base, base}, x_sum, sum);
      }
    };
    add_row(upper[u], up, 0);
    add_row(lower[u], low, 2);
  }

  // In the order that both ways have: neighbouring units first. What is not a row's column is not stored.
  __device__ void total(float4 (&totals)[1]) const {
    const float4 sum = total();
    constexpr float kFactor = Fragment<E>::kBased ? 1 / kStored : 1;
    totals[0] = {kFactor * sum.x, kFactor * sum.y, kFactor * sum.z, kFactor * sum.w};
  }
  __device__ float4 total() const {
    if constexpr (kByUnits<E, kX>) {
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

// The same for two tiles of x.
template <Encoding E>
struct Sums<E, XPlace::kTwoTilesKept> {
  using X = XBlock<E, XPlace::kTwoTilesKept>;
  float halves[2][2][4] = {};  // of a unit's chunks, of the tiles

  __device__ static float2 sum_x(const X&) { return {}; }
  __device__ void add(const PlanePointers& up_row, const PlanePointers& low_row, uint32_t block, const X& x,
                      const float2&, const float2*) {
    const uint32_t t = threadIdx.x % 4;
#pragma unroll
    for (uint32_t s = 0; s < 2; ++s) {
      Fragment<E> upper, lower;
      upper.load_shared(up_row, block * 2 + s, t);
      lower.load_shared(low_row, block * 2 + s, t);
#pragma unroll
      for (uint32_t u = 0; u < kStep / kUnit; ++u) {
        uint32_t up[4], low[4];
        decode_scaled(upper, u, t, s, up);
        decode_scaled(lower, u, t, s, low);
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
          const uint4& words = x.words[i * kBlockUnits + s * 4 + u];
          mma_16x8x16(halves[0][i], {up[0], low[0], up[1], low[1]}, {words.x, words.y});
          mma_16x8x16(halves[1][i], {up[2], low[2], up[3], low[3]}, {words.z, words.w});
        }
      }
    }
  }
  __device__ void total(float4 (&totals)[2]) const {
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i)
      totals[i] = {halves[0][i][0] + halves[1][i][0], halves[0][i][1] + halves[1][i][1],
                   halves[0][i][2] + halves[1][i][2], halves[0][i][3] + halves[1][i][3]};
  }
};

// The planes of the row that begins with block `first` of a stage. (A constexpr function of a loop's index would be
// called at run time.)
template <Encoding E>
__device__ void find_row(const uint8_t* (&row)[kNumPlanes], const uint8_t* stage, uint32_t first) {
  const auto find = [&]<uint32_t kPlane>() {
    constexpr uint32_t kOffset = Stage<E>::offset(kPlane), kBlockBytes = Stage<E>::block_bytes(kPlane);
    row[kPlane] = stage + kOffset + first * kBlockBytes;
  };
  find.template operator()<0>();
  find.template operator()<1>();
  find.template operator()<2>();
  find.template operator()<3>();
}

// Whether rows of x are columns, each with sums of its units.
template <Encoding E, XPlace kX>
inline constexpr bool kSumsUnits = !is_one(kX) && tiles_of(kX) == 1 && Fragment<E>::kBased;

// `behind_ring`: x of one row, or of more the sums of its units, [sums_blocks + kStreamWarps][kBlockSums]. They are
// made with the first slab; those that have no room a warp makes again for each.
template <Encoding E, XPlace kX>
__device__ void multiply(const uint8_t* ring, uint8_t* behind_ring, Shared<E, tiles_of(kX)>& shared,
                         const StreamArgs& args, uint32_t sums_blocks, uint32_t live) {
  using S = Stage<E>;
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4;
  const uint32_t num_blocks = args.weight.columns / kBlock, stage_blocks = min(num_blocks, S::kBlocks);
  const uint32_t num_slabs = num_slabs_of(args);
  const uint8_t* x_global = reinterpret_cast<const uint8_t*>(args.x);
  XBlock<E, kX> x[is_kept(kX) ? kBlocksKept : 1], next;
  float2 x_sum[is_kept(kX) ? kBlocksKept : 1];
  if constexpr (is_kept(kX)) {
    const uint8_t* from = is_normed(kX) ? behind_ring : x_global;
#pragma unroll
    for (uint32_t i = 0; i < kBlocksKept; ++i) x[i].load(from, args.weight.columns, live, i * kStreamWarps + warp);
#pragma unroll
    for (uint32_t i = 0; i < kBlocksKept; ++i) x_sum[i] = Sums<E, kX>::sum_x(x[i]);
  } else if constexpr (kX == XPlace::kMoreAhead) {
    next.load(x_global, args.weight.columns, live, warp);
  }
  Place<E> place;
  uint32_t count = 0;
  for (uint32_t slab = blockIdx.x; slab < num_slabs; slab += gridDim.x, ++count) {
    Sums<E, kX> sums;
    // take(blocks of the stage so far, block of the row, that of the warp, planes of rows g and g + 8)
    const auto take_stage = [&](uint32_t first, auto&& take) {
      barrier_wait(&shared.full[place.stage], place.round & 1);
      const uint8_t *up[kNumPlanes], *low[kNumPlanes];
      find_row<E>(up, ring + place.stage * S::kBytes, g * stage_blocks);
      find_row<E>(low, ring + place.stage * S::kBytes, (g + 8) * stage_blocks);
#pragma unroll
      for (uint32_t i = 0; i < S::kBlocksWarp; ++i) {
        const uint32_t block = i * kStreamWarps + warp;
        if (first + block < num_blocks) take(i, block, up, low);
      }
      warp_arrive(&shared.free[place.stage]);
      place.next();
    };
    const auto unit_sums_of = [&](uint32_t block, const XBlock<E, kX>& words) -> const float2* {
      if constexpr (kSumsUnits<E, kX>) {
        const bool has_room = block < sums_blocks;
        float2* to = reinterpret_cast<float2*>(behind_ring) + (has_room ? block : sums_blocks + warp) * kBlockSums;
        if (count > 0 && has_room) return to;
        __syncwarp();
#pragma unroll
        for (uint32_t u = 0; u < kBlockUnits; ++u) {
          const float2 sum = sum_unit(words.words[u]);
          if (lane < 4) to[u * 4 + lane] = sum;
        }
        __syncwarp();
        return to;
      } else {
        return nullptr;
      }
    };
    if constexpr (is_kept(kX)) {
#pragma unroll
      for (uint32_t stage = 0; stage < kBlocksKept / S::kBlocksWarp; ++stage)
        if (stage * S::kBlocks < num_blocks)
          take_stage(stage * S::kBlocks, [&](uint32_t i, uint32_t block, const auto& up, const auto& low) {
            const uint32_t n = stage * S::kBlocksWarp + i;
            sums.add(up, low, block, x[n], x_sum[n], unit_sums_of(stage * S::kBlocks + block, x[n]));
          });
    } else {
      for (uint32_t first = 0; first < num_blocks; first += S::kBlocks)
        take_stage(first, [&](uint32_t, uint32_t block, const auto& up, const auto& low) {
          if constexpr (is_one(kX)) {
            x[0].load(behind_ring, args.weight.columns, live, first + block);
          } else {
            x[0] = next;
            const uint32_t after = first + block + kStreamWarps;
            next.load(x_global, args.weight.columns, live, after < num_blocks ? after : warp);
          }
          sums.add(up, low, block, x[0], Sums<E, kX>::sum_x(x[0]), unit_sums_of(first + block, x[0]));
        });
    }
    float4 totals[tiles_of(kX)];
    sums.total(totals);
    hand_over(shared, count, totals);
  }
}

template <Encoding E, XPlace kX>
__global__ void __launch_bounds__(kThreads<E, kX>, 1) matmul_stream_packed_kernel(Args args) {
#if defined(LLMRT_BULK_COPIES)
  using S = Stage<E>;
  constexpr uint32_t kTiles = tiles_of(kX);
  __shared__ Shared<E, kTiles> shared;
  __shared__ uint64_t x_full;
  uint8_t* ring = dynamic_shared_for_copies();
  uint8_t* behind_ring = ring + S::kStages * S::kBytes;
  const uint32_t warp = threadIdx.x / kWarp;
  if (threadIdx.x == 0) {
    shared.init(S::kPlanes);
    barrier_init(&x_full, 1);
    barriers_visible();
  }
  __syncthreads();
  grid_dependency_release();
  const StreamArgs& stream = args.stream;
  const auto live_rows = [&] { return min(*stream.live, kTiles * kTileRows); };
#if defined(LLMRT_SM_90A)
  constexpr bool kMovesRegisters = kTiles > 1;
#else
  constexpr bool kMovesRegisters = false;  // two tiles are for devices with warpgroups alone
#endif
  // What a thread may have of registers, compilers know where no other thread comes.
  if (warp >= kStreamWarps) {
    if constexpr (kMovesRegisters) fewer_registers<kOtherRegisters>();
    if (warp > kStreamWarps) {
      if (warp <= kStreamWarps + S::kPlanes)
        copy_planes<E>(ring, shared, args, warp - kStreamWarps - 1);  // weights never change
      return;
    }
    const uint32_t live = live_rows();
    grid_dependency_wait();
    if (kX == XPlace::kOneShared && threadIdx.x % kWarp == 0) {
      barrier_arrive_for_bytes(&x_full, stream.weight.columns * 2);
      copy_bytes(behind_ring, stream.x, stream.weight.columns * 2, &x_full);
    }
    __syncwarp();
    store_slabs(shared, stream, live);
  } else {
    if constexpr (kMovesRegisters) more_registers<kMultiplyRegisters>();
    const uint32_t live = live_rows();
    if constexpr (is_normed(kX))
      make_x(shared, stream, live, behind_ring);
    else
      grid_dependency_wait();
    if (kX == XPlace::kOneShared) barrier_wait(&x_full, 0);
    multiply<E, kX>(ring, behind_ring, shared, stream, args.sums_blocks, live);
  }
#else
  __trap();  // OpContext::has_bulk_copies says that this is not the code that runs
#endif
}

bool has_kept_x(const PackedMatrix& weight) {
  return weight.columns <= kBlocksKept * kStreamWarps * kBlock;
}

template <Encoding E>
bool has_whole_rows(const PackedMatrix& weight) {
  return weight.columns <= Stage<E>::kBlocks * kBlock && weight.rows % kSlabOut == 0;
}

// With what the kernel has beside its ring: a barrier for x, and a place of each warp's own for sums of x.
template <Encoding E, uint32_t kTiles>
constexpr uint32_t kSharedBytes = Stage<E>::kStages* Stage<E>::kBytes + sizeof(Shared<E, kTiles>) +
                                  sizeof(uint64_t) + kCopyAlignment +
                                  (Fragment<E>::kBased ? kStreamWarps * kBlockSumsBytes : 0);

// Copies are of multiples of 16 bytes, from such addresses.
template <Encoding E>
bool can_copy(const PackedMatrix& weight) {
  for (int p = 0; p < kNumPlanes; ++p) {
    if (reinterpret_cast<uintptr_t>(weight.plane[p]) % 16 != 0) return false;
    if (!has_whole_rows<E>(weight) && plane_row_bytes(E, p, weight.columns) % 16 != 0) return false;
  }
  return true;
}

template <Encoding E>
void lay_out(const MatmulShape& shape, const DeviceFacts& device, MatmulChoice* choice) {
  using S = Stage<E>;
  const PackedMatrix& weight = shape.weight;
  const uint32_t x_bytes = weight.columns * 2;
  choice->grid = {std::min(ceil_div(weight.rows, kSlabOut), device.num_sms)};
  choice->threads = S::kThreads;
  choice->shared_bytes = S::kStages * S::kBytes;
  choice->stages = S::kStages;
  if (shape.num_rows > kTileRows) {
    choice->threads = kTwoTilesThreads;
    choice->stream_x = StreamX::kTwoTilesKept;
  } else if (shape.has_norm) {
    choice->shared_bytes += x_bytes;
    choice->stream_x = StreamX::kNormed;
  } else if (has_kept_x(weight) && shape.num_rows == 1) {
    choice->stream_x = StreamX::kOneKept;
  } else if (shape.num_rows > 1 || kSharedBytes<E, 1> + x_bytes > device.shared_bytes_max) {
    if (Fragment<E>::kBased) {
      choice->sums_blocks =
          std::min(weight.columns / kBlock, (device.shared_bytes_max - kSharedBytes<E, 1>) / kBlockSumsBytes);
      choice->shared_bytes += (choice->sums_blocks + kStreamWarps) * kBlockSumsBytes;
    }
    choice->stream_x = has_kept_x(weight) ? StreamX::kMoreKept : StreamX::kMoreAhead;
  } else {
    choice->shared_bytes += x_bytes;
    choice->stream_x = StreamX::kOneShared;
  }
}

template <Encoding E>
Status start(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at) {
  const Args kernel_args{stream_args(args, choice.result), has_whole_rows<E>(args.weight), choice.sums_blocks};
  const auto start_kernel = [&](auto kernel) { return launch(at, choice, kernel, kernel_args); };
  if constexpr (kHasTwoTiles<E>) {
    if (choice.stream_x == StreamX::kTwoTilesKept)
      return start_kernel(matmul_stream_packed_kernel<E, XPlace::kTwoTilesKept>);
  }
  static_assert(kNormColumnsMax <= kBlocksKept * kStreamWarps * kBlock);
  constexpr XPlace kNormed = Fragment<E>::kPairs ? XPlace::kNormedShared : XPlace::kNormedKept;  // registers
  switch (choice.stream_x) {
    case StreamX::kNormed:
      return start_kernel(matmul_stream_packed_kernel<E, kNormed>);
    case StreamX::kOneKept:
      return start_kernel(matmul_stream_packed_kernel<E, XPlace::kOneKept>);
    case StreamX::kMoreKept:
      return start_kernel(matmul_stream_packed_kernel<E, XPlace::kMoreKept>);
    case StreamX::kMoreAhead:
      return start_kernel(matmul_stream_packed_kernel<E, XPlace::kMoreAhead>);
    default:
      return start_kernel(matmul_stream_packed_kernel<E, XPlace::kOneShared>);
  }
}

}  // namespace

bool can_stream_packed(const PackedMatrix& weight, uint32_t rows, const CompileInputs& inputs) {
  const DeviceFacts& device = inputs.device;
  if (rows > 2 * kTileRows || weight.columns % kBlock != 0) return false;
  if (rows > kTileRows && weight.is_beyond_f16) return false;  // two tiles take numbers in f16
  return with_quantized(weight.encoding, [&]<Encoding E>() {
    if (!can_copy<E>(weight)) return false;
    if (rows <= kTileRows) return kSharedBytes<E, 1> <= device.shared_bytes_max;
    // To load all of x pays for blocks of more than a few slabs.
    const bool pays = ceil_div(weight.rows, kSlabOut) > inputs.tuning.stream_two_tiles_slabs_min * device.num_sms;
    return kHasTwoTiles<E> && pays && device.has_warpgroups && has_kept_x(weight) &&
           kSharedBytes<E, 2> <= device.shared_bytes_max;
  });
}

bool can_stream_packed_normed(const PackedMatrix& weight, const DeviceFacts& device) {
  return with_quantized(weight.encoding, [&]<Encoding E>() {
    return kSharedBytes<E, 1> + weight.columns * 2 <= device.shared_bytes_max;
  });
}

void lay_out_stream_packed(const MatmulShape& shape, const DeviceFacts& device, MatmulChoice* choice) {
  with_quantized(shape.weight.encoding, [&]<Encoding E>() { lay_out<E>(shape, device, choice); });
}

Status matmul_stream_packed(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at) {
  return with_quantized(args.weight.encoding, [&]<Encoding E>() { return start<E>(choice, args, at); });
}

}  // namespace llmrt::cuda
