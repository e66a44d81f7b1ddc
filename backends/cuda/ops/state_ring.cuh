// The walk of a block through the tokens of one row whose record has a ring (core/ops/recurrent_ops.h), one token at a
// time, without touching the state between multiples of kRingTokens. With S the state behind the last of these, R_i
// what is left of entry i (the decays behind it), G of S:
//   d = strength (v - f (G S^T k + sum over entries i of R_i (k_i . k) d_i)) f     (scan: d = dt x; f normalises k)
//   out = scale (G S^T q + sum over entries i, the token's own included, of R_i (k_i . q) d_i)
// At a multiple of kRingTokens S becomes G S + sum of R_i k_i d_i^T.
//
// The state is in registers (state_lanes.cuh). Keys and values of entries are in shared memory: those before the row's
// first token come from the record, all under way before the kernel before has ended. A warp makes products of every
// fourth entry for the block; of the four lanes that share a value column, each sums every fourth entry. All sums in
// f32 and in an order that positions alone decide: a row's numbers are the same however it is cut.
#pragma once

#include "backends/cuda/ops/state_lanes.cuh"

namespace llmrt::cuda {

template <int kChunks>
struct alignas(16) RingTile {
  static constexpr int kKeys = 64 * kChunks;
  float keys[kRingTokens][kKeys];
  float values[kRingTokens][kBlockValues];
  float queries[2][kKeys];  // of a token, by turn
  float inputs[2][kBlockValues];
  float key_products[kRingTokens], query_products[kRingTokens];  // of the entries' keys with the token's
  float decays[kRingTokens];
};

template <bool kDelta, int kChunks>
class RingWalk : public WalkLanes<kChunks> {
  using Lanes = WalkLanes<kChunks>;

 public:
  using Shared = RingTile<kChunks>;
  static constexpr int kKeys = Lanes::kKeys;

  __device__ RingWalk(const WalkArgs& args, Shared* tile) : Lanes(args), tile_(*tile) {}

  // Begins to read what the row begins from.
  __device__ void load(const RowRecord& row, const float* source) {
    Lanes::load(row.start >= kRingTokens ? source : nullptr);
    const uint32_t count = row.start % kRingTokens;
    if (!source || count == 0) return;
    copy_entries(source, row.start, tile_.keys, tile_.values);
    if (threadIdx.x < count)
      tile_.decays[threadIdx.x] = args_.ring_in(source)[args_.ring.decay(head_, row.start - count + threadIdx.x)];
  }
  // Behind load().
  __device__ void walk(const RowRecord& row, const float* source) {
    StateSaves saves(args_.states, row);
    const uint32_t end = row.start + row.num_tokens;
    float* own = args_.states.own(row);
    begin_token(row, row.start);
    order_loaded();
    copy_async_wait<0>();
    __syncthreads();
    if (own && source != own) take_over(row, own);
    for (uint32_t position = row.start; position < end; ++position) {
      const uint32_t slot = position % kRingTokens;
      const bool is_last = slot == kRingTokens - 1;
      const TokenGates gates = token_gates<kDelta>(args_, gate_, beta_, a_);
      if (position > row.start) {
        copy_async_wait<0>();
        __syncthreads();
      }
      if (position + 1 < end && !is_last) begin_token(row, position + 1);
      const float query_factor = make_products(slot, position % 2);
      if (threadIdx.x == 0) tile_.decays[slot] = gates.decay;
      __syncthreads();
      const float left = left_of_entries(tile_.decays[lane_ % kRingTokens], slot + 1);
      take_token(row, position, gates, query_factor, left);
      if (own && position >= end / kRingTokens * kRingTokens) leave_entry(row, position, gates.decay, own);
      if (!is_last) continue;
      __syncwarp();
      fold(left, kRingTokens, tile_.keys, tile_.values);
      if (position + 1 == saves.position()) store(saves.take());
      if (position + 1 == end / kRingTokens * kRingTokens) store(own);
      __syncthreads();  // before the first entry's place is written again
      if (position + 1 < end) begin_token(row, position + 1);
    }
  }

