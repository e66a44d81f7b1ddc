// matmul_batch by the products of warps, on devices with asynchronous bulk copies (compute capability 9 and later). 16
// warps (8 where their sums need the registers) multiply on the matrix units, each 32 outputs of half a step (of one):
// W is the 16x16 operand, decoded to f16 in registers, x the 16x8 one, whose chunks of 8 columns are those that a lane
// decodes. Everything else is in matmul_batch.cuh.
#include "backends/cuda/ops/matmul_batch.cuh"

namespace llmrt::cuda {
namespace {

using namespace batch;

constexpr uint32_t kWarpOut = 32;
constexpr uint32_t kRowsMax = 48, kRowsMaxWarpgroups = 64;  // the largest variants

// ---- products ------------------------------------------------------------------------------------------------------

// Which of 8 rows lanes 4 * g to 4 * g + 3 have: what 8 lanes read together stands in different banks.
__device__ uint32_t row_of(uint32_t g) {
  return g / 2 + g % 2 * 4;
}

template <Encoding E, class S>
__device__ void load_fragment(Fragment<E>& fragment, const uint8_t* stage, uint32_t row, uint32_t step,
                              const uint8_t* last_plane) {
  const uint32_t t = threadIdx.x % 4;
  const auto numbers = [&](uint32_t box, uint32_t piece) {
    return *reinterpret_cast<const uint4*>(stage + box * kBoxBytes + row * kBoxRowBytes + (piece ^ row % 8) * 16);
  };
  const PlanePointers planes = {nullptr, stage + S::kSecondFirst + row * S::row_bytes(1),
                                stage + S::kScalesFirst + row * S::row_bytes(2), last_plane};
  if constexpr (kIsBytes<E>) {
    fragment.bytes[0] = numbers(step, t);
    fragment.bytes[1] = numbers(step, 4 + t);
    fragment.scales.load(planes[2], step);
  } else {
    fragment.nibbles = numbers(0, step * 4 + t);
    fragment.load_rest(planes, step, t);
  }
}

// A warp's sums: outputs row_of(g) and 8 further on of each 16, for rows row_of(2t), row_of(2t + 1) of each 8 of x.
template <class S>
struct Sums {
  static constexpr uint32_t kTiles = kWarpOut / 16, kXTiles = S::kRows / 8;
  float tiles[kTiles][kXTiles][4] = {};

  // Units [kFirst, kFirst + S::Way::kGroupUnits) of `step` of a stage, rows of the tile from `out` on; `last_plane(row
  // from there on)` in this stage.
  template <Encoding E, uint32_t kFirst>
  __device__ void add(const uint8_t* stage, uint32_t step, uint32_t out, auto last_plane) {
    const uint32_t lane = threadIdx.x % kWarp, t = lane % 4, r = row_of(lane / 4);
    Fragment<E> upper[kTiles], lower[kTiles];
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) {
      const uint32_t row = i * 16 + r;
      load_fragment<E, S>(upper[i], stage, out + row, step, last_plane(row));
      load_fragment<E, S>(lower[i], stage, out + row + 8, step, last_plane(row + 8));
    }
#pragma unroll
    for (uint32_t u = kFirst; u < kFirst + S::Way::kGroupUnits; ++u) {
      const uint8_t* box = stage + S::kXFirst + (step * 2 + u / 2) * S::kXBoxBytes + r * kBoxRowBytes;
      uint4 x[kXTiles];
#pragma unroll
      for (uint32_t j = 0; j < kXTiles; ++j)
        x[j] = *reinterpret_cast<const uint4*>(box + j * 8 * kBoxRowBytes + ((u % 2 * 4 + t) ^ r) * 16);
#pragma unroll
      for (uint32_t i = 0; i < kTiles; ++i) {
        uint32_t up[4], low[4];
        decode_scaled(upper[i], u, t, step, up);
        decode_scaled(lower[i], u, t, step, low);
#pragma unroll
        for (uint32_t j = 0; j < kXTiles; ++j)
          mma_16x8x16(tiles[i][j], {up[0], low[0], up[1], low[1]}, {x[j].x, x[j].y});
#pragma unroll
        for (uint32_t j = 0; j < kXTiles; ++j)
          mma_16x8x16(tiles[i][j], {up[2], low[2], up[3], low[3]}, {x[j].z, x[j].w});
      }
    }
  }

  // fn(place in shared sums, sum), outputs of the tile from `out` on.
  template <class Fn>
  __device__ void each(uint32_t out, Fn fn) const {
    const uint32_t lane = threadIdx.x % kWarp, t = lane % 4, g = lane / 4;
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i)
#pragma unroll
      for (uint32_t j = 0; j < kXTiles; ++j)
#pragma unroll
        for (uint32_t c = 0; c < 4; ++c)
          fn((j * 8 + row_of(2 * t + c % 2)) * S::kSumStride + out + i * 16 + row_of(g) + c / 2 * 8, tiles[i][j][c]);
  }
};

