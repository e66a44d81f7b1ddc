// What walks through the tokens of rows have in common (state_walk.cuh, state_ring.cuh): arguments, and the state of a
// head, [key_dim, value_dim], in the registers of a block.
//
// A block takes 32 value columns of one head in one row. A warp has 8 of them: lane = 2 kl + quad holds, of the four
// columns of its quad, keys 64 i + 4 kl + j (i < kChunks, j < 4). So the state is read and written in accesses of 16
// bytes that all are under way before the kernel before has ended. The columns of a state do not depend on each other:
// nothing is summed over blocks or warps.
#pragma once

#include "backends/cuda/intrinsics.cuh"
#include "backends/cuda/recurrent.cuh"
#include "backends/cuda/reduce.cuh"

namespace llmrt::cuda {

struct WalkArgs {
  StateRecords states;
  ColumnsIn q, k, v;
  ColumnsIn gate, strength;                     // alpha and beta, or dt and nothing
  const float *a, *dt_bias, *d;                 // [num_heads]; d: or null
  uint32_t num_heads, heads_shared, key_heads;  // heads_shared: so many have the same q and k
  uint32_t key_dim, value_dim, slices;
  bool has_key_modulo, gates_in_turn, normalise;
  bool has_fours;  // q, k and v can be read in fours
  float eps, scale, dt_min, dt_max;
  float* out;
  StateRing ring;
  bool has_ring;
  uint32_t row_tokens_max;  // of ring_walk: longer rows are another kernel's

  __device__ uint32_t key_head(uint32_t head) const { return has_key_modulo ? head % key_heads : head / heads_shared; }
  // Whether that head is the first of those that have its key head.
  __device__ bool has_first_key(uint32_t head) const {
    return has_key_modulo ? head < key_heads : head % heads_shared == 0;
  }
  __device__ uint32_t gate_column(uint32_t head) const {
    return gates_in_turn ? head + head / heads_shared * heads_shared : head;
  }
  // A record's ring, behind its matrices.
  template <class T>
  __device__ T* ring_in(T* record) const {
    return record + ring.matrix_numbers();
  }
  // Four numbers of q, k or v to shared memory, or zeros.
  __device__ void copy_four(float* shared, const float* from, bool is_there) const {
    if (!is_there) from = q.first;
    if (has_fours) {
      copy_async<16>(shared, from, is_there);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) copy_async<4>(shared + i, from + i, is_there);
    }
  }
};

inline constexpr uint32_t kWalkWarps = 4, kWalkThreads = kWalkWarps * kWarp;
inline constexpr uint32_t kWarpValues = 8, kBlockValues = kWalkWarps * kWarpValues;

// Halves of the numbers against the lane `kHalf` apart, until each lane has one.
template <int kHalf, int N>
__device__ void scatter_halves(float (&value)[N]) {
  const bool is_upper = threadIdx.x & kHalf;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float sent = is_upper ? value[i] : value[i + kHalf], kept = is_upper ? value[i + kHalf] : value[i];
    value[i] = kept + __shfl_xor_sync(kFullMask, sent, kHalf);
  }
  if constexpr (kHalf > 1) scatter_halves<kHalf / 2>(value);
}
// value[lane % N], summed over all lanes.
template <int N>
__device__ float scatter_sums(float (&value)[N]) {
  scatter_halves<N / 2>(value);
#pragma unroll
  for (int offset = N; offset < static_cast<int>(kWarp); offset *= 2)
    value[0] += __shfl_xor_sync(kFullMask, value[0], offset);
  return value[0];
}

// A lane holds the four columns of its quad in an order of its own: number c is of column c ^ (lane / 8). So the first
// is the lane's own column, what it keeps of sums stands in front of what it sends, and nothing is selected.
//
// The sum of the lane's own column, of four columns over the lanes of a quad; lanes that are 2 and 4 apart are left.
__device__ inline float column_sum(const float (&value)[4]) {
  const float own = value[0] + __shfl_xor_sync(kFullMask, value[2], 16);
  const float next = value[1] + __shfl_xor_sync(kFullMask, value[3], 16);
  return own + __shfl_xor_sync(kFullMask, next, 8);
}
// All four columns' numbers, of which each lane has its own column's.
__device__ inline void gather_columns(float own, float (&all)[4]) {
  all[0] = own;
  all[1] = __shfl_xor_sync(kFullMask, own, 8);
  all[2] = __shfl_xor_sync(kFullMask, all[0], 16);
  all[3] = __shfl_xor_sync(kFullMask, all[1], 16);
}
// Into that order, and back.
__device__ inline void order_columns(float (&all)[4], uint32_t lane) {
  const bool swaps_pairs = lane & 16, swaps_columns = lane & 8;
  const float pairs[4] = {swaps_pairs ? all[2] : all[0], swaps_pairs ? all[3] : all[1], swaps_pairs ? all[0] : all[2],
                          swaps_pairs ? all[1] : all[3]};
#pragma unroll
  for (int c = 0; c < 4; ++c) all[c] = swaps_columns ? pairs[c ^ 1] : pairs[c];
}

// The decay of a token and the strength of its value: beta, or dt.
struct TokenGates {
  float decay, strength;
};
template <bool kDelta>
__device__ TokenGates token_gates(const WalkArgs& args, float gate, float beta, float a) {
  float dt = softplus(gate);
  if constexpr (!kDelta) dt = dt < args.dt_min ? args.dt_min : dt > args.dt_max ? args.dt_max : dt;  // NaN stays
  return {expf(a * dt), kDelta ? sigmoid(beta) : dt};
}

template <int kChunks>
class WalkLanes {
 public:
  static constexpr int kRows = 4 * kChunks;  // keys of a lane
  static constexpr int kKeys = 64 * kChunks;

