// expand_latent: keys and values of some heads from rows of the cache, [W_k l ; k_rope] and W_v l, in f16.
//
// A block takes (item, head) pairs from a persistent grid. The latents of the item's keys, kTiles times 8 of them, come
// into shared memory in f16 once; the rows of the head's matrix pass by, 16 a warp, from global memory straight into
// the lanes that multiply them (dequant.cuh, as in head_matmul.cu). What comes out goes through shared memory, so that
// it is written in words of 8 numbers. Products in f16 with f32 sums, in the order of the columns. Keys and values are
// two launches, as their matrices may have different encodings; that of keys copies what turns.
//
// The exact kernel takes any encoding and float: one warp a row of W, products and sums in f32. Slow.
#include <fmt/format.h>

#include "backends/cuda/choose.h"
#include "backends/cuda/dequant.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/matmul.h"
#include "backends/cuda/paged.cuh"
#include "backends/cuda/step_inputs.cuh"
#include "backends/cuda/weights.h"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kExpandWarps = 4, kExpandThreads = kExpandWarps * kWarp, kExpandRows = 16 * kExpandWarps;
constexpr uint32_t kExpandOutStride = kExpandRows + 8;  // f16 numbers between keys of what comes out

struct ExpandArgs {
  const uint32_t* inputs;  // of the expanded group
  PackedMatrix matrix;     // of all heads
  LatentCache cache;
  float tensor_scale;  // of fp8-tensor
  KvDType kv_dtype;
  uint32_t row_dim;
  uint4* out;  // [block][keys, values][num_heads][kExpandItemKeys][head_dim]
  uint32_t out_blocks, which, head_first, num_heads, head_dim;
  uint32_t rows;    // of a head's matrix
  uint32_t copied;  // numbers behind them that are the latent's last ones
};

template <KvDType D>
__device__ uint4 decode_latent(const ExpandArgs& args, uint32_t vector, uint32_t word) {
  const uint8_t* row = args.cache.data + uint64_t{vector} * args.row_dim * kKvBytes<D>;
  const float* scales = args.cache.scales + uint64_t{vector} * (kBlockScales<D> ? args.row_dim / kKvScaleBlock : 1);
  uint32_t pairs[4];
  decode_word<D>(load_word<D>(row, word, word, scales), pairs);
  if constexpr (kVectorScales<D>) {
    const float factor = (args.cache.scales == nullptr ? args.tensor_scale : *scales) * kKvUnit<D>;
#pragma unroll
    for (uint32_t& pair : pairs) {
      const __half2 both = half2_of(pair);
      pair = half2_bits(__floats2half2_rn(__low2float(both) * factor, __high2float(both) * factor));
    }
  }
  return {pairs[0], pairs[1], pairs[2], pairs[3]};
}

// Numbers 8 * word to 8 * word + 7 of a row of the cache, in f16; zeros where there is none.
__device__ inline uint4 latent_word(const ExpandArgs& args, int32_t vector, uint32_t word) {
  if (vector < 0) return {};
  const uint32_t at = static_cast<uint32_t>(vector);
  switch (args.kv_dtype) {
    case KvDType::kF16:
      return decode_latent<KvDType::kF16>(args, at, word);
    case KvDType::kBF16:
      return decode_latent<KvDType::kBF16>(args, at, word);
    case KvDType::kI8:
      return decode_latent<KvDType::kI8>(args, at, word);
    case KvDType::kI8Block:
      return decode_latent<KvDType::kI8Block>(args, at, word);
    case KvDType::kF8Block:
      return decode_latent<KvDType::kF8Block>(args, at, word);
    default:
      return decode_latent<KvDType::kF8>(args, at, word);
  }
}