template <uint32_t kRows>
struct Warps {
  static constexpr uint32_t kGroups = kRows <= 32 ? 4 : 2, kGroupWarps = kTileOut / kWarpOut;
  static constexpr uint32_t kGroupUnits = kStageSteps * kStepUnits / kGroups;
  static constexpr uint32_t kSumRows = kRows;
  static constexpr uint32_t kSumStride = kTileOut + 8;  // 8 keep rows of one warp in different banks
  static constexpr uint32_t kCopyThreads = kWarp;
  static constexpr int kJoinAhead = 4;  // blocks whose sums are on their way

  static __device__ void prepare_copies() {}
  template <Encoding E, class S>
  static __device__ void multiply(const Shared<S>& shared, const Args& args, const Deal& deal, uint32_t begin,
                                  uint32_t end) {
    const uint32_t warp = threadIdx.x / kWarp, group = warp / kGroupWarps, out = warp % kGroupWarps * kWarpOut;
    const uint32_t step = group * kGroupUnits / kStepUnits;
    const uint32_t live = min(*args.live, S::kRows);
    grid_dependency_wait();
    uint32_t s = 0, parity = 0;
    for (uint32_t n = begin; n < end;) {
      const uint32_t tile = n / deal.tile_stages, tile_begin = tile * deal.tile_stages;
      const uint32_t tile_end = tile_begin + deal.tile_stages, until = min(end, tile_end);
      const bool is_whole = n == tile_begin && until == tile_end;
      const uint32_t first_row = args.half_row(tile, out / kHalfOut) + out % kHalfOut;
      Sums<S> sums;
      for (; n < until; ++n) {
        const uint8_t* stage = shared.stages + s * S::kBytes;
        const auto last_plane = [&](uint32_t row) {
          // Past the end the last row again, whose sums are not stored.
          const uint64_t stages = uint64_t{min(first_row + row, args.weight.rows - 1)} * deal.tile_stages;
          return args.weight.plane[3] + (stages + n - tile_begin) * S::row_bytes(3);
        };
        barrier_wait(&shared.full[s], parity);
        if (kGroupUnits == kStepUnits || group % 2 == 0)
          sums.template add<E, 0>(stage, step, out, last_plane);
        else
          sums.template add<E, kStepUnits - kGroupUnits>(stage, step, out, last_plane);
        warp_arrive(&shared.free[s]);
        if (++s == S::kStages) {
          s = 0;
          parity ^= 1;
        }
      }
      finish_tile(shared, args, deal, live, tile, is_whole, n == end, [&](uint32_t) {
        sums.each(group * S::kRows * S::kSumStride + out, [&](uint32_t place, float sum) { shared.sums[place] = sum; });
      });
    }
  }
};

// fn.template operator()<kRows>(). Many sizes, so that a row more never costs much.
template <class Fn>
auto with_rows(uint32_t tile_rows, Fn fn) {
  switch (tile_rows) {
    case 16:
      return fn.template operator()<16>();
    case 24:
      return fn.template operator()<24>();
    case 32:
      return fn.template operator()<32>();
    case 40:
      return fn.template operator()<40>();
    default:
      return fn.template operator()<48>();
  }
}

}  // namespace

bool can_batch(const PackedMatrix& weight, uint32_t rows, const DeviceFacts& device) {
  const bool aligned = std::all_of(weight.plane, weight.plane + 3,
                                   [](const uint8_t* plane) { return reinterpret_cast<uintptr_t>(plane) % 16 == 0; });
  return device.has_bulk_copies && kSharedBytesMax <= device.shared_bytes_max && weight.columns % kStageColumns == 0 &&
         aligned && rows <= (device.has_warpgroups ? kRowsMaxWarpgroups : kRowsMax);
}

void lay_out_batch(const MatmulShape& shape, const CompileInputs& inputs, MatmulChoice* choice) {
  if (choice->by_warpgroups) return lay_out_batch_groups(shape, inputs, choice);
  with_quantized(shape.weight.encoding, [&]<Encoding E>() {
    with_rows(choice->tile_rows,
              [&]<uint32_t kRows>() { lay_out_rows<E, kRows, Warps<kRows>>(shape, inputs, choice); });
  });
}

Status matmul_batch(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at) {
  if (choice.by_warpgroups) return matmul_batch_groups(choice, args, at);
  return with_quantized(args.weight.encoding, [&]<Encoding E>() {
    return with_rows(choice.tile_rows,
                     [&]<uint32_t kRows>() { return start<E, kRows, Warps<kRows>>(choice, args, at); });
  });
}

}  // namespace llmrt::cuda
