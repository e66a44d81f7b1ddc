// latent_rows: what latent attention makes of a token between its matmuls and attention: the cache's row (rank numbers
// normed by RMS, then rope_dim numbers turned) in the pool's dtype, and the turned ends of the queries.
//
// One block a token. The angles are made once, in f64 and brought into one turn before their sine is taken in f32, as
// in qkv_heads.cu; the row stands in shared memory, sums in f32 in a fixed order.
#include "backends/cuda/choose.h"
#include "backends/cuda/kv_bytes.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/numbers.cuh"
#include "backends/cuda/reduce.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kLatentRowsThreads = 128, kLatentRowsWarps = kLatentRowsThreads / kWarp;

struct LatentRowsArgs {
  const float *q, *kv;
  float* query;
  float* turned_q;  // q itself, or null: it stays
  const int32_t *positions, *kv_slots;
  const float *norm, *freqs;
  const uint32_t* live;
  std::byte* kv_data;
  float* kv_scales;  // null: none
  uint32_t num_heads, nope, rank, rope_dim;
  uint32_t block_tokens, num_blocks;
  float eps, magnitude, tensor_scale;
  KvDType kv_dtype;
  RopePairing pairing;

  __host__ __device__ uint32_t row_dim() const { return rank + rope_dim; }
};

// The places of the two numbers of a pair.
struct RopePlaces {
  uint32_t first, second;
  __device__ RopePlaces(const LatentRowsArgs& args, uint32_t i) {
    const bool halves = args.pairing == RopePairing::kHalves;
    first = halves ? i : 2 * i;
    second = halves ? i + args.rope_dim / 2 : 2 * i + 1;
  }
};

__device__ void turn_pair(const LatentRowsArgs& args, const float2* turns, uint32_t i, const float* from, float* to) {
  const RopePlaces at(args, i);
  const float a = from[at.first], b = from[at.second];
  to[at.first] = a * turns[i].x - b * turns[i].y;
  to[at.second] = a * turns[i].y + b * turns[i].x;
}

// The row as 8-bit numbers, a warp for each part that has a scale of its own.
__device__ void write_latent_bytes(const float* row, const LatentRowsArgs& args, uint64_t vector, float* scratch) {
  const bool is_i8 = kv_is_i8(args.kv_dtype), in_blocks = kv_has_block_scales(args.kv_dtype);
  const uint32_t dim = args.row_dim(), warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  std::byte* out = args.kv_data + vector * dim;
  if (in_blocks) {
    for (uint32_t part = warp; part < dim / kKvScaleBlock; part += kLatentRowsWarps) {
      const float x = row[part * kKvScaleBlock + lane], scale = byte_scale(warp_max(fabsf(x)), is_i8);
      if (lane == 0) args.kv_scales[vector * (dim / kKvScaleBlock) + part] = scale;
      out[part * kKvScaleBlock + lane] = static_cast<std::byte>(to_byte(x, scale, is_i8));
    }
    return;
  }
  float scale = args.tensor_scale;
  if (args.kv_scales) {
    float amax = 0;
    for (uint32_t i = threadIdx.x; i < dim; i += kLatentRowsThreads) amax = fmaxf(amax, fabsf(row[i]));
    scale = byte_scale(block_reduce(amax, MaxOf(), scratch), is_i8);
    if (threadIdx.x == 0) args.kv_scales[vector] = scale;
  }
  for (uint32_t i = threadIdx.x; i < dim; i += kLatentRowsThreads)
    out[i] = static_cast<std::byte>(to_byte(row[i], scale, is_i8));
}

template <class T>
__device__ void write_latent_numbers(const float* row, const LatentRowsArgs& args, uint64_t vector) {
  T* out = reinterpret_cast<T*>(args.kv_data) + vector * args.row_dim();
  for (uint32_t i = threadIdx.x; i < args.row_dim(); i += kLatentRowsThreads) out[i] = from_float<T>(row[i]);
}

