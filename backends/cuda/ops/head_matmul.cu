// head_matmul: each head's numbers times a matrix of its own, out[t, h] = W_h x[t, h].
//
// A block has one head, kOuts rows of its matrix, 16 a warp, and up to kTiles times 8 tokens, whose numbers stand in
// shared memory in f16. Weights come from global memory straight into the lanes that multiply them (dequant.cuh), the
// next step of 128 columns while one is multiplied; each lane reads of x the same columns as it has of W, so that no
// number changes lanes. Products in f16 with sums in f32, in the order of the columns, whatever the number of tokens.
//
// The exact kernel takes any encoding and float: one warp a row of W, products and sums in f32. Slow.
#include <fmt/format.h>

#include "backends/cuda/choose.h"
#include "backends/cuda/dequant.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/numbers.cuh"
#include "backends/cuda/ops/matmul.h"
#include "backends/cuda/reduce.cuh"
#include "backends/cuda/weights.h"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kHeadWarps = 4, kHeadThreads = kHeadWarps * kWarp, kHeadOuts = 16 * kHeadWarps;
constexpr uint32_t kHeadExactTokens = 32;

struct HeadMatmulArgs {
  PackedMatrix matrix;  // of all heads
  const std::byte* x;
  std::byte* out;
  DType x_dtype, out_dtype;
  uint32_t num_heads, rows, x_stride, out_stride;  // rows: of a head
  const uint32_t* live;
};

__device__ inline float head_number(const std::byte* x, DType dtype, uint64_t at) {
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(x)[at];
  return dtype == DType::kF16 ? to_float(reinterpret_cast<const __half*>(x)[at])
                              : to_float(reinterpret_cast<const __nv_bfloat16*>(x)[at]);
}
__device__ inline void store_head_number(std::byte* out, DType dtype, uint64_t at, float x) {
  if (dtype == DType::kF32)
    reinterpret_cast<float*>(out)[at] = x;
  else if (dtype == DType::kF16)
    reinterpret_cast<__half*>(out)[at] = from_float<__half>(x);
  else
    reinterpret_cast<__nv_bfloat16*>(out)[at] = from_float<__nv_bfloat16>(x);
}

// Eight neighbours in f16; `at` is a multiple of 8.
__device__ inline uint4 head_word(const std::byte* x, DType dtype, uint64_t at) {
  if (dtype == DType::kF16) return reinterpret_cast<const uint4*>(x)[at / 8];
  float v[8];
  if (dtype == DType::kF32) {
    const float4 a = reinterpret_cast<const float4*>(x)[at / 4], b = reinterpret_cast<const float4*>(x)[at / 4 + 1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
  } else {
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) v[j] = head_number(x, dtype, at + j);
  }
  return {half2_bits(__floats2half2_rn(v[0], v[1])), half2_bits(__floats2half2_rn(v[2], v[3])),
          half2_bits(__floats2half2_rn(v[4], v[5])), half2_bits(__floats2half2_rn(v[6], v[7]))};
}

// The head's numbers of tokens from `token_first` on; those that are not there are zero.
__device__ void stage_head_x(uint8_t* shared, const HeadMatmulArgs& args, uint32_t head, uint32_t token_first,
                             uint32_t num_tokens, uint32_t live) {
  const uint32_t columns = args.matrix.columns, words = (columns + kStep - 1) / kStep * kStep / 8;
  const uint32_t stride = shared_x_stride(columns);
  for (uint32_t i = threadIdx.x; i < num_tokens * words; i += kHeadThreads) {
    const uint32_t token = token_first + i / words, word = i % words;
    const bool is_there = token < live && word * 8 < columns;
    const uint64_t at = (uint64_t{token} * args.num_heads + head) * args.x_stride + word * 8;
    *reinterpret_cast<uint4*>(shared + i / words * stride + word * 16) =
        is_there ? head_word(args.x, args.x_dtype, at) : uint4{};
  }
}

template <Encoding E, uint32_t kTiles>
__global__ void __launch_bounds__(kHeadThreads) head_matmul_kernel(HeadMatmulArgs args) {
  uint8_t* shared = dynamic_shared();
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const uint32_t head = blockIdx.y, token_first = blockIdx.z * kTiles * 8;
  const uint32_t row = blockIdx.x * kHeadOuts + warp * 16 + g;
  const uint32_t num_steps = (args.matrix.columns + kStep - 1) / kStep, stride = shared_x_stride(args.matrix.columns);
  const uint32_t live = *args.live;
  const bool has_work = token_first < live;
  // Past the head's last row that again; its sums are not stored.
  const uint64_t first_row = uint64_t{head} * args.rows;
  const uint64_t upper_row = first_row + min(row, args.rows - 1), lower_row = first_row + min(row + 8, args.rows - 1);
  Fragment<E> upper, lower;
  if (has_work) {
    upper.load(args.matrix, upper_row, 0, t);
    lower.load(args.matrix, lower_row, 0, t);
  }
  grid_dependency_wait();
  if (!has_work) return;
  stage_head_x(shared, args, head, token_first, kTiles * 8, live);
  __syncthreads();
  float sums[kTiles][4] = {};
  for (uint32_t step = 0; step < num_steps; ++step) {
    const SharedDecode<E> upper_scales(upper, t, step), lower_scales(lower, t, step);
    uint32_t a[4][2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      upper_scales.decode(upper, i, t, step, a[i][0]);
      lower_scales.decode(lower, i, t, step, a[i][1]);
    }
    if (step + 1 < num_steps) {
      upper.load(args.matrix, upper_row, step + 1, t);
      lower.load(args.matrix, lower_row, step + 1, t);
    }
#pragma unroll
    for (uint32_t n = 0; n < kTiles; ++n) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const uint4 x =
            *reinterpret_cast<const uint4*>(shared + (n * 8 + g) * stride + step * kStep * 2 + i * 64 + t * 16);
        mma_16x8x16(sums[n], {a[i][0][0], a[i][1][0], a[i][0][1], a[i][1][1]}, {x.x, x.y});
        mma_16x8x16(sums[n], {a[i][0][2], a[i][1][2], a[i][0][3], a[i][1][3]}, {x.z, x.w});
      }
    }
  }
