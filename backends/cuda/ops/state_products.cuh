// The walk of a block through the tokens of one row for gated_delta and selective_scan, 16 tokens at once by products
// of matrices: the formulas of state_walk.cuh, with a group of 16. With K, Q [16, key_dim] the group's keys and
// queries, S [key_dim, value_dim] the state before it, and diagonal matrices written as their numbers:
//   D = T (strength V - known_state K S), O = seen_state Q S + P D, S = decay S + K^T (added D)
// T = (I + M)^-1, M strictly lower triangular: what d_j takes off d_i. P lower triangular: what d_j adds to output i.
//
// A block takes 64 value columns of one head in one row, a warp 16 of them: S^T [16, key_dim] in registers as the sums
// of products have it, lane = 4 g + t: columns g, g + 8, keys 8 s + 2 t, 8 s + 2 t + 1. As a factor a product wants
// keys t and t + 4 of eight there; the order of keys in a sum is free, so the same registers are that factor, and the
// other one is read in that order. The same with tokens, between D as a result and as a factor.
//
// Products are tf32 with f32 sums, three for one: x is high + low of 11 bits each, and low times low is left out, some
// 2^-21 of a product. A tile has four groups; each warp makes the coefficients of one, for the block. The tile behind
// is copied while one is worked on. A number that is not finite spoils the outputs of its whole group.
#pragma once

#include "backends/cuda/ops/state_lanes.cuh"
#include "backends/cuda/tf32.cuh"

namespace llmrt::cuda {

inline constexpr int kProductTokens = 16, kProductTileTokens = kProductTokens * kWalkWarps;
inline constexpr uint32_t kProductWarpValues = 16, kProductValues = kProductWarpValues * kWalkWarps;
static_assert(kProductTokens == kRingTokens && kStatePlaceTokens % kProductTokens == 0,
              "states are saved behind groups");

// Rows of shared memory are as long as makes lanes read from different banks.
struct alignas(16) GroupFactors {
  float solved[kProductTokens][kProductTokens + 8];  // T; before, products of keys, then M
  float seen[kProductTokens][kProductTokens + 8];    // P; before, products of queries and keys
  float known_state[kProductTokens], seen_state[kProductTokens], added[kProductTokens], strength[kProductTokens];
  float key[kProductTokens], query[kProductTokens];  // what k and q are multiplied by
  float decays[kProductTokens];
  float decay;  // by the whole group
};

template <int kChunks>
struct alignas(16) ProductTile {
  static constexpr int kKeys = 64 * kChunks;
  float q[kProductTileTokens][kKeys + 8];
  float k[kProductTileTokens][kKeys + 8];
  float v[kProductTileTokens][kProductValues + 4];
  GroupFactors groups[kWalkWarps];
};

// Four numbers of a factor, or two, as high and low parts.
template <int N>
struct Halves {
  uint32_t high[N], low[N];

  __device__ void set(int i, float x) {
    constexpr uint32_t kBits = 0xffffe000u;  // of tf32
    high[i] = __float_as_uint(x) & kBits;
    low[i] = __float_as_uint(x - __uint_as_float(high[i])) & kBits;
  }
};
__device__ inline void multiply_halves(float (&c)[4], const Halves<4>& a, const Halves<2>& b) {
  mma_16x8x8(c, a.high, b.low);
  mma_16x8x8(c, a.low, b.high);
  mma_16x8x8(c, a.high, b.high);
}
// Sums as the first factor: their columns 2t and 2t + 1 are its columns t and t + 4.
__device__ inline Halves<4> factor_of(const float (&c)[4]) {
  Halves<4> a;
  a.set(0, c[0]);
  a.set(1, c[2]);
  a.set(2, c[1]);
  a.set(3, c[3]);
  return a;
}
__device__ inline Halves<2> factor_of(float first, float second) {
  Halves<2> b;
  b.set(0, first);
  b.set(1, second);
  return b;
}

template <bool kDelta, int kChunks>
class ProductWalk {
 public:
  static constexpr int kKeys = 64 * kChunks, kSteps = kKeys / 8;
  using Shared = ProductTile<kChunks>;