__global__ void __launch_bounds__(kLatentRowsThreads) latent_rows_kernel(LatentRowsArgs args) {
  __shared__ float row[kLatentRowMax];
  __shared__ float2 turns[kLatentRowMax / 2];  // cosine, sine
  __shared__ float scratch[2][kLatentRowsWarps];
  const uint32_t t = blockIdx.x, num_pairs = args.rope_dim / 2;
  const bool is_live = t < *args.live;
  if (is_live) {
    for (uint32_t i = threadIdx.x; i < num_pairs; i += kLatentRowsThreads) {
      constexpr double kTurn = 6.283185307179586, kInverseTurn = 0.15915494309189535;
      const double angle = static_cast<double>(args.positions[t]) * static_cast<double>(args.freqs[i]);
      float sine, cosine;
      sincosf(static_cast<float>(angle - rint(angle * kInverseTurn) * kTurn), &sine, &cosine);
      turns[i] = {cosine * args.magnitude, sine * args.magnitude};
    }
  }
  grid_dependency_wait();
  if (!is_live) return;
  const float* kv = args.kv + uint64_t{t} * args.row_dim();
  float sum = 0;
  for (uint32_t i = threadIdx.x; i < args.rank; i += kLatentRowsThreads) {
    row[i] = kv[i];
    sum += row[i] * row[i];
  }
  sum = block_reduce(sum, SumOf(), scratch[0]);  // its barrier: the angles are there
  const float factor = 1.0f / sqrtf(sum / static_cast<float>(args.rank) + args.eps);
  for (uint32_t i = threadIdx.x; i < args.rank; i += kLatentRowsThreads) row[i] *= factor * args.norm[i];
  for (uint32_t i = threadIdx.x; i < num_pairs; i += kLatentRowsThreads)
    turn_pair(args, turns, i, kv + args.rank, row + args.rank);
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < args.num_heads * num_pairs; i += kLatentRowsThreads) {
    const uint64_t head = uint64_t{t} * args.num_heads + i / num_pairs;
    const uint64_t at = head * (args.nope + args.rope_dim) + args.nope;
    turn_pair(args, turns, i % num_pairs, args.q + at, args.query + head * args.row_dim() + args.rank);
    if (args.turned_q != nullptr) turn_pair(args, turns, i % num_pairs, args.q + at, args.turned_q + at);
  }
  const int32_t kv_slot = args.kv_slots[t];
  const uint32_t block = static_cast<uint32_t>(kv_slot) / args.block_tokens;
  if (kv_slot < 0 || block >= args.num_blocks) return;
  const uint64_t vector = static_cast<uint32_t>(kv_slot);  // blocks hold one vector a token
  if (args.kv_dtype == KvDType::kF16)
    write_latent_numbers<__half>(row, args, vector);
  else if (args.kv_dtype == KvDType::kBF16)
    write_latent_numbers<__nv_bfloat16>(row, args, vector);
  else
    write_latent_bytes(row, args, vector, scratch[1]);
}

}  // namespace

Status choose(const LatentRows& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  if (op.kv_group >= inputs.pools.size())
    return make_error(ErrorCode::kInvalidArgument, "latent_rows: kv_group: expected below {}, found {}",
                      inputs.pools.size(), op.kv_group);
  const KvGroup& group = inputs.pools[op.kv_group];
  if (op.rank + op.rope_dim > kLatentRowMax || !group.keys_only || group.head_dim != op.rank + op.rope_dim ||
      op.layer >= group.num_layers)
    return make_error(ErrorCode::kInvalidArgument,
                      "latent_rows: layer {}, rows of {} + {}: the pool has {} layers of {}", op.layer, op.rank,
                      op.rope_dim, group.num_layers, group.head_dim);
  KernelChoice choice{.kernel = "latent_rows", .threads = kLatentRowsThreads};
  choice.variant = kv_dtype_name(group.dtype);
  choice.grid = {list.rows_of(op.q)};
  add_launch(out, choice, [op](const KernelChoice& c, const OpContext& at) {
    const KvPool& pool = at.pools[op.kv_group];
    LatentRowsArgs args{};
    args.q = at.tensor<float>(op.q);
    args.kv = at.tensor<float>(op.kv);
    args.query = at.tensor<float>(op.query);
    args.turned_q = op.turns_q ? at.tensor<float>(op.q) : nullptr;
    args.positions = at.tensor<int32_t>(op.positions);
    args.kv_slots = at.tensor<int32_t>(op.kv_slots);
    args.norm = at.weight_vector(op.norm);
    args.freqs = at.weight_vector(op.freqs);
    args.live = at.live(op.q);
    args.kv_data = pool.device.data + op.layer * pool.device.layer_bytes;
    args.kv_scales = pool.device.scales ? pool.device.scales + op.layer * pool.device.layer_scales : nullptr;
    args.num_heads = op.num_heads;
    args.nope = op.nope;
    args.rank = op.rank;
    args.rope_dim = op.rope_dim;
    args.block_tokens = pool.group.block_tokens;
    args.num_blocks = pool.group.num_blocks;
    args.eps = op.eps;
    args.magnitude = op.magnitude;
    args.tensor_scale = op.scales.k;
    args.kv_dtype = pool.group.dtype;
    args.pairing = op.pairing;
    return launch(at, c, latent_rows_kernel, args);
  });
  return {};
}

}  // namespace llmrt::cuda