 private:
  // A state and entries of another record, where the row adds to them alone.
  __device__ void take_over(const RowRecord& row, float* own) const {
    const uint32_t count = row.start % kRingTokens, base = row.start - count;
    if ((row.start + row.num_tokens) / kRingTokens * kRingTokens > base) return;
    if (base > 0) store(own);
    for (uint32_t i = 0; i < count; ++i) {
      leave_value(base + i, own);
      if (row.num_tokens <= kRingRowTokens) leave_shared(base + i, tile_.decays[i], own);
    }
  }
  __device__ void begin_token(const RowRecord& row, uint32_t position) {
    const uint32_t token = row.token_first + position - row.start, turn = position % 2;
    const uint32_t keys = args_.key_head(head_) * args_.key_dim, key = threadIdx.x % (kKeys / 4) * 4;
    const bool has_key = key < args_.key_dim;
    static_assert(kKeys / 2 <= static_cast<int>(kWalkThreads), "a thread copies four numbers of a key or a query");
    if (threadIdx.x < kKeys / 4)
      args_.copy_four(&tile_.keys[position % kRingTokens][key], args_.k.of(token) + keys + key, has_key);
    else if (threadIdx.x < kKeys / 2)
      args_.copy_four(&tile_.queries[turn][key], args_.q.of(token) + keys + key, has_key);
    const uint32_t value = threadIdx.x * 4;
    if (value < kBlockValues)
      args_.copy_four(&tile_.inputs[turn][value], args_.v.of(token) + head_ * args_.value_dim + first_value_ + value,
                      first_value_ + value < args_.value_dim);
    copy_async_commit();
    gate_ = args_.gate.of(token)[args_.gate_column(head_)] + dt_bias_;
    if constexpr (kDelta) beta_ = args_.strength.of(token)[args_.gate_column(head_)];
  }
  // This warp's share of the products of entries with the token's key and query. Returns what q is multiplied by.
  __device__ float make_products(uint32_t slot, uint32_t turn) {
    constexpr int kEach = kRingTokens / kWalkWarps;
    float sums[2 * kEach] = {}, square = 0;
#pragma unroll
    for (int key = static_cast<int>(lane_) * 4; key < kKeys; key += static_cast<int>(kWarp) * 4) {
      const float4 q4 = four(&tile_.queries[turn][key]), k4 = four(&tile_.keys[slot][key]);
      const float q[4] = {q4.x, q4.y, q4.z, q4.w}, k[4] = {k4.x, k4.y, k4.z, k4.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) square += q[j] * q[j];
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const uint32_t i = e * kWalkWarps + warp_;
        if (i > slot) continue;
        const float4 e4 = four(&tile_.keys[i][key]);
        const float entry[4] = {e4.x, e4.y, e4.z, e4.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sums[e] += entry[j] * k[j];
          sums[kEach + e] += entry[j] * q[j];
        }
      }
    }
    const float sum = scatter_sums(sums);
    if (lane_ < 2 * kEach) {
      const uint32_t i = lane_ % kEach * kWalkWarps + warp_;
      (lane_ < kEach ? tile_.key_products : tile_.query_products)[i] = sum;
    }
    if (!kDelta || !args_.normalise) return args_.scale;
    return args_.scale / sqrtf(warp_sum(square) + args_.eps);
  }
  // Sums over the four lanes of a column.
  __device__ static float sum_of_lanes(float part) {
    const float two = part + __shfl_xor_sync(kFullMask, part, 4);
    return two + __shfl_xor_sync(kFullMask, two, 2);
  }
  __device__ void take_token(const RowRecord& row, uint32_t position, const TokenGates& gates, float query_factor,
                             float left) {
    const uint32_t slot = position % kRingTokens, turn = position % 2, own = lane_ / 2 % 4, value = own_value();
    const float whole = __shfl_sync(kFullMask, left, static_cast<int>(kRingTokens));
    float sums[4];
    read_state(tile_.queries[turn], sums);
    float seen = whole * column_sum(sums), known = 0;
    if constexpr (kDelta) {
      read_state(tile_.keys[slot], sums);
      known = whole * column_sum(sums);
    }
#pragma unroll
    for (uint32_t e = 0; e < kRingTokens / 4; ++e) {
      const uint32_t i = e * 4 + own;
      const float left_of = __shfl_sync(kFullMask, left, static_cast<int>(i));
      if (i >= slot) continue;  // what a record has there is not read
      const float entry = left_of * tile_.values[i][value];
      seen += tile_.query_products[i] * entry;
      if constexpr (kDelta) known += tile_.key_products[i] * entry;
    }
    const float input = tile_.inputs[turn][value];
    float added = gates.strength * input;
    if constexpr (kDelta) {
      const float square = tile_.key_products[slot];
      const float factor = args_.normalise ? 1.0f / sqrtf(square + args_.eps) : 1.0f;
      added = gates.strength * (input - factor * sum_of_lanes(known)) * factor;
    }
    float out = query_factor * (sum_of_lanes(seen) + tile_.query_products[slot] * added);
    if (!kDelta && args_.d) out += d_ * input;
    if (own == 0) tile_.values[slot][value] = added;
    if (own > 0 || !has_own_value()) return;
    const uint64_t token = row.token_first + position - row.start;
    args_.out[(token * args_.num_heads + head_) * args_.value_dim + first_value_ + value] = out;
  }
  __device__ void leave_entry(const RowRecord& row, uint32_t position, float decay, float* own) const {
    leave_value(position, own);
    if (row.num_tokens <= kRingRowTokens) leave_shared(position, decay, own);
  }
  // By the lane that wrote it.
  __device__ void leave_value(uint32_t position, float* own) const {
    if (lane_ / 2 % 4 == 0 && has_own_value())
      args_.ring_in(own)[args_.ring.values(head_, position) + first_value_ + own_value()] =
          tile_.values[position % kRingTokens][own_value()];
  }
  // What several blocks have.
  __device__ void leave_shared(uint32_t position, float decay, float* own) const {
    if (first_value_ > 0) return;
    if (threadIdx.x == 0) args_.ring_in(own)[args_.ring.decay(head_, position)] = decay;
    const uint32_t key = threadIdx.x * 4;
    if (key < args_.key_dim && args_.has_first_key(head_))
      *reinterpret_cast<float4*>(args_.ring_in(own) + args_.ring.keys(args_.key_head(head_), position) + key) =
          four(&tile_.keys[position % kRingTokens][key]);
  }

  using Lanes::a_, Lanes::args_, Lanes::d_, Lanes::dt_bias_, Lanes::first_value_, Lanes::head_, Lanes::lane_,
      Lanes::warp_;
  using Lanes::copy_entries, Lanes::fold, Lanes::four, Lanes::has_own_value, Lanes::left_of_entries,
      Lanes::order_loaded, Lanes::own_value, Lanes::read_state, Lanes::store;

  Shared& tile_;
  float gate_ = 0, beta_ = 0;
};

}  // namespace llmrt::cuda