// Where the rows of the work's keys lie; -1: nowhere.
struct ExpandWork {
  ExpandItem item;
  uint32_t head;       // of those that are expanded
  uint32_t key_first;  // of the item's keys
};
__device__ inline void find_latents(int32_t* vectors, const ExpandArgs& args, const ExpandWork& work,
                                    uint32_t num_keys) {
  if (threadIdx.x >= num_keys) return;
  const uint32_t of_item = work.key_first + threadIdx.x, key = work.item.key_begin + of_item;
  vectors[threadIdx.x] = of_item < work.item.num_keys ? args.cache.vector_of(work.item.slot, key) : -1;
}

// The vector of a key of the work in the pool that is written, in words of 8 numbers.
__device__ inline uint4* expanded_vector(const ExpandArgs& args, const ExpandWork& work, uint32_t key) {
  const uint64_t run = (uint64_t{work.item.block} * 2 + args.which) * args.num_heads + work.head;
  return args.out + (run * kExpandItemKeys + work.key_first + key) * (args.head_dim / 8);
}

// What stands behind the products: the latent's last numbers, then zeros.
__device__ inline void write_expanded_ends(const ExpandArgs& args, const ExpandWork& work, const int32_t* vectors,
                                           uint32_t num_keys) {
  const uint32_t words = (args.head_dim - args.rows) / 8;
  for (uint32_t i = threadIdx.x; i < num_keys * words; i += kExpandThreads) {
    const uint32_t key = i / words, word = i % words;
    if (work.key_first + key >= work.item.num_keys) continue;
    expanded_vector(args, work, key)[args.rows / 8 + word] =
        word < args.copied / 8 ? latent_word(args, vectors[key], args.matrix.columns / 8 + word) : uint4{};
  }
}

template <class Fn>
__device__ void each_expand_work(const ExpandArgs& args, uint32_t num_keys, Fn fn) {
  const ExpandItem* items = input_array<ExpandItem>(args.inputs, kFwdExpands);
  const uint32_t parts = kExpandItemKeys / num_keys;
  const uint32_t num_works = args.inputs[kFwdNumExpands] * parts * args.num_heads;
  for (uint32_t i = blockIdx.x; i < num_works; i += gridDim.x) {
    const ExpandWork work{items[i / args.num_heads / parts], i % args.num_heads, i / args.num_heads % parts * num_keys};
    if (work.item.block < args.out_blocks && work.key_first < work.item.num_keys) fn(work);  // else the whole block
  }
}

template <Encoding E, uint32_t kTiles>
__global__ void __launch_bounds__(kExpandThreads) expand_latent_kernel(ExpandArgs args) {
  constexpr uint32_t kKeys = kTiles * 8;
  __shared__ int32_t vectors[kKeys];
  __shared__ uint4 made_words[kKeys * kExpandOutStride / 8];
  __half* made = reinterpret_cast<__half*>(made_words);
  uint8_t* latents = dynamic_shared();
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const uint32_t columns = args.matrix.columns, num_steps = (columns + kStep - 1) / kStep;
  const uint32_t stride = shared_x_stride(columns), words = num_steps * kStep / 8;
  grid_dependency_wait();
  each_expand_work(args, kKeys, [&](const ExpandWork& work) {
    __syncthreads();  // the work before has been written
    find_latents(vectors, args, work, kKeys);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < kKeys * words; i += kExpandThreads) {
      const uint32_t key = i / words, word = i % words;
      *reinterpret_cast<uint4*>(latents + key * stride + word * 16) =
          word * 8 < columns ? latent_word(args, vectors[key], word) : uint4{};
    }
    write_expanded_ends(args, work, vectors, kKeys);
    __syncthreads();
    const uint64_t first_row = uint64_t{args.head_first + work.head} * args.rows;
    for (uint32_t rows_first = 0; rows_first < args.rows; rows_first += kExpandRows) {
      // Past the head's last row that again; its sums are not stored.
      const uint32_t row = rows_first + warp * 16 + g;
      const uint64_t upper_row = first_row + min(row, args.rows - 1);
      const uint64_t lower_row = first_row + min(row + 8, args.rows - 1);
      Fragment<E> upper, lower;
      upper.load(args.matrix, upper_row, 0, t);
      lower.load(args.matrix, lower_row, 0, t);
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
                *reinterpret_cast<const uint4*>(latents + (n * 8 + g) * stride + step * kStep * 2 + i * 64 + t * 16);
            mma_16x8x16(sums[n], {a[i][0][0], a[i][1][0], a[i][0][1], a[i][1][1]}, {x.x, x.y});
            mma_16x8x16(sums[n], {a[i][0][2], a[i][1][2], a[i][0][3], a[i][1][3]}, {x.z, x.w});
          }
        }
      }
