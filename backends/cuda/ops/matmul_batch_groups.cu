// matmul_batch by the products of warpgroups (compute capability 9.0): four of them multiply, each 64 outputs of a
// step. W is the first factor, decoded to f16 in registers, x the second, from shared memory as the copy engine brings
// it. A product takes pair t of each chunk of 8 columns from lane 4 * g + t, so each of the four lanes of a row reads
// all that is packed of it and decodes those pairs (dequant_pairs.cuh). While a unit is multiplied, the next one is
// decoded. Everything else is in matmul_batch.cuh.
#include "backends/cuda/dequant_pairs.cuh"
#include "backends/cuda/ops/matmul_batch.cuh"

namespace llmrt::cuda {
namespace {

using namespace batch;

struct Warpgroups {
  static constexpr uint32_t kGroups = kStageSteps, kGroupWarps = 8;
  static constexpr uint32_t kSumRows = kGroups * kGroupWarps;
  static constexpr uint32_t kSumStride = kTileOut + 4;  // 4 keep rows of one warp in different banks

  // A whole warpgroup, so that it can leave registers to the others: of 96 that each thread starts with.
  static constexpr uint32_t kCopyThreads = 4 * kWarp;
  static constexpr int kJoinAhead = 2;  // blocks whose sums are on their way
  static constexpr int kMultiplyRegisters = 112, kCopyRegisters = 32;
  static_assert(kGroups * kGroupWarps * kWarp * (kMultiplyRegisters - 96) <= kCopyThreads * (96 - kCopyRegisters));

