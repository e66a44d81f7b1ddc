// paged_attention for query tokens that come alone, for compute capability 9.0: what attention_decode.cu does, with
// keys and values on their way to shared memory far ahead of the products, also across works.
//
// A block takes (item, KV head, some of its rows) from a persistent grid. One warp copies tiles of 16 keys
// and their values to a ring in shared memory, work after work; four others take the tiles of a work in turn, each with
// a running softmax of its own. Barriers in shared memory say that a slot is full or free. Scores are keys * queries^T
// and outputs values^T * weights^T, so that 16 keys or dims by 8 rows are a product. Products in f16 with f32 sums,
// softmax in f32. The last block to end of a query token's splits merges them, in their order.
//
// A row is a query head of the group; in lists with runs, whose items may have several tokens, a token and a head,
// tokens first. Then a work has up to 16 rows, which share every key and value that is read. A row's sums and their
// order are those that it has where its token is an item by itself: warps take the same tiles, the tiles that a token
// does not see change nothing, and whatever could be contracted to other roundings is written out.
//
// Keys that earlier steps have written are copied ahead of the wait for the kernel before this one: between two steps
// their inputs are copied, which nothing overtakes; the kernels that change block tables or move blocks let no other
// start before they end; and the step's own tokens are written to places that no row reads below its start. Behind the
// prompt kernel of the same step, which lets this one start when the step's keys are there, all is read at once, so
// that blocks begin as the prompt kernel's end; for the kernels behind they wait for its last one at their own end.
//
// Lane 4 * g + t. Of 8 rows, it has of scores keys g and g + 8 and rows 2t and 2t + 1; of queries, words of 8 dims of
// row g; of keys, the same words of keys g and g + 8; of values, words of keys 2t, 2t + 1, 2t + 8 and 2t + 9; of
// outputs, the dims of the same words and rows 2t and 2t + 1.
#pragma once

#include "backends/cuda/arrival.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/attention.h"
#include "backends/cuda/ops/attention_merge.cuh"
#include "backends/cuda/step_inputs.cuh"
#include "backends/cuda/warpgroup.cuh"

namespace llmrt::cuda::decode_ring {

inline constexpr uint32_t kWarps = 4, kThreads = kWarps * kWarp;  // that multiply
// A warp takes some 500 cycles for a copy. Where that is enough the other warp's registers are the next kernel's.
template <KvDType D>
inline constexpr uint32_t kCopyWarps = kKvBytes<D> == 1 ? 2 : 1;
// Rows of a work in eights. With runs two, for which wide heads have no registers.
template <int kDims, bool kHasRuns>
inline constexpr uint32_t kEights = kHasRuns&& kDims <= 128 ? 2 : 1;
inline constexpr uint32_t kTileKeys = 16;
inline constexpr uint32_t kSmRingBytes = 128 << 10;  // of a multiprocessor, scales aside
inline constexpr uint32_t kBlocksPerSm = 2;
inline constexpr uint32_t kSlotAlignment =
    1024;  // of values that are woven; dynamic shared memory need not begin there

template <KvDType D, int kDims, bool kHasRuns>
struct Ring {
  static constexpr uint32_t kRows = 8 * kEights<kDims, kHasRuns>;
  static constexpr uint32_t kPart = kTileKeys * kDims * kKvBytes<D>;
  static constexpr uint32_t kPadding = 4;  // floats behind a row of results, so that neighbours use other banks
  static constexpr uint32_t kSlots = kSmRingBytes / kBlocksPerSm / (2 * kPart);
  // A warp waits for its tiles' slots in turn, and barriers know the phase before theirs alone: the warps that share a
  // slot must not be a round apart.
  static_assert(kSlots % kWarps == 0 && kSlots % kCopyWarps<D> == 0);
  static_assert(kPart % kSlotAlignment == 0);
  static constexpr uint32_t kScales = kBlockScales<D>    ? kTileKeys * kDims / kKvScaleBlock
                                      : kVectorScales<D> ? kTileKeys
                                                         : 4;
  uint8_t keys[kSlots][kPart], values[kSlots][kPart];
  float key_scales[kSlots][kScales], value_scales[kSlots][kScales];
  alignas(16) float results[kWarps][kRows][kDims + kPadding];
  float maxima[kWarps][kRows], sums[kWarps][kRows];
  uint64_t full[kSlots], free[kSlots];
  uint32_t is_last;  // of the blocks that make a token's splits
};

// Four lanes read the same word of different values at a time. Values of 16-bit numbers stand as copies of a RowMap
// leave them, 64 dims of 16 keys and then the next 64, words in places that depend on the key, so that those lie in
// different banks.
template <KvDType D, int kDims>
inline constexpr bool kWeaves = kKvBytes<D> == 2 && kDims <= 128;
template <KvDType D, int kDims>
__host__ __device__ bool is_woven(const KvLayer& kv) {
  return kWeaves<D, kDims> && kv.head_dim == kDims;
}
// In words.
__device__ inline uint32_t woven_place(uint32_t key, uint32_t word) {
  return word / 8 * (kTileKeys * 8) + key * 8 + (word % 8 ^ key % 8);
}

// A barrier of the warps that multiply.
__device__ inline void warps_meet() {
  named_barrier_wait(1, kThreads);
}

// Tiles of a work's rows are neighbours. With runs all first tiles come first, as the others are nearly all empty:
// those of items whose tokens have fewer rows than the longest runs would.
template <bool kHasRuns, uint32_t kRows>
struct Works {
  static constexpr uint32_t kTokens = kHasRuns ? kDecodeItemTokens : 1;
  const AttentionItem* items;
  uint32_t num_items, num_kv_heads, group_heads, row_tiles, count;

