// The walk of a block through the tokens of one row, for gated_delta and selective_scan (state_walk.cu): per head a
// state S [key_dim, value_dim] that decays, to which a token adds key value^T, and which its query reads.
//
// The state is in registers (state_lanes.cuh), read and written once a row. Where records have a ring, its entries are
// added to the state that is read, and the state is written at the row's last multiple of kRingTokens, which ends a
// tile.
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

#include "backends/cuda/ops/state_lanes.cuh"

namespace llmrt::cuda {

// What the tokens of a group do, beside the state.
template <int kGroup>
struct alignas(16) Coefficients {
  float known[kGroup][kGroup];  // [i][j], j < i: what d_j takes off d_i
  float seen[kGroup][kGroup];   // [i][j], j <= i: what d_j adds to the output of i
  float known_state[kGroup];    // what S^T k_i takes off d_i
  float seen_state[kGroup];     // what S^T q_i adds to the output of i
  float added[kGroup];          // what k_j d_j^T adds to S
  float strength[kGroup];
  float key[kGroup];  // what k_i is multiplied by to be normalised
  float decay;        // of S, by the whole group
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

template <bool kDelta, int kGroup, int kChunks>
class Walk : public WalkLanes<kChunks> {
  using Lanes = WalkLanes<kChunks>;

 public:
  static constexpr uint32_t kTileTokens = kWalkWarps * kGroup;
  static_assert(kStatePlaceTokens % kTileTokens == 0, "tiles end where states are saved");
  using Shared = Tile<kGroup, kChunks>;

  __device__ Walk(const WalkArgs& args, Shared* tiles, Products<kGroup>* products)
      : Lanes(args), tiles_(tiles), products_(products) {}

  // load() has the state of `source`, from which the row begins.
  __device__ void walk(const RowRecord& row, const float* source) {
    StateSaves saves(args_.states, row);
    const uint32_t end = row.start + row.num_tokens;
    uint32_t begin = row.start / kTileTokens * kTileTokens;
    uint32_t idx = 0;
    begin_tile(row, begin, tiles_[0]);
    order_loaded();
    if constexpr (kTileTokens == kRingTokens) {
      if (args_.has_ring) take_over(row, source);
    }
    end_tile(tiles_[0]);
    __syncthreads();
    for (; begin < end; begin += kTileTokens, idx ^= 1) {
      const bool has_more = begin + kTileTokens < end;
      if (has_more) begin_tile(row, begin + kTileTokens, tiles_[idx ^ 1]);
      if (has_warp_columns()) {
#pragma unroll 1
        for (uint32_t group = 0; group < kWalkWarps; ++group) {
          const uint32_t position = begin + group * kGroup;
          if (position < end && position + kGroup > row.start) take_group(row, position, group, tiles_[idx]);
        }
      }
      if (begin + kTileTokens == saves.position()) store(saves.take());
      if (args_.has_ring && begin + kTileTokens == end / kRingTokens * kRingTokens) store(args_.states.own(row));
      if (has_more) end_tile(tiles_[idx ^ 1]);
      __syncthreads();
    }
    if (!args_.has_ring) store(args_.states.own(row));
  }

 private:
  // The ring of the record that the row begins from, into the state. The second tile is free yet, and as long as a
  // ring.
  __device__ void take_over(const RowRecord& row, const float* source) {
    const uint32_t count = row.start % kRingTokens, base = row.start - count;
    float* own = args_.states.own(row);
    const bool leaves_source = own && source != own && (row.start + row.num_tokens) / kRingTokens * kRingTokens == base;
    if (leaves_source && base > 0) store(own);
    if (count == 0 || !source) return;
    Shared& tile = tiles_[1];
    copy_entries(source, row.start, tile.k, tile.v);
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    const float* ring = args_.ring_in(source);
    const float decay = lane_ < count ? ring[args_.ring.decay(head_, base + lane_)] : 1.0f;
    fold(left_of_entries(decay, count), count, tile.k, tile.v);
    if (leaves_source && has_own_value() && lane_ / 2 % 4 == 0)
      for (uint32_t i = 0; i < count; ++i)
        args_.ring_in(own)[args_.ring.values(head_, base + i) + first_value_ + own_value()] = tile.v[i][own_value()];
    __syncthreads();
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
        args_.copy_four(&tile.q[warp_ * kGroup + i][key], args_.q.of(token) + keys + key, has_key);
        args_.copy_four(&tile.k[warp_ * kGroup + i][key], args_.k.of(token) + keys + key, has_key);
      }
    }
    const uint32_t value_i = lane_ / 8, value = lane_ % 8 * 4;
    if (value_i < kGroup) {
      const bool is_there = first + value_i >= row.start && first + value_i < end;
      const uint32_t token = is_there ? row.token_first + first + value_i - row.start : 0;
      args_.copy_four(&tile.v[warp_ * kGroup + value_i][value],
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
      const TokenGates gates = is_token_there_ ? token_gates<kDelta>(args_, gate_, beta_, a_) : TokenGates{1, 0};
      decays[lane_] = gates.decay;
      group.strength[lane_] = gates.strength;
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
    else if (kind == 3) {
      group.key[i] = key_factor(products, i);
      if (i == 0) group.decay = decay_of(decays, 0, kGroup);
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
    const uint32_t value = own_value();
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
    const uint32_t end = row.start + row.num_tokens;
    if (is_writer && at >= row.start && at < end && has_own_value()) {
      const uint64_t token = row.token_first + at - row.start;
      args_.out[(token * args_.num_heads + head_) * args_.value_dim + first_value_ + value] = out;
      if (args_.has_ring && at >= end / kRingTokens * kRingTokens) leave_value(row, at, by.key[own], own, added);
    }
    add(by, added, tile, first);
  }
  // The entry of token `own` of the group, at position `at`.
  __device__ void leave_value(const RowRecord& row, uint32_t at, float key_factor, uint32_t own,
                              const float (&added)[kGroup]) const {
    float* record = args_.states.own(row);
    if (!record) return;
    float value = 0;
#pragma unroll
    for (int i = 0; i < kGroup; ++i)
      if (i == static_cast<int>(own)) value = added[i];
    args_.ring_in(record)[args_.ring.values(head_, at) + first_value_ + own_value()] = key_factor * value;
  }
  __device__ void add(const Coefficients<kGroup>& by, const float (&added)[kGroup], const Shared& tile,
                      uint32_t first) {
    decay_state(by.decay);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) add_to_state(tile.k[first + i], by.added[i] * added[i]);
  }

  using Lanes::a_, Lanes::args_, Lanes::d_, Lanes::dt_bias_, Lanes::first_value_, Lanes::head_, Lanes::lane_,
      Lanes::warp_;
  using Lanes::add_to_state, Lanes::copy_entries, Lanes::decay_state, Lanes::fold, Lanes::has_own_value,
      Lanes::has_warp_columns, Lanes::left_of_entries, Lanes::order_loaded, Lanes::own_value, Lanes::read_state,
      Lanes::store;

  Shared* tiles_;
  Products<kGroup>* products_;
  bool is_group_there_ = false, is_token_there_ = false;
  float gate_ = 0, beta_ = 0;
};

}  // namespace llmrt::cuda
