// qk_norm, rope and kv_write: what happens to q, k and v between their matmul and attention, one head at a time. Each
// op alone, or all that follow each other in one launch.
//
//   qk_norm   head / sqrt(mean(head^2) + eps) * weight, of q and of k, and of v where it has a weight
//   rope      pairs (a, b) of q and k turned by positions[t] * freqs[i]: (a cos - b sin, a sin + b cos) * magnitude
//   kv_write  k and v into the pool, in its dtype (core/kv/kv_format.h)
//
// qkv f32 [T, (num_heads + 2 num_kv_heads) * head_dim]. One warp a (token, some heads), a head at a time in shared
// memory; sums in f32. The angle is made in f64 and brought into one turn before its sine is taken in f32: at position
// 131,072 the f32 product would be off by 0.008. In prompts that is most of the work, so a warp has several heads.
// Heads of 128 numbers stay in registers, four neighbours a lane, and their angles are made ahead of the wait for the
// matmul.
#include "backends/cuda/choose.h"
#include "backends/cuda/kv_bytes.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/numbers.cuh"
#include "backends/cuda/reduce.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kWarps = 4, kThreads = kWarps * kWarp, kHeadDimMax = 256;
constexpr uint32_t kHeadsEachMax = 3;  // of a warp

struct Args {
  float* qkv;
  const uint32_t* live;
  uint32_t num_tokens, num_heads, num_kv_heads, head_dim;
  uint32_t heads_each;               // of a warp
  const float *q_weight, *k_weight;  // null: no norm
  const float* v_weight;             // null: none of v
  float eps;
  const float* freqs;  // null: no rope
  const int32_t* positions;
  uint32_t rope_dim;
  RopePairing pairing;
  float magnitude;
  const int32_t* kv_slots;  // null: no write
  std::byte* kv_data;
  float* kv_scales;  // null: none
  KvTensorScales tensor_scales;
  uint32_t block_tokens, num_blocks;
  KvDType kv_dtype;

  // v is left alone where it is neither normed nor written.
  __host__ __device__ uint32_t heads_touched() const {
    return num_heads + (kv_slots || v_weight ? 2 : 1) * num_kv_heads;
  }
  // The norm of head h; null: none.
  __device__ const float* norm_of(uint32_t h) const {
    return h < num_heads ? q_weight : h < num_heads + num_kv_heads ? k_weight : v_weight;
  }
};

__device__ void normalize(float* head, const Args& args, const float* weight, uint32_t lane) {
  float sum = 0;
  for (uint32_t i = lane; i < args.head_dim; i += kWarp) sum += head[i] * head[i];
  const float factor = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(args.head_dim) + args.eps);
  for (uint32_t i = lane; i < args.head_dim; i += kWarp) head[i] *= factor * weight[i];
  __syncwarp();
}

// Of pair i, by an angle in one turn.
__device__ void find_angle(const Args& args, int32_t position, uint32_t i, float* sine, float* cosine) {
  constexpr double kTurn = 6.283185307179586, kInverseTurn = 0.15915494309189535;
  const double angle = static_cast<double>(position) * static_cast<double>(args.freqs[i]);
  sincosf(static_cast<float>(angle - rint(angle * kInverseTurn) * kTurn), sine, cosine);
  *sine *= args.magnitude;
  *cosine *= args.magnitude;
}

// The angles of a token's pairs: lane's c-th pair is lane + c * kWarp.
struct Turn {
  static constexpr uint32_t kPairs = kHeadDimMax / 2 / kWarp;
  float cosine[kPairs], sine[kPairs];

  __device__ Turn(const Args& args, int32_t position, uint32_t lane) {
#pragma unroll
    for (uint32_t c = 0; c < kPairs; ++c) {
      const uint32_t i = lane + c * kWarp;
      if (i >= args.rope_dim / 2) break;
      find_angle(args, position, i, &sine[c], &cosine[c]);
    }
  }

  __device__ void apply(float* head, const Args& args, uint32_t lane) const {
    const uint32_t num_pairs = args.rope_dim / 2;
#pragma unroll
    for (uint32_t c = 0; c < kPairs; ++c) {
      const uint32_t i = lane + c * kWarp;
      if (i >= num_pairs) break;
      const uint32_t first = args.pairing == RopePairing::kHalves ? i : 2 * i;
      const uint32_t second = args.pairing == RopePairing::kHalves ? i + num_pairs : 2 * i + 1;
      const float a = head[first], b = head[second];
      head[first] = a * cosine[c] - b * sine[c];
      head[second] = a * sine[c] + b * cosine[c];
    }
    __syncwarp();
  }
};