  __device__ explicit Works(const AttentionArgs& args)
      : items(input_array<AttentionItem>(args.inputs, kFwdDecodeItems)),
        num_items(args.inputs[kFwdNumDecodeItems]),
        num_kv_heads(args.kv.num_kv_heads),
        group_heads(args.num_heads / num_kv_heads),
        row_tiles((kTokens * group_heads + kRows - 1) / kRows),
        count(num_items * num_kv_heads * row_tiles) {}
  __device__ AttentionItem item(uint32_t work) const {
    return items[kHasRuns ? work / num_kv_heads % num_items : work / (num_kv_heads * row_tiles)];
  }
  __device__ uint32_t kv_head(uint32_t work) const { return (kHasRuns ? work : work / row_tiles) % num_kv_heads; }
  __device__ uint32_t row_tile(uint32_t work) const {
    return kHasRuns ? work / (num_kv_heads * num_items) : work % row_tiles;
  }
  __device__ uint32_t row_first(uint32_t work) const { return row_tile(work) * kRows; }
  // Rows of the item from `row_first` on, at most kRows; 0: the work is empty.
  __device__ uint32_t num_rows(const AttentionItem& item, uint32_t work) const {
    const uint32_t rows = (kHasRuns ? item.num_tokens : 1) * group_heads, first = row_first(work);
    return first < rows ? min(kRows, rows - first) : 0;
  }
  // Counts the splits of what the work merges.
  __device__ uint32_t counter(const AttentionItem& item, uint32_t work) const {
    return (item.merge_idx * num_kv_heads + kv_head(work)) * row_tiles + row_tile(work);
  }
};

// A row of a work: which token of the item and which head of all.
struct RowOf {
  uint32_t token, head;
};
template <bool kHasRuns>
__device__ RowOf row_of(uint32_t row, uint32_t group_heads, uint32_t kv_head) {
  if (!kHasRuns) return {0, kv_head * group_heads + row};
  return {row / group_heads, kv_head * group_heads + row % group_heads};
}

__device__ inline uint32_t tile_first(const AttentionItem& item) {
  return item.key_begin / kTileKeys;
}
__device__ inline uint32_t tile_end(const AttentionItem& item) {
  return (item.key_end + kTileKeys - 1) / kTileKeys;
}

// ---- copying -------------------------------------------------------------------------------------------------------

template <KvDType D, int kDims, bool kHasRuns>
struct Copier {
  using RingOf = Ring<D, kDims, kHasRuns>;
  using WorksOf = Works<kHasRuns, RingOf::kRows>;
  const AttentionArgs& args;
  const RowMap& values;
  RingOf& ring;
  const uint32_t which;  // of the warps that copy: they take tiles in turn
  const uint32_t lane = threadIdx.x % kWarp;
  uint32_t num_tiles = 0;
  bool has_waited;

  // Up to 32 tiles of a work from tile `begin` on; lane i knows where the keys of the i-th lie.
  struct Run {
    uint32_t begin, end, vector, settled;
  };
  __device__ Run find(const AttentionItem& item, uint32_t kv_head, uint32_t begin) const {
    Run run{begin, min(begin + kWarp, tile_end(item)), 0, 0};
    if (!has_waited) {
      const uint32_t row = input_array<uint32_t>(args.inputs, kFwdTokenRows)[item.token_first];
      run.settled = input_array<RowRecord>(args.inputs, kFwdRows)[row].start;
    }
    const uint32_t key = (begin + lane) * kTileKeys, entry = key >> args.kv.block_shift;
    if (begin + lane >= run.end || entry >= args.kv.blocks_row_max) return run;
    // Past the L1, which may be older than the tables. The host asks for no keys without a block; memory stays whole
    // whatever comes.
    const int32_t block = __ldcg(args.kv.tables + uint64_t{item.slot} * args.kv.blocks_row_max + entry);
    run.vector = static_cast<uint32_t>(max(args.kv.vector_in(block, key, 0, kv_head), int64_t{0}));
    return run;
  }