#pragma unroll
  for (uint32_t n = 0; n < kTiles; ++n) {
#pragma unroll
    for (uint32_t c = 0; c < 4; ++c) {
      const uint32_t token = token_first + n * 8 + 2 * t + c % 2, out_row = row + c / 2 * 8;
      if (token < live && out_row < args.rows)
        store_head_number(args.out, args.out_dtype,
                          (uint64_t{token} * args.num_heads + head) * args.out_stride + out_row, sums[n][c]);
    }
  }
}

__global__ void __launch_bounds__(kHeadThreads) head_matmul_exact_kernel(HeadMatmulArgs args) {
  const uint32_t lane = threadIdx.x % kWarp, row = blockIdx.x * kHeadWarps + threadIdx.x / kWarp, head = blockIdx.y;
  const uint32_t live = *args.live, token_first = blockIdx.z * kHeadExactTokens;
  const uint32_t token_end = min(live, token_first + kHeadExactTokens);
  grid_dependency_wait();
  if (row >= args.rows) return;
  const uint64_t w_row = uint64_t{head} * args.rows + row;
  for (uint32_t token = token_first; token < token_end; ++token) {
    const uint64_t x_at = (uint64_t{token} * args.num_heads + head) * args.x_stride;
    float sum = 0;
    for (uint32_t k = lane; k < args.matrix.columns; k += kWarp)
      sum += element(args.matrix, w_row, k) * head_number(args.x, args.x_dtype, x_at + k);
    sum = warp_sum(sum);
    if (lane == 0)
      store_head_number(args.out, args.out_dtype, (uint64_t{token} * args.num_heads + head) * args.out_stride + row,
                        sum);
  }
}

HeadMatmulArgs args_of_heads(const HeadMatmul& op, const OpContext& at) {
  const DeviceGroup& group = at.weights->group(op.group);
  HeadMatmulArgs args{};
  args.matrix = group.runs[0].matrix;
  args.x = at.bytes(op.x);
  args.out = at.bytes(op.out);
  args.x_dtype = at.desc(op.x).dtype;
  args.out_dtype = at.desc(op.out).dtype;
  args.num_heads = op.num_heads;
  args.rows = group.rows / op.num_heads;
  args.x_stride = at.desc(op.x).columns / op.num_heads;
  args.out_stride = at.desc(op.out).columns / op.num_heads;
  args.live = op.absorbed_only ? at.forward_inputs + kFwdNumAbsorbed : at.live(op.x);
  return args;
}

Status multiply_heads(uint32_t tiles, const HeadMatmulArgs& args, const KernelChoice& choice, const OpContext& at) {
  return with_encoding(args.matrix.encoding, [&]<Encoding E>() {
    if (tiles == 1) return launch(at, choice, head_matmul_kernel<E, 1>, args);
    if (tiles == 4) return launch(at, choice, head_matmul_kernel<E, 4>, args);
    return launch(at, choice, head_matmul_kernel<E, 8>, args);
  });
}

}  // namespace

Status choose(const HeadMatmul& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  const DeviceGroup& group = inputs.groups[static_cast<size_t>(op.group)];
  if (group.runs.size() != 1 || group.rows % op.num_heads != 0)
    return make_error(ErrorCode::kUnsupported, "head_matmul: group {}: expected the rows of {} heads in one tensor",
                      op.group, op.num_heads);
  const PackedMatrix& matrix = group.runs[0].matrix;
  const uint32_t rows = group.rows / op.num_heads, tokens = list.rows_of(op.x);
  const TensorDesc& x = list.tensors[static_cast<size_t>(op.x)];
  KernelChoice choice{.kernel = "head_matmul", .threads = kHeadThreads};
  const bool in_f16 = matrix.multiplies_in_f16() && matrix.columns % 8 == 0 && x.columns / op.num_heads % 8 == 0;
  // Eight tokens for each 8 of a step, as far as shared memory goes.
  uint32_t tiles = tokens <= 8 ? 1 : tokens <= 32 ? 4 : 8;
  while (tiles > 1 && tiles * 8 * shared_x_stride(matrix.columns) > inputs.device.shared_bytes_max)
    tiles = tiles == 8 ? 4 : 1;
  choice.shared_bytes = tiles * 8 * shared_x_stride(matrix.columns);
  if (!in_f16 || choice.shared_bytes > inputs.device.shared_bytes_max) {
    choice.kernel = "head_matmul_exact";
    choice.variant = encoding_name(matrix.encoding);
    choice.shared_bytes = 0;
    choice.grid = {ceil_div(rows, kHeadWarps), op.num_heads, ceil_div(tokens, kHeadExactTokens)};
    add_launch(out, choice, [op](const KernelChoice& c, const OpContext& at) {
      return launch(at, c, head_matmul_exact_kernel, args_of_heads(op, at));
    });
    return {};
  }
  choice.variant = fmt::format("{} x{}", encoding_name(matrix.encoding), tiles * 8);
  choice.grid = {ceil_div(rows, kHeadOuts), op.num_heads, ceil_div(tokens, tiles * 8)};
  add_launch(out, choice, [op, tiles](const KernelChoice& c, const OpContext& at) {
    return multiply_heads(tiles, args_of_heads(op, at), c, at);
  });
  return {};
}

}  // namespace llmrt::cuda