// As 8-bit numbers. `vector`: see write_vector.
__device__ void write_bytes(const float* head, const Args& args, uint64_t vector, bool is_value, uint32_t lane) {
  const bool is_i8 = kv_is_i8(args.kv_dtype);
  const uint32_t each = kv_has_block_scales(args.kv_dtype) ? kKvScaleBlock : args.head_dim;
  const uint32_t num_scales = args.head_dim / each;
  std::byte* out = args.kv_data + vector * args.head_dim;
  for (uint32_t part = 0; part < num_scales; ++part) {
    float scale = is_value ? args.tensor_scales.v : args.tensor_scales.k;
    if (args.kv_scales) {
      float amax = 0;
      for (uint32_t i = lane; i < each; i += kWarp) amax = fmaxf(amax, fabsf(head[part * each + i]));
      scale = byte_scale(warp_max(amax), is_i8);
      if (lane == 0) args.kv_scales[vector * num_scales + part] = scale;
    }
    for (uint32_t i = part * each + lane; i < (part + 1) * each; i += kWarp)
      out[i] = static_cast<std::byte>(to_byte(head[i], scale, is_i8));
  }
}

// `vector`: index of the (block, k or v, head, token) vector in the layer.
__device__ void write_vector(const float* head, const Args& args, uint64_t vector, bool is_value, uint32_t lane) {
  const uint64_t first = vector * args.head_dim;
  if (args.kv_dtype == KvDType::kF16) {
    __half* out = reinterpret_cast<__half*>(args.kv_data) + first;
    for (uint32_t i = lane; i < args.head_dim; i += kWarp) out[i] = from_float<__half>(head[i]);
  } else if (args.kv_dtype == KvDType::kBF16) {
    __nv_bfloat16* out = reinterpret_cast<__nv_bfloat16*>(args.kv_data) + first;
    for (uint32_t i = lane; i < args.head_dim; i += kWarp) out[i] = from_float<__nv_bfloat16>(head[i]);
  } else {
    write_bytes(head, args, vector, is_value, lane);
  }
}

// Of heads of 128 numbers, all of which are turned, or none.
struct WideHeads {
  static constexpr uint32_t kDims = 128;

  const Args& args;
  uint32_t lane;
  float cosine[4], sine[4];  // of this lane's numbers 0 to 3; by halves the sines of the first half are negative

  __device__ void find_angles(int32_t position) {
    const bool in_halves = args.pairing == RopePairing::kHalves;
    const uint32_t first = in_halves ? lane % 16 * 4 + lane / 16 * 2 : lane * 2;
    float s[2], c[2];
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) find_angle(args, position, first + i, &s[i], &c[i]);
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      // By halves the lane of the other half has the other two of the same four pairs.
      const float other_s = __shfl_xor_sync(kFullMask, s[i], 16), other_c = __shfl_xor_sync(kFullMask, c[i], 16);
      if (in_halves) {
        sine[i] = lane < 16 ? -s[i] : other_s;
        cosine[i] = lane < 16 ? c[i] : other_c;
        sine[2 + i] = lane < 16 ? -other_s : s[i];
        cosine[2 + i] = lane < 16 ? other_c : c[i];
      } else {
        sine[2 * i] = -s[i];
        sine[2 * i + 1] = s[i];
        cosine[2 * i] = cosine[2 * i + 1] = c[i];
      }
    }
  }

  __device__ void turn(float (&x)[4]) const {
    float other[4];
    if (args.pairing == RopePairing::kHalves) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) other[i] = __shfl_xor_sync(kFullMask, x[i], 16);
    } else {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) other[i] = x[i ^ 1];
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) x[i] = x[i] * cosine[i] + other[i] * sine[i];
  }

  __device__ void normalize(float (&x)[4], const float* weight) const {
    float sum = 0;
#pragma unroll
    for (const float number : x) sum += number * number;
    const float factor = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(kDims) + args.eps);
    const float4 w = reinterpret_cast<const float4*>(weight)[lane];
    x[0] *= factor * w.x;
    x[1] *= factor * w.y;
    x[2] *= factor * w.z;
    x[3] *= factor * w.w;
  }

  __device__ void write(const float (&x)[4], uint64_t vector, bool is_value) const {
    if (args.kv_dtype == KvDType::kF16) {
      store<__half>(x, vector);
    } else if (args.kv_dtype == KvDType::kBF16) {
      store<__nv_bfloat16>(x, vector);
    } else {
      const bool is_i8 = kv_is_i8(args.kv_dtype), in_blocks = kv_has_block_scales(args.kv_dtype);
      float scale = is_value ? args.tensor_scales.v : args.tensor_scales.k;
      if (args.kv_scales) {
        const uint32_t lanes = in_blocks ? kKvScaleBlock / 4 : kWarp;
        float amax = fmaxf(fmaxf(fabsf(x[0]), fabsf(x[1])), fmaxf(fabsf(x[2]), fabsf(x[3])));
        for (uint32_t offset = lanes / 2; offset > 0; offset /= 2)
          amax = fmaxf(amax, __shfl_xor_sync(kFullMask, amax, offset));
        scale = byte_scale(amax, is_i8);
        if (lane % lanes == 0) args.kv_scales[vector * (kWarp / lanes) + lane / lanes] = scale;
      }
      Vec<uint8_t, 4> bytes;
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) bytes.v[i] = to_byte(x[i], scale, is_i8);
      reinterpret_cast<Vec<uint8_t, 4>*>(args.kv_data + vector * kDims)[lane] = bytes;
    }
  }
  template <class T>
  __device__ void store(const float (&x)[4], uint64_t vector) const {
    Vec<T, 4> out;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) out.v[i] = from_float<T>(x[i]);
    reinterpret_cast<Vec<T, 4>*>(reinterpret_cast<T*>(args.kv_data) + vector * kDims)[lane] = out;
  }
};

