// The walk of a block through the tokens of one row, for gated_delta and selective_scan (state_walk.cu): per head a
// state S [key_dim, value_dim] that decays, to which a token adds key value^T, and which its query reads.
//
// A block takes 32 value columns of one head in one row. A warp has 8 of them: lane = 2 kl + quad holds, of the four
// columns of its quad, keys 64 i + 4 kl + j (i < kChunks, j < 4). So the state is read and written once a row, in
// accesses of 16 bytes that all are under way before the kernel before has ended. The columns of a state do not depend
// on each other: nothing is summed over blocks or warps.
//
// kGroup tokens are taken at once. With S before them, G_i the decays up to token i, R_ij those behind j up to i:
//   d_i = strength_i (v_i - G_i S^T k_i - sum over j < i of R_ij (k_i . k_j) d_j)      (scan: d_i = dt_i x_i)
//   out_i = scale (G_i S^T q_i + sum over j <= i of R_ij (q_i . k_j) d_j)
//   S = G S + sum over j of R_j k_j d_j^T
// which is the WY form of the delta rule (Yang, Wang, Zhang, Shen, Kim: Parallelizing Linear Transformers with the
// Delta Rule over Sequence Length, 2024; with decays: Gated Delta Networks) and Mamba-2's block form, solved by
// substitution. Fewer sums over lanes and less work a token: 3 1/4 operations a number of the state with 4 tokens, 4
// with one. Groups are cut by absolute position; tokens that are missing count as k = 0, decay 1. One token at a time,
// a row's numbers are the same however it is cut.
//
// Each warp makes the coefficients of one group of a tile of four, for the whole block. q, k and v of the next tile are
// copied while this one is worked on. All sums in f32, in a fixed order.
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

  __device__ uint32_t key_head(uint32_t head) const { return has_key_modulo ? head % key_heads : head / heads_shared; }
  __device__ uint32_t gate_column(uint32_t head) const {
    return gates_in_turn ? head + head / heads_shared * heads_shared : head;
  }
};

inline constexpr uint32_t kWalkWarps = 4, kWalkThreads = kWalkWarps * kWarp;
inline constexpr uint32_t kWarpValues = 8, kBlockValues = kWalkWarps * kWarpValues;

// What the tokens of a group do, beside the state.
template <int kGroup>
struct alignas(16) Coefficients {
  float known[kGroup][kGroup];  // [i][j], j < i: what d_j takes off d_i
  float seen[kGroup][kGroup];   // [i][j], j <= i: what d_j adds to the output of i
  float known_state[kGroup];    // what S^T k_i takes off d_i
  float seen_state[kGroup];     // what S^T q_i adds to the output of i
  float added[kGroup];          // what k_j d_j^T adds to S
  float strength[kGroup];
  float decay;  // of S, by the whole group
};

template <int kGroup, int kChunks>
struct alignas(16) Tile {
  static constexpr int kKeys = 64 * kChunks;
  float q[kWalkWarps * kGroup][kKeys];
  float k[kWalkWarps * kGroup][kKeys];
  float v[kWalkWarps * kGroup][kBlockValues];
  Coefficients<kGroup> groups[kWalkWarps];
};
template <int kGroup>
struct Products {
  float of[kWalkWarps][kWarp];
  float decay[kWalkWarps][kGroup];
};

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

template <bool kDelta, int kGroup, int kChunks>
class Walk {
 public:
  static constexpr int kRows = 4 * kChunks;  // keys of a lane
  static constexpr uint32_t kTileTokens = kWalkWarps * kGroup;
  static_assert(kStatePlaceTokens % kTileTokens == 0, "tiles end where states are saved");
  using Shared = Tile<kGroup, kChunks>;

  __device__ Walk(const WalkArgs& args, Shared* tiles, Products<kGroup>* products)
      : args_(args),
        tiles_(tiles),
        products_(products),
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

  // Where the numbers of this lane begin in a record.
  __device__ uint64_t place(uint32_t key) const {
    return (uint64_t{head_} * args_.key_dim + key) * args_.value_dim + column_;
  }
  __device__ uint32_t key_of(int r) const { return r / 4 * 64 + lane_ / 2 * 4 + r % 4; }

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