  __device__ void copy(const Run& run) {
    const KvLayer& kv = args.kv;
    const uint32_t part = kTileKeys * kv.head_dim * kKvBytes<D>, scales = kTileKeys * scales_of_vector<D>(kv);
    const bool has_scales = kKvBytes<D> == 1 && kv.scales;
    for (uint32_t tile = run.begin; tile < run.end; ++tile, ++num_tiles) {
      if (num_tiles % kCopyWarps<D> != which) continue;
      const uint32_t vector = __shfl_sync(kFullMask, run.vector, tile - run.begin);
      if (!has_waited && (tile + 1) * kTileKeys > run.settled) {
        grid_dependency_wait_alone();
        has_waited = true;
      }
      const uint32_t slot = num_tiles % ring.kSlots;
      barrier_wait(&ring.free[slot], ~(num_tiles / ring.kSlots) & 1);
      if (lane != 0) continue;
      const uint64_t key = vector, value = key + (uint64_t{kv.num_kv_heads} << kv.block_shift);
      uint64_t* full = &ring.full[slot];
      barrier_arrive_for_bytes(full, 2 * (part + (has_scales ? scales * 4 : 0)));
      copy_bytes(ring.keys[slot], kv.data + key * kv.head_dim * kKvBytes<D>, part, full);
      if (!is_woven<D, kDims>(kv))
        copy_bytes(ring.values[slot], kv.data + value * kv.head_dim * kKvBytes<D>, part, full);
      else if constexpr (kDims == 64)
        copy_rows<1>(ring.values[slot], values, 0, static_cast<uint32_t>(value), full);
      else
        copy_boxes(ring.values[slot], values, 0, static_cast<uint32_t>(value), full);
      if (!has_scales) continue;
      copy_bytes(ring.key_scales[slot], kv.scales + key * scales_of_vector<D>(kv), scales * 4, full);
      copy_bytes(ring.value_scales[slot], kv.scales + value * scales_of_vector<D>(kv), scales * 4, full);
    }
  }

  // Items are read two works ahead of their copies, block tables one run ahead.
  __device__ void run(const WorksOf& works) {
    uint32_t work = blockIdx.x;
    if (work >= works.count) return;
    const auto item_of = [&](uint32_t i) { return works.item(min(i, works.count - 1)); };
    AttentionItem item = item_of(work), next_item = item_of(work + gridDim.x);
    const auto go_on = [&] {
      work += gridDim.x;
      item = next_item;
      next_item = item_of(work + gridDim.x);
    };
    const auto skip_empty = [&] {
      while (kHasRuns && work < works.count && works.num_rows(item, work) == 0) go_on();
    };
    skip_empty();
    Run now{};
    if (work < works.count) now = find(item, works.kv_head(work), tile_first(item));
    while (work < works.count) {
      Run next = now;
      if (now.end < tile_end(item)) {
        next = find(item, works.kv_head(work), now.end);
      } else {
        go_on();
        skip_empty();
        if (work < works.count) next = find(item, works.kv_head(work), tile_first(item));
      }
      copy(now);
      now = next;
    }
  }
};

// ---- multiplying ---------------------------------------------------------------------------------------------------

// The lane's i-th word of a query or key, and its h-th word of a value. Words of bytes are read in pairs.
template <KvDType D>
__device__ uint32_t key_word(uint32_t i) {
  const uint32_t t = threadIdx.x % 4;
  return kKvBytes<D> == 1 ? i / 2 * 8 + t * 2 + i % 2 : i * 4 + t;
}
template <KvDType D, int kDims>
__device__ uint32_t value_word(uint32_t h) {
  const uint32_t g = threadIdx.x % kWarp / 4;
  return kKvBytes<D> == 1 && kDims > 64 ? h / 2 * 16 + g * 2 + h % 2 : h * 8 + g;
}

// Words [0, kCount) of a vector, `word(i)` saying which; in pairs where they follow each other.
template <KvDType D, uint32_t kCount, class WordOf>
__device__ void load_words(KvWord<D> (&words)[kCount], const uint8_t* vector, const float* scales, WordOf word) {
  if constexpr (kKvBytes<D> == 1 && kCount % 2 == 0) {
#pragma unroll
    for (uint32_t i = 0; i < kCount; i += 2) {
      const uint4 pair = *reinterpret_cast<const uint4*>(vector + word(i) * 8);
      words[i].bits = {pair.x, pair.y};
      words[i + 1].bits = {pair.z, pair.w};
      if constexpr (kBlockScales<D>)
        words[i].factor = words[i + 1].factor = scales[word(i) / (kKvScaleBlock / 8)] * kKvUnit<D>;
    }
  } else {
#pragma unroll
    for (uint32_t i = 0; i < kCount; ++i) words[i] = load_word<D>(vector, word(i), word(i), scales);
  }
}

// One warp's part of a work.
template <KvDType D, int kDims, bool kHasRuns>
struct Warp {
  using RingOf = Ring<D, kDims, kHasRuns>;
  static constexpr uint32_t kKeyWords = kDims / 32, kHalves = kDims / 64,
                            kEights = decode_ring::kEights<kDims, kHasRuns>;
  static constexpr uint32_t kKeysAtOnce = kKeyWords < 4 ? kKeyWords : 4;  // for want of registers
  static constexpr uint32_t kValuesAtOnce = kHalves < 2 ? kHalves : 2;
  using Scores = float[kEights][4];  // of keys g and g + 8, two rows each