  __device__ explicit WalkLanes(const WalkArgs& args)
      : args_(args),
        warp_(threadIdx.x / kWarp),
        lane_(threadIdx.x % kWarp),
        head_(blockIdx.x / args.slices),
        first_value_(blockIdx.x % args.slices * kBlockValues) {
    a_ = args.a[head_];
    dt_bias_ = args.dt_bias[head_];
    d_ = args.d ? args.d[head_] : 0.0f;
    column_ = first_value_ + warp_ * kWarpValues + lane_ % 2 * 4;
    has_columns_ = column_ < args.value_dim;
  }

  // Null: zeros.
  __device__ void load(const float* record) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const bool is_there = record && has_columns_ && key_of(r) < args_.key_dim;
      const float4 four = is_there ? load_once(record + place(key_of(r))) : float4{0, 0, 0, 0};
      state_[r][0] = four.x;
      state_[r][1] = four.y;
      state_[r][2] = four.z;
      state_[r][3] = four.w;
    }
  }
  // Behind all loads, so that these are under way together.
  __device__ void order_loaded() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) order_columns(state_[r], lane_);
  }
  __device__ void store(float* record) const {
    if (!record || !has_columns_) return;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float columns[4] = {state_[r][0], state_[r][1], state_[r][2], state_[r][3]};
      order_columns(columns, lane_);
      if (key_of(r) < args_.key_dim)
        *reinterpret_cast<float4*>(record + place(key_of(r))) = float4{columns[0], columns[1], columns[2], columns[3]};
    }
  }

 protected:
  // Where the numbers of this lane begin in a record.
  __device__ uint64_t place(uint32_t key) const {
    return (uint64_t{head_} * args_.key_dim + key) * args_.value_dim + column_;
  }
  __device__ uint32_t key_of(int r) const {
    return r / 4 * 64 + lane_ / 2 * 4 + r % 4;
  }
  __device__ bool has_warp_columns() const {
    return first_value_ + warp_ * kWarpValues < args_.value_dim;
  }
  // The lane's own column, in the block.
  __device__ uint32_t own_value() const {
    return warp_ * kWarpValues + lane_ % 2 * 4 + lane_ / 8;
  }
  __device__ bool has_own_value() const {
    return first_value_ + own_value() < args_.value_dim;
  }
  __device__ static float4 four(const float* shared) {
    return *reinterpret_cast<const float4*>(shared);
  }
  // Entry i of those before `start`, keys to keys[i] and this block's values to values[i]. Each warp takes every
  // fourth.
  template <int kColumns>
  __device__ void copy_entries(const float* record, uint32_t start, float (*keys)[kKeys],
                               float (*values)[kColumns]) const {
    const float* ring = args_.ring_in(record);
    const uint32_t base = start / kRingTokens * kRingTokens;
    for (uint32_t i = warp_; i < start % kRingTokens; i += kWalkWarps) {
      const float* key_numbers = ring + args_.ring.keys(args_.key_head(head_), base + i);
#pragma unroll
      for (uint32_t key = lane_ * 4; key < kKeys; key += kWarp * 4)
        copy_async<16>(&keys[i][key], key < args_.key_dim ? key_numbers + key : ring, key < args_.key_dim);
      const uint32_t value = lane_ * 4;
      const bool has_value = first_value_ + value < args_.value_dim;
      if (value < kBlockValues)
        copy_async<16>(&values[i][value],
                       has_value ? ring + args_.ring.values(head_, base + i) + first_value_ + value : ring, has_value);
    }
  }
  // By lane i < 16: what is left of entry i behind `count` of them; by lane 16: of what lay before. decay: entry i's.
  __device__ float left_of_entries(float decay, uint32_t count) const {
    float left = 1;
#pragma unroll
    for (uint32_t l = 0; l < kRingTokens; ++l) {
      const float of = __shfl_sync(kFullMask, decay, static_cast<int>(l));
      if (l < count && (l > lane_ || lane_ == kRingTokens)) left *= of;
    }
    return left;
  }

  // This lane's part of S^T keys, for its four columns.
  __device__ void read_state(const float* keys, float (&sums)[4]) const {
#pragma unroll
    for (int c = 0; c < 4; ++c) sums[c] = 0;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const float4 key = four(keys + chunk * 64 + lane_ / 2 * 4);
      const float numbers[4] = {key.x, key.y, key.z, key.w};
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int c = 0; c < 4; ++c) sums[c] += state_[chunk * 4 + j][c] * numbers[j];
    }
  }
  __device__ void decay_state(float decay) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < 4; ++c) state_[r][c] *= decay;
  }
  // S += keys values^T. added: the value of the lane's own column.
  __device__ void add_to_state(const float* keys, float added) {
    float columns[4];
    gather_columns(added, columns);
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const float4 key = four(keys + chunk * 64 + lane_ / 2 * 4);
      const float numbers[4] = {key.x, key.y, key.z, key.w};
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int c = 0; c < 4; ++c) state_[chunk * 4 + j][c] += numbers[j] * columns[c];
    }
  }
  // S behind `count` entries, of which each lane has what is left (left_of_entries).
  template <int kColumns>
  __device__ void fold(float left, uint32_t count, const float (*keys)[kKeys], const float (*values)[kColumns]) {
    decay_state(__shfl_sync(kFullMask, left, static_cast<int>(kRingTokens)));
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i)
      add_to_state(keys[i], __shfl_sync(kFullMask, left, static_cast<int>(i)) * values[i][own_value()]);
  }

  const WalkArgs& args_;
  uint32_t warp_, lane_, head_, first_value_, column_;
  bool has_columns_;
  float a_, dt_bias_, d_;
  float state_[kRows][4];
};

}  // namespace llmrt::cuda