// A head's numbers, on their way from memory.
struct Loaded {
  float numbers[kHeadDimMax / kWarp];

  __device__ void load(const float* row, uint32_t head_dim, uint32_t lane) {
#pragma unroll
    for (uint32_t c = 0; c < kHeadDimMax / kWarp; ++c)
      if (lane + c * kWarp < head_dim) numbers[c] = row[lane + c * kWarp];
  }
  __device__ void store(float* head, uint32_t head_dim, uint32_t lane) const {
#pragma unroll
    for (uint32_t c = 0; c < kHeadDimMax / kWarp; ++c)
      if (lane + c * kWarp < head_dim) head[lane + c * kWarp] = numbers[c];
    __syncwarp();
  }
};

// The place in the pool of what head h writes for a token that is kept in `kv_slot`; false: none.
__device__ bool find_vector(const Args& args, uint32_t h, int32_t kv_slot, uint64_t* vector) {
  if (h < args.num_heads || kv_slot < 0) return false;
  const uint32_t block = static_cast<uint32_t>(kv_slot) / args.block_tokens;
  const uint32_t offset = static_cast<uint32_t>(kv_slot) % args.block_tokens;
  const uint32_t which = h >= args.num_heads + args.num_kv_heads;
  const uint32_t kv_head = h - args.num_heads - which * args.num_kv_heads;
  *vector = ((uint64_t{block} * 2 + which) * args.num_kv_heads + kv_head) * args.block_tokens + offset;
  return block < args.num_blocks;  // prepare_rows never makes another
}

// Head h of token t, which is in `head` and came from `row`.
__device__ void run_head(float* head, float* row, const Args& args, const Turn* turn, uint32_t h, int32_t kv_slot,
                         uint32_t lane) {
  const uint32_t num_turned = args.num_heads + args.num_kv_heads;
  const bool is_value = h >= num_turned;
  const float* norm = args.norm_of(h);
  if (norm || (turn && !is_value)) {
    if (norm) normalize(head, args, norm, lane);
    if (turn && !is_value) turn->apply(head, args, lane);
    for (uint32_t i = lane; i < args.head_dim; i += kWarp) row[i] = head[i];
  }
  uint64_t vector;
  if (find_vector(args, h, kv_slot, &vector)) write_vector(head, args, vector, is_value, lane);
}