  const AttentionArgs& args;
  const uint32_t lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  uint32_t query[kEights][kKeyWords][4];
  float out[kEights][kHalves][4][4];           // [][][j]: dims 2j and 2j + 1 of the word by two rows
  float largest[kEights][2], sum[kEights][2];  // of rows 2t and 2t + 1; the sum is this lane's part
  uint32_t row_first = 0;                      // of the item

  // Rows [first, + num_rows) of the item. Rows and dims that are not there are zeros.
  __device__ void begin(const AttentionItem& item, uint32_t kv_head, uint32_t first, uint32_t num_rows) {
    const uint32_t group_heads = args.num_heads / args.kv.num_kv_heads;
    row_first = first;
#pragma unroll
    for (uint32_t e = 0; e < kEights; ++e) {
      const RowOf row = row_of<kHasRuns>(row_first + e * 8 + g, group_heads, kv_head);
      const float* head =
          args.qkv + uint64_t{item.token_first + row.token} * args.qkv_columns + row.head * args.head_dim;
#pragma unroll
      for (uint32_t i = 0; i < kKeyWords; ++i) {
        const uint32_t word = key_word<D>(i);
        float4 a = {}, b = {};
        if (e * 8 + g < num_rows && word * 8 < args.head_dim) {
          a = reinterpret_cast<const float4*>(head)[word * 2];
          b = reinterpret_cast<const float4*>(head)[word * 2 + 1];
        }
        query[e][i][0] = half2_bits(__floats2half2_rn(a.x, a.y));
        query[e][i][1] = half2_bits(__floats2half2_rn(a.z, a.w));
        query[e][i][2] = half2_bits(__floats2half2_rn(b.x, b.y));
        query[e][i][3] = half2_bits(__floats2half2_rn(b.z, b.w));
      }
#pragma unroll
      for (uint32_t h = 0; h < kHalves; ++h)
#pragma unroll
        for (uint32_t j = 0; j < 4; ++j) out[e][h][j][0] = out[e][h][j][1] = out[e][h][j][2] = out[e][h][j][3] = 0;
      largest[e][0] = largest[e][1] = -INFINITY;
      sum[e][0] = sum[e][1] = 0;
    }
  }

  template <bool kIsWhole>
  __device__ void score(Scores& s, const uint8_t* keys, const float* scales) const {
    const uint32_t num_words = args.head_dim / 8, vector_bytes = (kIsWhole ? kDims : args.head_dim) * kKvBytes<D>;
    Scores other = {};  // half of the products: each waits for the one before
#pragma unroll
    for (uint32_t first = 0; first < kKeyWords; first += kKeysAtOnce) {
      KvWord<D> words[2][kKeysAtOnce];
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half)
        load_words(words[half], keys + (g + half * 8) * vector_bytes,
                   scales + (g + half * 8) * scales_of_vector<D>(args.kv),
                   [&](uint32_t i) { return key_word<D>(first + i); });
#pragma unroll
      for (uint32_t i = 0; i < kKeysAtOnce; ++i) {
        uint32_t upper[4], lower[4];
        decode_word<D>(words[0][i], upper);
        decode_word<D>(words[1][i], lower);
        if (!kIsWhole && key_word<D>(first + i) >= num_words) {  // what lies there need not be a number
#pragma unroll
          for (uint32_t j = 0; j < 4; ++j) upper[j] = lower[j] = 0;
        }
#pragma unroll
        for (uint32_t e = 0; e < kEights; ++e) {
          const uint32_t(&q)[4] = query[e][first + i];
          mma_16x8x16(s[e], {upper[0], lower[0], upper[1], lower[1]}, {q[0], q[1]});
          mma_16x8x16(other[e], {upper[2], lower[2], upper[3], lower[3]}, {q[2], q[3]});
        }
      }
    }
#pragma unroll
    for (uint32_t e = 0; e < kEights; ++e)
#pragma unroll
      for (uint32_t c = 0; c < 4; ++c) s[e][c] += other[e][c];
  }