#pragma unroll
      for (uint32_t n = 0; n < kTiles; ++n) {
#pragma unroll
        for (uint32_t c = 0; c < 4; ++c)
          made[(n * 8 + 2 * t + c % 2) * kExpandOutStride + warp * 16 + g + c / 2 * 8] = __float2half_rn(sums[n][c]);
      }
      __syncthreads();
      for (uint32_t i = threadIdx.x; i < kKeys * kExpandRows / 8; i += kExpandThreads) {
        const uint32_t key = i / (kExpandRows / 8), word = i % (kExpandRows / 8);
        if (work.key_first + key < work.item.num_keys && rows_first + word * 8 < args.rows)
          expanded_vector(args, work, key)[rows_first / 8 + word] = made_words[key * (kExpandOutStride / 8) + word];
      }
      __syncthreads();
    }
  });
}

__global__ void __launch_bounds__(kExpandThreads) expand_latent_exact_kernel(ExpandArgs args) {
  __shared__ int32_t vectors[kExpandItemKeys];
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  grid_dependency_wait();
  each_expand_work(args, kExpandItemKeys, [&](const ExpandWork& work) {
    __syncthreads();
    find_latents(vectors, args, work, kExpandItemKeys);
    __syncthreads();
    write_expanded_ends(args, work, vectors, kExpandItemKeys);
    const uint64_t first_row = uint64_t{args.head_first + work.head} * args.rows;
    for (uint32_t row = warp; row < args.rows; row += kExpandWarps) {
      for (uint32_t key = 0; key < work.item.num_keys; ++key) {
        float sum = 0;
        for (uint32_t word = lane; word < args.matrix.columns / 8; word += kWarp) {
          const uint4 latent = latent_word(args, vectors[key], word);
          const uint32_t pairs[4] = {latent.x, latent.y, latent.z, latent.w};
#pragma unroll
          for (uint32_t i = 0; i < 4; ++i) {
            sum += element(args.matrix, first_row + row, word * 8 + 2 * i) * __low2float(half2_of(pairs[i]));
            sum += element(args.matrix, first_row + row, word * 8 + 2 * i + 1) * __high2float(half2_of(pairs[i]));
          }
        }
        sum = warp_sum(sum);
        if (lane == 0) reinterpret_cast<__half*>(expanded_vector(args, work, key))[row] = __float2half_rn(sum);
      }
    }
  });
}

ExpandArgs expand_args(const ExpandLatent& op, bool is_values, const OpContext& at) {
  const KvPool &latents = at.pools[op.kv_group], &out = at.pools[op.expanded_group];
  ExpandArgs args{};
  args.inputs = at.forward_inputs + op.expanded_group * kForwardHeaderWords;
  args.matrix = at.weights->group(is_values ? op.value_group : op.key_group).runs[0].matrix;
  args.cache = latent_cache(op.kv_group, op.layer, at);
  args.tensor_scale = op.scales.k;
  args.kv_dtype = latents.group.dtype;
  args.row_dim = op.row_dim();
  args.out = reinterpret_cast<uint4*>(out.device.data);
  args.out_blocks = out.group.seen_by(op.num_heads).num_blocks;
  args.which = is_values;
  args.head_first = op.head_first;
  args.num_heads = op.num_heads;
  args.head_dim = op.key_dim();
  args.rows = is_values ? op.value_dim : op.nope;
  args.copied = is_values ? 0 : op.rope_dim;
  return args;
}