  static __device__ void prepare_copies() {
#if defined(LLMRT_SM_90A)
    fewer_registers<kCopyRegisters>();
#endif
  }
  template <Encoding E, class S>
  static __device__ void multiply(const Shared<S>& shared, const Args& args, const Deal& deal, uint32_t begin,
                                  uint32_t end) {
#if defined(LLMRT_SM_90A)
    more_registers<kMultiplyRegisters>();
    const uint32_t lane = threadIdx.x % kWarp, t = kept(lane % 4), g = lane / 4;
    const uint32_t warp = threadIdx.x / kWarp, step = warp / kGroupWarps, out = warp % kGroupWarps * 16 + g;
    const uint32_t live = min(*args.live, S::kRows);
    // Where in a stage this lane's numbers begin, piece 0 of its step, and the other planes; x in sixteens of bytes.
    constexpr bool kStepBoxes = S::kBoxes == kStageSteps;
    const uint32_t numbers_first =
        kept((kStepBoxes ? step * kBoxBytes : 0) + out * kBoxRowBytes + (((kStepBoxes ? 0 : step * 4) ^ out % 8) * 16));
    const uint32_t second_first = S::kSecondFirst + out * S::row_bytes(1);
    const uint32_t scales_first = kept(S::kScalesFirst + out * S::row_bytes(2));
    const uint32_t x_first = kept((shared_address(shared.stages) + S::kXFirst + step * 2 * S::kXBoxBytes) / 16);
    const bool arrives = kWarpArrivals > 1 || kept(lane) == 0;
    grid_dependency_wait();
    uint32_t s = 0, parity = 0;
    for (uint32_t n = begin; n < end;) {
      const uint32_t tile = n / deal.tile_stages, tile_begin = tile * deal.tile_stages;
      const uint32_t tile_end = tile_begin + deal.tile_stages, until = min(end, tile_end);
      const bool is_whole = n == tile_begin && until == tile_end;
      const uint32_t first_row = args.half_row(tile, out / kHalfOut) + out % kHalfOut;
      float sums[S::kRows / 8][4] = {};  // outputs `out` and 8 further on, for rows 2t, 2t + 1 of each 8 of x
      const uint32_t first_stage = n;
      uint32_t before = 0;  // place of the stage before, which is still being multiplied
      for (; n < until; ++n) {
        const uint32_t first = s * S::kBytes;
        PairFragment<E> upper, lower;
        const auto load = [&](PairFragment<E>& fragment, uint32_t row, uint32_t half) {
          // Past the end the last row again, whose sums are not stored.
          const uint64_t stages = uint64_t{min(first_row + row, args.weight.rows - 1)} * deal.tile_stages;
          const PlanePointers planes = {nullptr, shared.stages + first + second_first + row * S::row_bytes(1),
                                        shared.stages + first + scales_first + row * S::row_bytes(2),
                                        args.weight.plane[3] + (stages + n - tile_begin) * S::row_bytes(3)};
          const auto numbers = [&](uint32_t piece) {
            return shared.stages + ((first + numbers_first) ^ piece * 16) + row * kBoxRowBytes;
          };
          fragment.load(numbers, planes, half, step, t);
        };
        const uint32_t x = x_first + first / 16;
        barrier_wait(&shared.full[s], parity);
        uint32_t weights[2][2][4];  // of two units
#pragma unroll
        for (uint32_t u = 0; u < kStepUnits; ++u) {
          if (u % 2 == 0) {
            load(upper, 0, u / 2);
            load(lower, 8, u / 2);
          }
          uint32_t up[4], low[4];
          upper.decode(u, t, step, up);
          lower.decode(u, t, step, low);
#pragma unroll
          for (uint32_t k = 0; k < 2; ++k) {
            uint32_t(&a)[4] = weights[u % 2][k];
            a[0] = up[2 * k];
            a[1] = low[2 * k];
            a[2] = up[2 * k + 1];
            a[3] = low[2 * k + 1];
          }
          products_begin();
#pragma unroll
          for (uint32_t k = 0; k < 2; ++k)
            warpgroup_product(sums, weights[u % 2][k],
                              product_operand_at(x + (u / 2 * S::kXBoxBytes + u % 2 * 64 + k * 32) / 16));
          products_commit();
          products_wait_older<1>();  // the weights of the unit before may be written over, and its stage of x
          // Its lanes are together there; __syncwarp would make ptxas wait for each product.
          if (u == 0 && n != first_stage && arrives) barrier_arrive(&shared.free[before]);
        }
        before = s;
        if (++s == S::kStages) {
          s = 0;
          parity ^= 1;
        }
      }
      products_wait<0>(sums);
      warp_arrive(&shared.free[before]);
      finish_tile(shared, args, deal, live, tile, is_whole, n == end, [&](uint32_t first) {
#pragma unroll
        for (uint32_t j = 0; j < kSumRows / 8; ++j) {
          if (first / 8 + j >= S::kRows / 8) continue;
#pragma unroll
          for (uint32_t c = 0; c < 4; ++c) {
            const uint32_t row = step * kSumRows + j * 8 + 2 * t + c % 2;
            shared.sums[row * kSumStride + out + c / 2 * 8] = sums[first / 8 + j][c];
          }
        }
      });
    }
#else
    __trap();  // OpContext::has_warpgroups says that this is not the code that runs
#endif
  }
};

// fn.template operator()<kRows>().
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
    case 48:
      return fn.template operator()<48>();
    case 56:
      return fn.template operator()<56>();
    default:
      return fn.template operator()<64>();
  }
}

}  // namespace

void lay_out_batch_groups(const MatmulShape& shape, const CompileInputs& inputs, MatmulChoice* choice) {
  with_quantized(shape.weight.encoding, [&]<Encoding E>() {
    with_rows(choice->tile_rows, [&]<uint32_t kRows>() { lay_out_rows<E, kRows, Warpgroups>(shape, inputs, choice); });
  });
}

Status matmul_batch_groups(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at) {
  return with_quantized(args.weight.encoding, [&]<Encoding E>() {
    return with_rows(choice.tile_rows, [&]<uint32_t kRows>() { return start<E, kRows, Warpgroups>(choice, args, at); });
  });
}

}  // namespace llmrt::cuda