  // Scores of eight rows become weights; what is summed so far is rescaled to the new maximum.
  __device__ void weigh(float (&s)[4], uint32_t e) {
    float factor[2];
#pragma unroll
    for (uint32_t c = 0; c < 2; ++c) {
      float most = fmaxf(s[c], s[c + 2]);
#pragma unroll
      for (uint32_t step = 4; step < kWarp; step *= 2) most = fmaxf(most, __shfl_xor_sync(kFullMask, most, step));
      most = fmaxf(largest[e][c], most);
      const float base = most == -INFINITY ? 0.0f : most;  // nothing seen yet: weights are exp2(-inf) = 0
      factor[c] = exp2_fast(largest[e][c] - base);
      largest[e][c] = most;
      s[c] = exp2_fast(__fadd_rn(s[c], -base));
      s[c + 2] = exp2_fast(__fadd_rn(s[c + 2], -base));
      sum[e][c] = fmaf(sum[e][c], factor[c], s[c]) + s[c + 2];
    }
    if (!__any_sync(kFullMask, factor[0] != 1.0f || factor[1] != 1.0f)) return;
#pragma unroll
    for (uint32_t h = 0; h < kHalves; ++h)
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j)
#pragma unroll
        for (uint32_t c = 0; c < 4; ++c) out[e][h][j][c] *= factor[c % 2];
  }

  __device__ void attend(const RingOf& ring, uint32_t slot, const AttentionItem& item, uint32_t key_first) {
    const ScoreRule rule{item.key_begin, item.key_end, args.window, args.scale, args.soft_cap};
    const uint32_t position_last = item.position_first + (kHasRuns ? item.num_tokens - 1 : 0);
    if (args.head_dim == kDims && rule.sees(key_first, position_last) &&
        rule.sees(key_first + kTileKeys - 1, item.position_first))
      attend_tile<true>(ring, slot, item, key_first, rule);
    else
      attend_tile<false>(ring, slot, item, key_first, rule);
  }

  // Which token of the item rows 2t and 2t + 1 of an eight are, and where it stands.
  __device__ uint32_t token(const AttentionItem& item, uint32_t e, uint32_t c) const {
    if (!kHasRuns) return 0;
    return min((row_first + e * 8 + 2 * t + c) / (args.num_heads / args.kv.num_kv_heads), item.num_tokens - 1);
  }
  __device__ uint32_t position(const AttentionItem& item, uint32_t e, uint32_t c) const {
    return item.position_first + token(item, e, c);
  }

  // kIsWhole: every key is seen, by all tokens, and has kDims dims.
  template <bool kIsWhole>
  __device__ void attend_tile(const RingOf& ring, uint32_t slot, const AttentionItem& item, uint32_t key_first,
                              const ScoreRule& rule) {
    const float *key_scales = ring.key_scales[slot], *value_scales = ring.value_scales[slot];
    Scores s = {};
    score<kIsWhole>(s, ring.keys[slot], key_scales);
    uint32_t weights[kEights][2];
#pragma unroll
    for (uint32_t e = 0; e < kEights; ++e) {
      if constexpr (kVectorScales<D>) {
#pragma unroll
        for (uint32_t c = 0; c < 4; ++c) s[e][c] *= (args.kv.scales ? key_scales[g + c / 2 * 8] : 1.0f) * kKvUnit<D>;
      }
      if (args.soft_cap > 0) {
#pragma unroll
        for (float& x : s[e]) x = rule.score(x);
      } else {
#pragma unroll
        for (float& x : s[e]) x *= args.scale * kLog2E;
      }
      if (!kIsWhole) {
#pragma unroll
        for (uint32_t c = 0; c < 4; ++c)
          if (!rule.sees(key_first + g + c / 2 * 8, position(item, e, c % 2))) s[e][c] = -INFINITY;
      }
      weigh(s[e], e);
      if constexpr (kVectorScales<D>) {
#pragma unroll
        for (uint32_t c = 0; c < 4; ++c) {
          // Where there is no key no number need be.
          const uint32_t key = key_first + g + c / 2 * 8;
          const bool is_key = kIsWhole || (kHasRuns ? rule.sees(key, position(item, e, c % 2)) : key < item.key_end);
          const float scale = args.kv.scales ? value_scales[g + c / 2 * 8] : args.kv.value_scale;
          s[e][c] *= is_key ? scale * (kKvUnit<D> * kValueGain<D>) : 0.0f;
        }
      }
      weights[e][0] = transpose_8x8(half2_bits(__floats2half2_rn(s[e][0], s[e][1])));
      weights[e][1] = transpose_8x8(half2_bits(__floats2half2_rn(s[e][2], s[e][3])));
    }
    if (!kHasRuns || kIsWhole) {
      add_values<kIsWhole, false>(ring, slot, item, key_first, rule, weights, 0);
    } else {
      // Values that a token does not see must be no numbers of its sums, and need not be finite.
      for (uint32_t token = 0; token < item.num_tokens; ++token)
        add_values<false, true>(ring, slot, item, key_first, rule, weights, token);
    }
  }

  // kOneToken: to the sums of the rows of that token of the item alone, else to all.
  template <bool kIsWhole, bool kOneToken>
  __device__ void add_values(const RingOf& ring, uint32_t slot, const AttentionItem& item, uint32_t key_first,
                             const ScoreRule& rule, const uint32_t (&weights)[kEights][2], uint32_t token) {
    const uint32_t vector_bytes = (kIsWhole ? kDims : args.head_dim) * kKvBytes<D>;
#pragma unroll
    for (uint32_t first = 0; first < kHalves; first += kValuesAtOnce) {
      KvWord<D> words[4][kValuesAtOnce];
#pragma unroll
      for (uint32_t n = 0; n < 4; ++n) {
        const uint32_t key = 2 * t + n % 2 + n / 2 * 8;
        if (kWeaves<D, kDims> && (kIsWhole || is_woven<D, kDims>(args.kv))) {
#pragma unroll
          for (uint32_t h = 0; h < kValuesAtOnce; ++h) {
            const uint32_t word = value_word<D, kDims>(first + h);
            words[n][h] = load_word<D>(ring.values[slot], woven_place(key, word), word, nullptr);
          }
        } else {
          load_words(words[n], ring.values[slot] + key * vector_bytes,
                     ring.value_scales[slot] + key * scales_of_vector<D>(args.kv),
                     [&](uint32_t h) { return value_word<D, kDims>(first + h); });
        }
        if constexpr (!kIsWhole) {
          const bool is_seen = rule.sees(key_first + key, item.position_first + token);
#pragma unroll
          for (KvWord<D>& word : words[n])
            if (!is_seen) word = {};
        }
      }
#pragma unroll
      for (uint32_t h = 0; h < kValuesAtOnce; ++h) {
        uint32_t numbers[4][4];
#pragma unroll
        for (uint32_t n = 0; n < 4; ++n) decode_word<D>(words[n][h], numbers[n]);
#pragma unroll
        for (uint32_t j = 0; j < 4; ++j) {
          const auto pick = [&](uint32_t n, uint32_t which) {  // a dim of two keys side by side
            return __byte_perm(numbers[n][j], numbers[n + 1][j], which);
          };
          const uint32_t dims[4] = {pick(0, 0x5410), pick(0, 0x7632), pick(2, 0x5410), pick(2, 0x7632)};
#pragma unroll
          for (uint32_t e = 0; e < kEights; ++e) {
            float(&sums)[4] = out[e][first + h][j];
            if constexpr (kOneToken) {
              const uint32_t token_of_row[2] = {this->token(item, e, 0), this->token(item, e, 1)};
              float both[4] = {sums[0], sums[1], sums[2], sums[3]};
              mma_16x8x16(both, dims, weights[e]);
#pragma unroll
              for (uint32_t c = 0; c < 4; ++c) sums[c] = token_of_row[c % 2] == token ? both[c] : sums[c];
            } else {
              mma_16x8x16(sums, dims, weights[e]);
            }
          }
        }
      }
    }
  }

  __device__ void store(RingOf& ring, uint32_t num_rows) {
    const uint32_t warp = threadIdx.x / kWarp;
#pragma unroll
    for (uint32_t e = 0; e < kEights; ++e) {
#pragma unroll
      for (uint32_t c = 0; c < 2; ++c) {
#pragma unroll
        for (uint32_t step = 4; step < kWarp; step *= 2) sum[e][c] += __shfl_xor_sync(kFullMask, sum[e][c], step);
        const uint32_t row = e * 8 + 2 * t + c;
        if (row >= num_rows) continue;
        if (g == 0) {
          ring.maxima[warp][row] = largest[e][c];
          ring.sums[warp][row] = sum[e][c];
        }
#pragma unroll
        for (uint32_t h = 0; h < kHalves; ++h) {
          const float(&o)[4][4] = out[e][h];
          float4* target = reinterpret_cast<float4*>(ring.results[warp][row] + value_word<D, kDims>(h) * 8);
          target[0] = {o[0][c], o[0][c + 2], o[1][c], o[1][c + 2]};
          target[1] = {o[2][c], o[2][c + 2], o[3][c], o[3][c + 2]};
        }
      }
    }
  }
};