Status expand(uint32_t tiles, const ExpandArgs& args, const KernelChoice& choice, const OpContext& at) {
  return with_encoding(args.matrix.encoding, [&]<Encoding E>() {
    if (tiles == 4) return launch(at, choice, expand_latent_kernel<E, 4>, args);
    return launch(at, choice, expand_latent_kernel<E, 8>, args);
  });
}

Status add_expand(const ExpandLatent& op, bool is_values, const CompileInputs& inputs, Launches* out) {
  const int32_t id = is_values ? op.value_group : op.key_group;
  const DeviceGroup& group = inputs.groups[static_cast<size_t>(id)];
  if (group.runs.size() != 1)
    return make_error(ErrorCode::kUnsupported, "expand_latent: group {}: expected the rows of all heads in one tensor",
                      id);
  const PackedMatrix& matrix = group.runs[0].matrix;
  constexpr uint32_t kBlocksPerSm = 2;
  KernelChoice choice{.kernel = "expand_latent", .threads = kExpandThreads};
  choice.grid = {inputs.device.num_sms * kBlocksPerSm};
  const bool in_f16 = matrix.multiplies_in_f16();
  const auto bytes = [&](uint32_t tiles) { return tiles * 8 * shared_x_stride(matrix.columns); };
  // What is static beside it.
  const auto fits = [&](uint32_t tiles) {
    return bytes(tiles) + tiles * 8 * (kExpandOutStride * 2 + 4) <= inputs.device.shared_bytes_max;
  };
  const std::string what = fmt::format("{} {} of {}", encoding_name(matrix.encoding), is_values ? "values" : "keys",
                                       kv_dtype_name(inputs.pools[op.kv_group].dtype));
  if (!in_f16 || !fits(4)) {
    choice.kernel = "expand_latent_exact";
    choice.variant = what;
    add_launch(out, choice, [op, is_values](const KernelChoice& c, const OpContext& at) {
      return launch(at, c, expand_latent_exact_kernel, expand_args(op, is_values, at));
    });
    return {};
  }
  const uint32_t tiles = fits(8) ? 8 : 4;
  choice.shared_bytes = bytes(tiles);
  choice.variant = fmt::format("{} x{}", what, tiles * 8);
  add_launch(out, choice, [op, is_values, tiles](const KernelChoice& c, const OpContext& at) {
    return expand(tiles, expand_args(op, is_values, at), c, at);
  });
  return {};
}

}  // namespace

Status choose(const ExpandLatent& op, const OpList&, const CompileInputs& inputs, Launches* out) {
  if (std::max(op.kv_group, op.expanded_group) >= inputs.pools.size())
    return make_error(ErrorCode::kInvalidArgument, "expand_latent: kv_group: expected below {}, found {}",
                      inputs.pools.size(), std::max(op.kv_group, op.expanded_group));
  const KvGroup &latents = inputs.pools[op.kv_group], &expanded = inputs.pools[op.expanded_group];
  if (!latents.keys_only || latents.head_dim != op.row_dim() || op.layer >= latents.num_layers ||
      !expanded.is_expanded || expanded.head_dim != op.key_dim() || expanded.dtype != KvDType::kF16 ||
      op.value_dim > op.key_dim())
    return make_error(
        ErrorCode::kInvalidArgument,
        "expand_latent: layer {}, rows of {}, keys of {}, values of {}: the pools have {} layers of {} and "
        "heads of {}",
        op.layer, op.row_dim(), op.key_dim(), op.value_dim, latents.num_layers, latents.head_dim, expanded.head_dim);
  if (op.nope % 8 != 0 || op.rope_dim % 8 != 0 || op.value_dim % 8 != 0 || op.rank % 8 != 0)
    return make_error(ErrorCode::kUnsupported,
                      "expand_latent: expected multiples of 8 numbers, found keys of {} + {}, values of {}, latents of "
                      "{}",
                      op.nope, op.rope_dim, op.value_dim, op.rank);
  if (Status status = add_expand(op, false, inputs, out); !status) return status;
  return add_expand(op, true, inputs, out);
}

}  // namespace llmrt::cuda