  __device__ ProductWalk(const WalkArgs& args, Shared* tiles)
      : args_(args), tiles_(tiles), warp_(threadIdx.x / kWarp), lane_(threadIdx.x % kWarp) {
    const uint32_t slices = (args.value_dim + kProductValues - 1) / kProductValues;
    head_ = blockIdx.x / slices;
    first_value_ = blockIdx.x % slices * kProductValues;
    a_ = args.a[head_];
    dt_bias_ = args.dt_bias[head_];
    d_ = args.d ? args.d[head_] : 0.0f;
  }

  // Null: zeros.
  __device__ void load(const float* record) {
    each_number([&](uint32_t key, uint32_t value, bool is_there, float* number) {
      *number = record && is_there ? record[place(key, value)] : 0.0f;
    });
  }
  // load() has the matrices of `source`, from which the row begins.
  __device__ void walk(const RowRecord& row, const float* source) {
    StateSaves saves(args_.states, row);
    const uint32_t end = row.start + row.num_tokens;
    float* own = args_.states.own(row);
    uint32_t begin = row.start / kProductTileTokens * kProductTileTokens, idx = 0;
    begin_tile(row, begin, tiles_[0]);
    take_over(row, source, own);
    end_tile(tiles_[0]);
    __syncthreads();
    for (; begin < end; begin += kProductTileTokens, idx ^= 1) {
      const bool has_more = begin + kProductTileTokens < end;
      if (has_more) begin_tile(row, begin + kProductTileTokens, tiles_[idx ^ 1]);
#pragma unroll 1
      for (uint32_t group = 0; group < kWalkWarps; ++group) {
        const uint32_t position = begin + group * kProductTokens, behind = position + kProductTokens;
        if (position >= end || behind <= row.start) continue;
        if (first_value_ + warp_ * kProductWarpValues < args_.value_dim)
          take_group(row, position, group * kProductTokens, tiles_[idx], tiles_[idx].groups[group], own);
        if (behind == saves.position()) store(saves.take());
        if (behind == end / kRingTokens * kRingTokens) store(own);
      }
      if (has_more) end_tile(tiles_[idx ^ 1]);
      __syncthreads();
    }
  }