// The warps' results become output, or a partial result.
template <KvDType D, int kDims, bool kHasRuns>
__device__ void write_rows(const Ring<D, kDims, kHasRuns>& ring, const AttentionArgs& args, const AttentionItem& item,
                           uint32_t kv_head, uint32_t row_first, uint32_t num_rows) {
  const uint32_t words = args.head_dim / 4, group_heads = args.num_heads / args.kv.num_kv_heads;
  uint32_t splits = 0;  // from a token's partial results to the next one's
  if (kHasRuns && item.partial >= 0)
    splits = input_array<MergeItem>(args.inputs, kFwdMerges)[item.merge_idx].num_partials;
  for (uint32_t i = threadIdx.x; i < num_rows * words; i += kThreads) {
    const uint32_t row = i / words, dim = i % words * 4;
    const auto [token, head] = row_of<kHasRuns>(row_first + row, group_heads, kv_head);
    float most = -INFINITY, sum = 0, out[4] = {};
    for (uint32_t w = 0; w < kWarps; ++w) most = fmaxf(most, ring.maxima[w][row]);
    const float base = most == -INFINITY ? 0.0f : most;
    for (uint32_t w = 0; w < kWarps; ++w) {
      const float factor = exp2f(ring.maxima[w][row] - base);
      const float4 v = *reinterpret_cast<const float4*>(ring.results[w][row] + dim);
      sum = fmaf(factor, ring.sums[w][row], sum);
      out[0] = fmaf(factor, v.x, out[0]);
      out[1] = fmaf(factor, v.y, out[1]);
      out[2] = fmaf(factor, v.z, out[2]);
      out[3] = fmaf(factor, v.w, out[3]);
    }
    if (item.partial < 0) {
      sum = sum > 0 ? sum + sink_weight(args, head, most) : sum;
      const float inverse = sum > 0 ? 1.0f / (sum * kValueGain<D>) : sum;  // a NaN stays one
      const uint64_t target = (uint64_t{item.token_first + token} * args.num_heads + head) * args.head_dim + dim;
      store_two(args.out, args.out_dtype, target, out[0] * inverse, out[1] * inverse);
      store_two(args.out, args.out_dtype, target + 2, out[2] * inverse, out[3] * inverse);
      continue;
    }
    const uint64_t partial = uint64_t{static_cast<uint32_t>(item.partial) + token * splits} * args.num_heads + head;
    constexpr float kInverseGain = 1.0f / kValueGain<D>;
    *reinterpret_cast<float4*>(args.partial_values + partial * args.head_dim + dim) = {
        out[0] * kInverseGain, out[1] * kInverseGain, out[2] * kInverseGain, out[3] * kInverseGain};
    if (dim == 0) *reinterpret_cast<float2*>(args.partial_sums + partial * 2) = {most, sum};
  }
}