template <bool kTurns>
__global__ void __launch_bounds__(kThreads) qkv_heads_kernel(Args args) {
  __shared__ float heads[kWarps][kHeadDimMax];
  const uint32_t live = *args.live;
  grid_dependency_wait();
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t t = blockIdx.x, first = (blockIdx.y * kWarps + warp) * args.heads_each;
  const uint32_t end = min(first + args.heads_each, args.heads_touched());
  if (t >= live || first >= end) return;
  const int32_t kv_slot = args.kv_slots ? args.kv_slots[t] : -1;
  float* row = args.qkv + (uint64_t{t} * (args.num_heads + 2 * args.num_kv_heads) + first) * args.head_dim;
  Loaded loaded;
  loaded.load(row, args.head_dim, lane);
  const auto run = [&](const Turn* turn) {
    for (uint32_t h = first; h < end; ++h, row += args.head_dim) {
      loaded.store(heads[warp], args.head_dim, lane);
      if (h + 1 < end) loaded.load(row + args.head_dim, args.head_dim, lane);
      run_head(heads[warp], row, args, turn, h, kv_slot, lane);
      __syncwarp();
    }
  };
  if constexpr (kTurns) {
    const Turn turn(args, args.positions[t], lane);
    run(&turn);
  } else {
    run(nullptr);
  }
}

template <bool kTurns>
__global__ void __launch_bounds__(kThreads) qkv_wide_heads_kernel(Args args) {
  const uint32_t warp = threadIdx.x / kWarp, t = blockIdx.x, first = (blockIdx.y * kWarps + warp) * args.heads_each;
  const uint32_t end = min(first + args.heads_each, args.heads_touched());
  const bool has_work = t < *args.live && first < end;
  WideHeads heads{args, threadIdx.x % kWarp};
  const int32_t kv_slot = args.kv_slots && has_work ? args.kv_slots[t] : -1;
  if constexpr (kTurns) {
    if (has_work) heads.find_angles(args.positions[t]);
  }
  grid_dependency_wait();
  if (!has_work) return;
  float4* row =
      reinterpret_cast<float4*>(args.qkv + uint64_t{t} * (args.num_heads + 2 * args.num_kv_heads) * WideHeads::kDims) +
      heads.lane;
  float4 loaded[kHeadsEachMax];
#pragma unroll
  for (uint32_t i = 0; i < kHeadsEachMax; ++i)
    if (first + i < end) loaded[i] = row[(first + i) * kWarp];
#pragma unroll
  for (uint32_t i = 0; i < kHeadsEachMax; ++i) {
    const uint32_t h = first + i;
    if (h >= end) break;
    const bool is_value = h >= args.num_heads + args.num_kv_heads;
    float x[4] = {loaded[i].x, loaded[i].y, loaded[i].z, loaded[i].w};
    const float* norm = args.norm_of(h);
    if (norm || (kTurns && !is_value)) {
      if (norm) heads.normalize(x, norm);
      if constexpr (kTurns)
        if (!is_value) heads.turn(x);
      row[h * kWarp] = {x[0], x[1], x[2], x[3]};
    }
    uint64_t vector;
    if (find_vector(args, h, kv_slot, &vector)) heads.write(x, vector, is_value);
  }
}

void set(const QkNorm& op, const OpContext& at, Args* args) {
  args->q_weight = at.weight_vector(op.q_weight);
  args->k_weight = at.weight_vector(op.k_weight);
  if (op.v_weight >= 0) args->v_weight = at.weight_vector(op.v_weight);
  args->eps = op.eps;
}

void set(const Rope& op, const OpContext& at, Args* args) {
  args->freqs = at.weight_vector(op.freqs);
  args->positions = at.tensor<int32_t>(op.positions);
  args->rope_dim = op.rope_dim;
  args->pairing = op.pairing;
  args->magnitude = op.magnitude;
}

void set(const KvWrite& op, const OpContext& at, Args* args) {
  const KvPool& pool = at.pools[op.kv_group];
  args->kv_slots = at.tensor<int32_t>(op.kv_slots);
  args->kv_data = pool.device.data + op.layer * pool.device.layer_bytes;
  args->kv_scales = pool.device.scales ? pool.device.scales + op.layer * pool.device.layer_scales : nullptr;
  args->tensor_scales = op.scales;
  args->block_tokens = pool.group.block_tokens;
  args->num_blocks = pool.group.num_blocks;
  args->kv_dtype = pool.group.dtype;
}

struct HeadsChoice : KernelChoice {
  uint32_t heads_each = 1;  // of a warp
  bool is_wide = false;     // heads of 128 numbers, in registers
  bool turns = false;
};

template <class HeadOp>
Status check_heads(const HeadOp& op, const OpList& list) {
  if (op.head_dim > kHeadDimMax)
    return make_error(ErrorCode::kUnsupported, "heads of {} numbers: expected at most {}", op.head_dim, kHeadDimMax);
  const uint32_t columns = (op.num_heads + 2 * op.num_kv_heads) * op.head_dim;
  const uint32_t found = list.tensors[static_cast<size_t>(op.qkv)].columns;
  if (found == columns) return {};
  return make_error(ErrorCode::kInvalidArgument, "qkv: expected {} columns, found {}", columns, found);
}