 private:
  template <class Fn>
  __device__ void each_number(Fn fn) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t key = s * 8 + lane_ % 4 * 2 + i % 2, value = value_of(i / 2);
        fn(key, value, key < args_.key_dim && first_value_ + value < args_.value_dim, &state_[s][i]);
      }
    }
  }
  // The lane's columns, in the block.
  __device__ uint32_t value_of(int half) const {
    return warp_ * kProductWarpValues + lane_ / 4 + half * 8;
  }
  __device__ uint64_t place(uint32_t key, uint32_t value) const {
    return (uint64_t{head_} * args_.key_dim + key) * args_.value_dim + first_value_ + value;
  }
  __device__ void store(float* record) {
    if (!record) return;
    each_number([&](uint32_t key, uint32_t value, bool is_there, const float* number) {
      if (is_there) record[place(key, value)] = *number;
    });
  }

  // The ring of the record that the row begins from, into the state, as a group whose D is known. The second tile is
  // free yet.
  __device__ void take_over(const RowRecord& row, const float* source, float* own) {
    const uint32_t count = row.start % kRingTokens, base = row.start - count;
    const bool leaves_source = own && source != own && (row.start + row.num_tokens) / kRingTokens * kRingTokens == base;
    if (leaves_source && base > 0) store(own);
    if (count == 0 || !source) return;
    Shared& tile = tiles_[1];
    const float* ring = args_.ring_in(source);
    for (uint32_t i = warp_; i < kRingTokens; i += kWalkWarps) {
      const bool is_there = i < count;
      const float* keys = ring + args_.ring.keys(args_.key_head(head_), base + i);
      const float* values = ring + args_.ring.values(head_, base + (is_there ? i : 0)) + first_value_;
      for (uint32_t n = lane_ * 4; n < kKeys; n += kWarp * 4)
        copy_async<16>(&tile.k[i][n], is_there && n < args_.key_dim ? keys + n : ring, is_there && n < args_.key_dim);
      const uint32_t n = lane_ * 4;
      const bool has_value = is_there && first_value_ + n < args_.value_dim;
      if (n < kProductValues) copy_async<16>(&tile.v[i][n], has_value ? values + n : ring, has_value);
    }
    copy_async_commit();
    GroupFactors& group = tile.groups[0];
    if (threadIdx.x < kRingTokens) {
      group.decays[threadIdx.x] = threadIdx.x < count ? ring[args_.ring.decay(head_, base + threadIdx.x)] : 1.0f;
      group.key[threadIdx.x] = 1;
      group.strength[threadIdx.x] = group.query[threadIdx.x] = 0;
    }
    copy_async_wait<0>();
    __syncthreads();
    if (threadIdx.x < kRingTokens) write_decays(group);
    __syncthreads();
    float values[2][4];
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) values[n][i] = tile.v[token_of(n, i)][value_of(i / 2)];
    if (leaves_source)
      each_entry(values, [&](uint32_t i, uint32_t value, float number) {
        if (i < count) args_.ring_in(own)[args_.ring.values(head_, base + i) + first_value_ + value] = number;
      });
    add(values, 0, tile, group);
    __syncthreads();
  }

  // The token of a lane's number in sums over keys or tokens [value, token].
  __device__ uint32_t token_of(int n, int i) const {
    return n * 8 + lane_ % 4 * 2 + i % 2;
  }
  // fn(token, value, number) for this lane's numbers of columns that there are.
  template <class Fn>
  __device__ void each_entry(const float (&numbers)[2][4], Fn fn) const {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (first_value_ + value_of(i / 2) < args_.value_dim) fn(token_of(n, i), value_of(i / 2), numbers[n][i]);
  }

  // Begins to copy this warp's group of the tile whose first token is at `begin`.
  __device__ void begin_tile(const RowRecord& row, uint32_t begin, Shared& tile) {
    const uint32_t first = begin + warp_ * kProductTokens, end = row.start + row.num_tokens;
    is_group_there_ = first < end && first + kProductTokens > row.start;
    if (!is_group_there_) return;
    const uint32_t keys = args_.key_head(head_) * args_.key_dim;
#pragma unroll 2
    for (uint32_t i = 0; i < kProductTokens; ++i) {
      const bool is_there = first + i >= row.start && first + i < end;
      const uint32_t token = is_there ? row.token_first + first + i - row.start : 0, at = warp_ * kProductTokens + i;
      for (uint32_t key = lane_ * 4; key < kKeys; key += kWarp * 4) {
        const bool has_key = is_there && key < args_.key_dim;
        args_.copy_four(&tile.q[at][key], args_.q.of(token) + keys + key, has_key);
        args_.copy_four(&tile.k[at][key], args_.k.of(token) + keys + key, has_key);
      }
      const uint32_t value = lane_ * 4;
      if (value < kProductValues)
        args_.copy_four(&tile.v[at][value], args_.v.of(token) + head_ * args_.value_dim + first_value_ + value,
                        is_there && first_value_ + value < args_.value_dim);
    }
    copy_async_commit();
    const uint32_t position = first + lane_, token = row.token_first + position - row.start;
    is_token_there_ = lane_ < kProductTokens && position >= row.start && position < end;
    if (is_token_there_) {
      gate_ = args_.gate.of(token)[args_.gate_column(head_)] + dt_bias_;
      if constexpr (kDelta) beta_ = args_.strength.of(token)[args_.gate_column(head_)];
    }
  }

  // The factors of this warp's group.
  __device__ void end_tile(Shared& tile) {
    copy_async_wait<0>();
    if (!is_group_there_) return;
    GroupFactors& group = tile.groups[warp_];
    __syncwarp();
    multiply_tokens(tile, group);
    if (lane_ < kProductTokens) {
      const TokenGates gates = is_token_there_ ? token_gates<kDelta>(args_, gate_, beta_, a_) : TokenGates{1, 0};
      group.decays[lane_] = gates.decay;
      group.strength[lane_] = gates.strength;
    }
    __syncwarp();
    if (lane_ < kProductTokens) {
      const bool normalises = kDelta && args_.normalise;
      group.key[lane_] = normalises ? 1.0f / sqrtf(group.solved[lane_][lane_] + args_.eps) : 1.0f;
      group.query[lane_] = args_.scale * (normalises ? 1.0f / sqrtf(group.query[lane_] + args_.eps) : 1.0f);
    }
    __syncwarp();
    if (lane_ < kProductTokens) write_decays(group);
    write_columns(group);
    __syncwarp();
    if constexpr (kDelta) solve(group);
    __syncwarp();
  }
  // Products of all tokens' keys, and of queries with them; squares of queries.
  __device__ void multiply_tokens(const Shared& tile, GroupFactors& group) const {
    const uint32_t first = warp_ * kProductTokens + lane_ / 4;
    float keys[2][4] = {}, queries[2][4] = {}, squares[2] = {};
#pragma unroll 2
    for (int s = 0; s < kSteps; ++s) {
      const uint32_t at = s * 8 + lane_ % 4 * 2;
      const float2 k0 = two(&tile.k[first][at]), k1 = two(&tile.k[first + 8][at]);
      const float2 q0 = two(&tile.q[first][at]), q1 = two(&tile.q[first + 8][at]);
      squares[0] += q0.x * q0.x + q0.y * q0.y;
      squares[1] += q1.x * q1.x + q1.y * q1.y;
      const Halves<4> q = factor_of({q0.x, q0.y, q1.x, q1.y});
      const Halves<2> b[2] = {factor_of(k0.x, k0.y), factor_of(k1.x, k1.y)};
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        multiply_halves(queries[n], q, b[n]);
        if constexpr (kDelta) multiply_halves(keys[n], factor_of({k0.x, k0.y, k1.x, k1.y}), b[n]);
      }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t row = lane_ / 4 + i / 2 * 8;
        group.seen[row][token_of(n, i)] = queries[n][i];
        if constexpr (kDelta) group.solved[row][token_of(n, i)] = keys[n][i];
      }
      float square = squares[n] + __shfl_xor_sync(kFullMask, squares[n], 1);
      square += __shfl_xor_sync(kFullMask, square, 2);
      if (lane_ % 4 == 0) group.query[lane_ / 4 + n * 8] = square;
    }
  }
  __device__ static float2 two(const float* shared) {
    return *reinterpret_cast<const float2*>(shared);
  }

  // Lane i: what is left of the state at token i, and of its value behind the group.
  __device__ void write_decays(GroupFactors& group) const {
    float before = 1, behind = 1;
    for (uint32_t l = 0; l < kProductTokens; ++l) {
      if (l <= lane_)
        before *= group.decays[l];
      else
        behind *= group.decays[l];
    }
    group.known_state[lane_] = group.strength[lane_] * before * group.key[lane_];
    group.seen_state[lane_] = before * group.query[lane_];
    group.added[lane_] = behind * group.key[lane_];
    if (lane_ == kProductTokens - 1) group.decay = before;
  }
  // Lane j: column j of M; lane j + 16: of P.
  __device__ void write_columns(GroupFactors& group) const {
    const uint32_t j = lane_ % kProductTokens;
    const bool is_seen = lane_ >= kProductTokens;
    if (!kDelta && !is_seen) return;
    float left = group.key[j];
    for (uint32_t i = 0; i < kProductTokens; ++i) {
      if (i > j) left *= group.decays[i];
      float& number = is_seen ? group.seen[i][j] : group.solved[i][j];
      const float factor = is_seen ? group.query[i] : group.strength[i] * group.key[i];
      number = i > j || (is_seen && i == j) ? left * factor * number : 0.0f;
    }
  }
  // M becomes (I + M)^-1, lane j its column j.
  __device__ void solve(GroupFactors& group) const {
    float column[kProductTokens];
#pragma unroll
    for (int i = 0; i < kProductTokens; ++i) {
      float sum = 0;
#pragma unroll
      for (int l = 0; l < i; ++l) sum += group.solved[i][l] * column[l];
      column[i] = i == static_cast<int>(lane_) ? 1.0f : i > static_cast<int>(lane_) ? -sum : 0.0f;
    }
    __syncwarp();
    if (lane_ >= kProductTokens) return;
#pragma unroll
    for (int i = 0; i < kProductTokens; ++i) group.solved[i][lane_] = column[i];
  }

  __device__ void take_group(const RowRecord& row, uint32_t position, uint32_t first, const Shared& tile,
                             const GroupFactors& by, float* own) {
    float known[2][4] = {}, out[2][4] = {};
    read_state(first, tile, known, out);
    float input[2][4], value[2][4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t token = token_of(n, i);
        input[n][i] = tile.v[first + token][value_of(i / 2)];
        value[n][i] = by.strength[token] * input[n][i];
        if constexpr (kDelta) value[n][i] -= by.known_state[token] * known[n][i];
        out[n][i] *= by.seen_state[token];
      }
    }
    if constexpr (kDelta) {
      float solved[2][4] = {};
      multiply_group(value, by.solved, solved);
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) value[n][i] = solved[n][i];
    }
    multiply_group(value, by.seen, out);
    const uint32_t end = row.start + row.num_tokens;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (!kDelta && args_.d) out[n][i] += d_ * input[n][i];
    each_entry(out, [&](uint32_t token, uint32_t column, float number) {
      const uint32_t at = position + token;
      if (at < row.start || at >= end) return;
      const uint64_t of = row.token_first + at - row.start;
      args_.out[(of * args_.num_heads + head_) * args_.value_dim + first_value_ + column] = number;
    });
    if (own && position + kProductTokens > end)
      each_entry(value, [&](uint32_t token, uint32_t column, float number) {
        const uint32_t at = position + token;
        if (at >= row.start && at < end)
          args_.ring_in(own)[args_.ring.values(head_, at) + first_value_ + column] = by.key[token] * number;
      });
    add(value, first, tile, by);
  }
  // S^T k and S^T q of the group's tokens.
  __device__ void read_state(uint32_t first, const Shared& tile, float (&known)[2][4], float (&seen)[2][4]) const {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const Halves<4> state = factor_of(state_[s]);
      const uint32_t at = s * 8 + lane_ % 4 * 2;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const uint32_t token = first + n * 8 + lane_ / 4;
        const float2 q = two(&tile.q[token][at]);
        multiply_halves(seen[n], state, factor_of(q.x, q.y));
        if constexpr (kDelta) {
          const float2 k = two(&tile.k[token][at]);
          multiply_halves(known[n], state, factor_of(k.x, k.y));
        }
      }
    }
  }
  // sums += numbers by[token]^T; by is lower triangular.
  __device__ void multiply_group(const float (&numbers)[2][4], const float (&by)[kProductTokens][kProductTokens + 8],
                                 float (&sums)[2][4]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const Halves<4> a = factor_of(numbers[s]);
#pragma unroll
      for (int n = s; n < 2; ++n) {
        const float2 b = two(&by[n * 8 + lane_ / 4][s * 8 + lane_ % 4 * 2]);
        multiply_halves(sums[n], a, factor_of(b.x, b.y));
      }
    }
  }
  // S = decay S + K^T (added values).
  __device__ void add(const float (&values)[2][4], uint32_t first, const Shared& tile, const GroupFactors& by) {
    Halves<4> a[2];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float even = by.added[token_of(n, 0)], odd = by.added[token_of(n, 1)];
      a[n] = factor_of({values[n][0] * even, values[n][1] * odd, values[n][2] * even, values[n][3] * odd});
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) state_[s][i] *= by.decay;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const uint32_t token = first + token_of(n, 0), key = s * 8 + lane_ / 4;
        multiply_halves(state_[s], a[n], factor_of(tile.k[token][key], tile.k[token + 1][key]));
      }
    }
  }

  const WalkArgs& args_;
  Shared* tiles_;
  uint32_t warp_, lane_, head_, first_value_;
  bool is_group_there_ = false, is_token_there_ = false;
  float a_, dt_bias_, d_, gate_ = 0, beta_ = 0;
  float state_[kSteps][4];
};

}  // namespace llmrt::cuda