// ---- merging -------------------------------------------------------------------------------------------------------

// Rows of tokens whose splits have all been written.
template <bool kHasRuns>
__device__ void merge_rows(const AttentionArgs& args, const MergeItem* merges, uint32_t kv_head, uint32_t row_first,
                           uint32_t num_rows) {
  constexpr uint32_t kAtOnce = 8;
  const uint32_t words = args.head_dim / 4, group_heads = args.num_heads / args.kv.num_kv_heads;
  MergeItem merge = merges[0];
  for (uint32_t i = threadIdx.x; i < num_rows * words; i += kThreads) {
    const RowOf row = row_of<kHasRuns>(row_first + i / words, group_heads, kv_head);
    if (kHasRuns) merge = merges[row.token];
    merge_splits<kAtOnce>(args, merge, row.head, i % words * 4);
  }
}

// Behind write_rows of one split; `counter` counts those that have been.
template <bool kHasRuns>
__device__ void merge_when_last(const AttentionArgs& args, const AttentionItem& item, uint32_t* counter,
                                uint32_t kv_head, uint32_t row_first, uint32_t num_rows, uint32_t* is_last) {
  const MergeItem* merges = input_array<MergeItem>(args.inputs, kFwdMerges) + item.merge_idx;
  if (arrives_last(counter, merges->num_partials, 1, kThreads, threadIdx.x == 0, is_last))
    merge_rows<kHasRuns>(args, merges, kv_head, row_first, num_rows);
}