  __device__ void walk(const RowRecord& row) {
    StateSaves saves(args_.states, row);
    const uint32_t end = row.start + row.num_tokens;
    uint32_t begin = row.start / kTileTokens * kTileTokens;
    uint32_t idx = 0;
    begin_tile(row, begin, tiles_[0]);
    order_loaded();
    end_tile(tiles_[0]);
    __syncthreads();
    for (; begin < end; begin += kTileTokens, idx ^= 1) {
      const bool has_more = begin + kTileTokens < end;
      if (has_more) begin_tile(row, begin + kTileTokens, tiles_[idx ^ 1]);
      if (first_value_ + warp_ * kWarpValues < args_.value_dim) {
#pragma unroll 1
        for (uint32_t group = 0; group < kWalkWarps; ++group) {
          const uint32_t position = begin + group * kGroup;
          if (position < end && position + kGroup > row.start) take_group(row, position, group, tiles_[idx]);
        }
      }
      if (begin + kTileTokens == saves.position()) store(saves.take());
      if (has_more) end_tile(tiles_[idx ^ 1]);
      __syncthreads();
    }
    store(args_.states.own(row));
  }

 private:
  // Four numbers to shared memory, or zeros.
  __device__ void copy_four(float* shared, const float* from, bool is_there) const {
    if (!is_there) from = args_.q.first;
    if (args_.has_fours) {
      copy_async<16>(shared, from, is_there);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) copy_async<4>(shared + i, from + i, is_there);
    }
  }
  // Begins to copy this warp's group of the tile whose first token is at `begin`.
  __device__ void begin_tile(const RowRecord& row, uint32_t begin, Shared& tile) {
    const uint32_t first = begin + warp_ * kGroup, end = row.start + row.num_tokens;
    is_group_there_ = first < end && first + kGroup > row.start;
    if (!is_group_there_) return;
    const uint32_t keys = args_.key_head(head_) * args_.key_dim;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const bool is_there = first + i >= row.start && first + i < end;
      const uint32_t token = is_there ? row.token_first + first + i - row.start : 0;
#pragma unroll
      for (uint32_t key = lane_ * 4; key < Shared::kKeys; key += kWarp * 4) {
        const bool has_key = is_there && key < args_.key_dim;
        copy_four(&tile.q[warp_ * kGroup + i][key], args_.q.of(token) + keys + key, has_key);
        copy_four(&tile.k[warp_ * kGroup + i][key], args_.k.of(token) + keys + key, has_key);
      }
    }
    const uint32_t value_i = lane_ / 8, value = lane_ % 8 * 4;
    if (value_i < kGroup) {
      const bool is_there = first + value_i >= row.start && first + value_i < end;
      const uint32_t token = is_there ? row.token_first + first + value_i - row.start : 0;
      copy_four(&tile.v[warp_ * kGroup + value_i][value],
                args_.v.of(token) + head_ * args_.value_dim + first_value_ + value,
                is_there && first_value_ + value < args_.value_dim);
    }
    copy_async_commit();
    const uint32_t position = first + lane_, token = row.token_first + position - row.start;
    is_token_there_ = lane_ < kGroup && position >= row.start && position < end;
    if (is_token_there_) {
      gate_ = args_.gate.of(token)[args_.gate_column(head_)] + dt_bias_;
      if constexpr (kDelta) beta_ = args_.strength.of(token)[args_.gate_column(head_)];
    }
  }

  static constexpr int kPairs = kGroup * (kGroup + 1) / 2;
  static constexpr int pair(int i, int j) {
    return i * (i + 1) / 2 + j;
  }
  static constexpr int kSums = kGroup == 1 ? 4 : kDelta ? 32 : 16;

  // The coefficients of this warp's group.
  __device__ void end_tile(Shared& tile) {
    copy_async_wait<0>();
    if (!is_group_there_) return;
    float* products = products_->of[warp_];
    float* decays = products_->decay[warp_];
    Coefficients<kGroup>& group = tile.groups[warp_];
    __syncwarp();
    const float sum = own_products(tile);
    products[lane_] = sum;
    if (lane_ < kGroup) {
      float decay = 1, strength = 0;
      if (is_token_there_) {
        float dt = softplus(gate_);
        if constexpr (!kDelta)
          dt = dt < args_.dt_min ? args_.dt_min : dt > args_.dt_max ? args_.dt_max : dt;  // NaN stays
        decay = expf(a_ * dt);
        strength = kDelta ? sigmoid(beta_) : dt;
      }
      decays[lane_] = decay;
      group.strength[lane_] = strength;
    }
    __syncwarp();
    write_pairs(products, decays, group);
    write_vectors(products, decays, group);
    __syncwarp();
  }
  // This lane's part of k_i . k_j and q_i . k_j for j <= i, then of q_i . q_i; summed over lanes.
  __device__ float own_products(const Shared& tile) const {
    float sums[kSums] = {};
#pragma unroll
    for (uint32_t key = lane_ * 4; key < Shared::kKeys; key += kWarp * 4) {
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        float k[kGroup], q[kGroup];
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          k[i] = tile.k[warp_ * kGroup + i][key + part];
          q[i] = tile.q[warp_ * kGroup + i][key + part];
        }
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
#pragma unroll
          for (int j = 0; j <= i; ++j) {
            sums[pair(i, j)] += q[i] * k[j];
            if constexpr (kDelta) sums[kPairs + pair(i, j)] += k[i] * k[j];
          }
          if constexpr (kDelta) sums[2 * kPairs + i] += q[i] * q[i];
        }
      }
    }
    return scatter_sums(sums);
  }
  // What q_i and k_i are multiplied by to be normalised.
  __device__ float query_factor(const float* products, int i) const {
    if (!kDelta || !args_.normalise) return 1;
    return 1.0f / sqrtf(products[2 * kPairs + i] + args_.eps);
  }
  __device__ float key_factor(const float* products, int i) const {
    if (!kDelta || !args_.normalise) return 1;
    return 1.0f / sqrtf(products[kPairs + pair(i, i)] + args_.eps);
  }
  // The decays of tokens begin <= l < end.
  __device__ static float decay_of(const float* decays, int begin, int end) {
    float product = 1;
#pragma unroll
    for (int l = 0; l < kGroup; ++l)
      if (l >= begin && l < end) product *= decays[l];
    return product;
  }
  // By lane: i and j of what d_j takes off d_i, then of what it adds to an output.
  __device__ void write_pairs(const float* products, const float* decays, Coefficients<kGroup>& group) const {
    constexpr int kSquare = kGroup * kGroup;
    const int e = static_cast<int>(lane_) % kSquare, i = e / kGroup, j = e % kGroup;
    if (lane_ >= 2 * kSquare) return;
    const bool is_seen = lane_ >= kSquare;
    float value = 0;
    if (j < i + is_seen) {
      value = decay_of(decays, j + 1, i + 1) * key_factor(products, j);
      if (is_seen)
        value *= args_.scale * query_factor(products, i) * products[pair(i, j)];
      else if constexpr (kDelta)
        value *= group.strength[i] * key_factor(products, i) * products[kPairs + pair(i, j)];
    }
    (is_seen ? group.seen : group.known)[i][j] = value;
  }
  __device__ void write_vectors(const float* products, const float* decays, Coefficients<kGroup>& group) const {
    const int kind = static_cast<int>(lane_) / kGroup, i = static_cast<int>(lane_) % kGroup;
    if (kind == 0)
      group.known_state[i] = group.strength[i] * decay_of(decays, 0, i + 1) * key_factor(products, i);
    else if (kind == 1)
      group.seen_state[i] = args_.scale * decay_of(decays, 0, i + 1) * query_factor(products, i);
    else if (kind == 2)
      group.added[i] = decay_of(decays, i + 1, kGroup) * key_factor(products, i);
    else if (kind == 3 && i == 0)
      group.decay = decay_of(decays, 0, kGroup);
  }

  __device__ static float4 four(const float* shared) {
    return *reinterpret_cast<const float4*>(shared);
  }

  // This lane's part of S^T k_i, or of S^T q_i, for its four columns.
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
  // What of a column's sums over lanes is left: those that are 2 and 4 lanes apart. Each lane gets the sum of token
  // lane / 2 % kGroup.
  __device__ float sum_of_own_token(const float (&sums)[kGroup]) const {
    if constexpr (kGroup == 1) {
      const float two = sums[0] + __shfl_xor_sync(kFullMask, sums[0], 4);
      return two + __shfl_xor_sync(kFullMask, two, 2);
    } else {
      static_assert(kGroup == 4);
      const bool is_high = lane_ & 4, is_odd = lane_ & 2;
      const float first = (is_high ? sums[2] : sums[0]) + __shfl_xor_sync(kFullMask, is_high ? sums[0] : sums[2], 4);
      const float second = (is_high ? sums[3] : sums[1]) + __shfl_xor_sync(kFullMask, is_high ? sums[1] : sums[3], 4);
      return (is_odd ? second : first) + __shfl_xor_sync(kFullMask, is_odd ? first : second, 2);
    }
  }

  __device__ void take_group(const RowRecord& row, uint32_t position, uint32_t group, const Shared& tile) {
    const Coefficients<kGroup>& by = tile.groups[group];
    const uint32_t first = group * kGroup, own = lane_ / 2 % kGroup;  // own: the token whose output the lane writes
    const uint32_t value = warp_ * kWarpValues + lane_ % 2 * 4 + lane_ / 8;  // the lane's column, in the block
    float added[kGroup], seen[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      float sums[4];
      read_state(tile.q[first + i], sums);
      seen[i] = column_sum(sums);
      added[i] = by.strength[i] * tile.v[first + i][value];
      if constexpr (kDelta) {
        read_state(tile.k[first + i], sums);
        float known = column_sum(sums);
        known += __shfl_xor_sync(kFullMask, known, 4);
        known += __shfl_xor_sync(kFullMask, known, 2);
        added[i] -= by.known_state[i] * known;
      }
    }
    float out = by.seen_state[own] * sum_of_own_token(seen);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if constexpr (kDelta) {
#pragma unroll
        for (int j = 0; j < i; ++j) added[i] -= by.known[i][j] * added[j];
      }
      if (i <= static_cast<int>(own)) out += by.seen[own][i] * added[i];  // what is not finite stays behind it
    }
    if (!kDelta && args_.d) out += d_ * tile.v[first + own][value];
    const uint32_t at = position + own;
    const bool is_writer = kGroup == 4 || lane_ / 2 % 4 == 0;
    if (is_writer && at >= row.start && at < row.start + row.num_tokens && first_value_ + value < args_.value_dim) {
      const uint64_t token = row.token_first + at - row.start;
      args_.out[(token * args_.num_heads + head_) * args_.value_dim + first_value_ + value] = out;
    }
    add(by, added, tile, first);
  }
  __device__ void add(const Coefficients<kGroup>& by, const float (&added)[kGroup], const Shared& tile,
                      uint32_t first) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < 4; ++c) state_[r][c] *= by.decay;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      float columns[4];
      gather_columns(by.added[i] * added[i], columns);
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        const float4 key = four(&tile.k[first + i][chunk * 64 + lane_ / 2 * 4]);
        const float numbers[4] = {key.x, key.y, key.z, key.w};
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int c = 0; c < 4; ++c) state_[chunk * 4 + j][c] += numbers[j] * columns[c];
      }
    }
  }

  const WalkArgs& args_;
  Shared* tiles_;
  Products<kGroup>* products_;
  uint32_t warp_, lane_, head_, first_value_, column_;
  bool has_columns_, is_group_there_ = false, is_token_there_ = false;
  float a_, dt_bias_, d_, gate_ = 0, beta_ = 0;
  float state_[kRows][4];
};

}  // namespace llmrt::cuda