Status check_pool(const KvWrite& op, const CompileInputs& inputs) {
  if (op.kv_group >= inputs.pools.size())
    return make_error(ErrorCode::kInvalidArgument, "kv_write: kv_group: expected below {}, found {}",
                      inputs.pools.size(), op.kv_group);
  const KvGroup& group = inputs.pools[op.kv_group];
  if (op.num_kv_heads == group.num_kv_heads && op.head_dim == group.head_dim && op.layer < group.num_layers) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "kv_write: layer {}, {} heads of {}: the pool has {} layers, {} heads of {}", op.layer,
                    op.num_kv_heads, op.head_dim, group.num_layers, group.num_kv_heads, group.head_dim);
}

// `head_op`: one that has the shape; `rope`: where there is one among the ops; `with_values`: they touch v too.
template <class HeadOp>
HeadsChoice choose_heads(const char* name, const HeadOp& head_op, const Rope* rope, bool with_values,
                         const OpList& list, const CompileInputs& inputs) {
  const uint32_t num_tokens = list.rows_of(head_op.qkv);
  const uint32_t num_heads = head_op.num_heads + (with_values ? 2 : 1) * head_op.num_kv_heads;  // that are touched
  HeadsChoice choice;
  choice.kernel = name;
  choice.heads_each = num_tokens >= inputs.tuning.heads_joined_tokens_min ? kHeadsEachMax : 1;
  choice.turns = rope != nullptr;
  choice.is_wide = head_op.head_dim == WideHeads::kDims && (!rope || rope->rope_dim == WideHeads::kDims);
  choice.variant = choice.is_wide ? "in registers" : "in shared memory";
  choice.grid = {num_tokens, ceil_div(num_heads, kWarps * choice.heads_each)};
  choice.threads = kThreads;
  return choice;
}

template <class HeadOp>
Args args_of(const HeadsChoice& choice, const HeadOp& op, const OpContext& at) {
  Args args{};
  args.qkv = at.tensor<float>(op.qkv);
  args.live = at.live(op.qkv);
  args.num_tokens = at.rows_of(op.qkv);
  args.heads_each = choice.heads_each;
  args.num_heads = op.num_heads;
  args.num_kv_heads = op.num_kv_heads;
  args.head_dim = op.head_dim;
  return args;
}

Status start(const HeadsChoice& choice, const Args& args, const OpContext& at) {
  if (choice.is_wide)
    return launch(at, choice, choice.turns ? qkv_wide_heads_kernel<true> : qkv_wide_heads_kernel<false>, args);
  return launch(at, choice, choice.turns ? qkv_heads_kernel<true> : qkv_heads_kernel<false>, args);
}

template <class HeadOp>
void add_alone(HeadsChoice choice, const HeadOp& op, Launches* out) {
  add_launch(out, std::move(choice), [op](const HeadsChoice& c, const OpContext& at) {
    Args args = args_of(c, op, at);
    set(op, at, &args);
    return start(c, args, at);
  });
}

}  // namespace

Status choose(const QkNorm& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  if (Status status = check_heads(op, list); !status) return status;
  add_alone(choose_heads("qk_norm", op, nullptr, op.v_weight >= 0, list, inputs), op, out);
  return {};
}

Status choose(const Rope& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  if (Status status = check_heads(op, list); !status) return status;
  add_alone(choose_heads("rope", op, &op, false, list, inputs), op, out);
  return {};
}

Status choose(const KvWrite& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  if (Status status = check_heads(op, list); !status) return status;
  if (Status status = check_pool(op, inputs); !status) return status;
  add_alone(choose_heads("kv_write", op, nullptr, true, list, inputs), op, out);
  return {};
}

Status choose(const QkvHeads& step, const OpList& list, const CompileInputs& inputs, Launches* out) {
  if (Status status = check_heads(step.rope, list); !status) return status;
  if (Status status = check_pool(step.write, inputs); !status) return status;
  HeadsChoice choice = choose_heads("qkv_heads", step.rope, &step.rope, true, list, inputs);
  add_launch(out, std::move(choice), [step](const HeadsChoice& c, const OpContext& at) {
    Args args = args_of(c, step.rope, at);
    if (step.norm) set(*step.norm, at, &args);
    set(step.rope, at, &args);
    set(step.write, at, &args);
    return start(c, args, at);
  });
  return {};
}

}  // namespace llmrt::cuda