// ---- the kernel ----------------------------------------------------------------------------------------------------

template <KvDType D, int kDims, bool kHasRuns>
__global__ void __launch_bounds__(kThreads + kCopyWarps<D> * kWarp, kBlocksPerSm)
    attention_decode_ring_kernel(AttentionArgs args, const __grid_constant__ RowMap values, uint32_t* counters,
                                 bool is_behind_prompt, bool next_is_early) {
#if defined(LLMRT_SM_90A)
  using RingOf = Ring<D, kDims, kHasRuns>;
  auto& ring = *reinterpret_cast<RingOf*>(dynamic_shared_at_1024());
  if (threadIdx.x == 0) {
    if (is_woven<D, kDims>(args.kv)) prefetch_map(values);
    for (uint32_t i = 0; i < ring.kSlots; ++i) {
      barrier_init(&ring.full[i], 1);
      barrier_init(&ring.free[i], kWarpArrivals);
    }
    barriers_visible();
  }
  __syncthreads();
  if (next_is_early) grid_dependency_release();
  const Works<kHasRuns, RingOf::kRows> works(args);
  const uint32_t warp_idx = threadIdx.x / kWarp;
  if (warp_idx >= kWarps) {
    Copier<D, kDims, kHasRuns> copier{
        .args = args, .values = values, .ring = ring, .which = warp_idx - kWarps, .has_waited = is_behind_prompt};
    return copier.run(works);
  }
  AttentionItem item{};
  if (blockIdx.x < works.count) item = works.item(blockIdx.x);
  if (!is_behind_prompt) grid_dependency_wait_alone();
  uint32_t num_tiles = 0;  // of the works before
  Warp<D, kDims, kHasRuns> warp{args};
  for (uint32_t work = blockIdx.x; work < works.count; work += gridDim.x) {
    const uint32_t kv_head = works.kv_head(work), row_first = works.row_first(work);
    const uint32_t num_rows = works.num_rows(item, work);
    const AttentionItem next_item = works.item(min(work + gridDim.x, works.count - 1));
    if (kHasRuns && num_rows == 0) {
      item = next_item;
      continue;
    }
    const uint32_t first = tile_first(item), end = tile_end(item);
    warp.begin(item, kv_head, row_first, num_rows);
    for (uint32_t tile = first + warp_idx; tile < end; tile += kWarps) {
      const uint32_t n = num_tiles + tile - first, slot = n % ring.kSlots;
      barrier_wait(&ring.full[slot], n / ring.kSlots & 1);
      warp.attend(ring, slot, item, tile * kTileKeys);
      warp_arrive(&ring.free[slot]);
    }
    num_tiles += end - first;
    warps_meet();  // the work before has been written
    warp.store(ring, num_rows);
    warps_meet();
    write_rows(ring, args, item, kv_head, row_first, num_rows);
    if (item.partial >= 0)
      merge_when_last<kHasRuns>(args, item, counters + works.counter(item, work), kv_head, row_first, num_rows,
                                &ring.is_last);
    item = next_item;
  }
  if (is_behind_prompt) grid_dependency_wait_alone();
#else
  __trap();  // OpContext::has_warpgroups says that this is not the code that runs
#endif
}

template <bool kHasRuns>
void lay_out(const AttentionShape& shape, const DeviceFacts& device, AttentionChoice* choice) {
  with_kv_type(shape.pool.dtype, shape.head_dim, [&]<KvDType D, int kDims>() {
    choice->grid = {device.num_sms * kBlocksPerSm};
    choice->threads = kThreads + kCopyWarps<D> * kWarp;
    choice->shared_bytes = sizeof(Ring<D, kDims, kHasRuns>) + kSlotAlignment;
    choice->stages = Ring<D, kDims, kHasRuns>::kSlots;
  });
}

template <bool kHasRuns>
Status attend(const AttentionChoice& choice, const AttentionArgs& args, KvDType dtype, const OpContext& at) {
  return with_kv_type(dtype, args.head_dim, [&]<KvDType D, int kDims>() -> Status {
    RowMap values;
    if (is_woven<D, kDims>(args.kv)) {
      const Result<RowMap> made = make_row_map(args.kv.data, args.kv.num_vectors(), kDims, kTileKeys, kDims);
      if (!made) return made.error();
      values = *made;
    }
    return launch(at, choice, attention_decode_ring_kernel<D, kDims, kHasRuns>, args, values, at.workspace.counters,
                  choice.is_behind_prompt, choice.next_is_early);
  });
}

}  // namespace llmrt::cuda::decode_ring
