// paged_attention for prompt chunks and heads of up to 128 numbers, for compute capability 9.0: what
// attention_prompt.cu does, by the products of warpgroups.
//
// A block takes (item, KV head, two of its query heads) from a persistent grid, the items with the most keys first. Two
// warps copy tiles of 128 keys and two of 128 values to shared memory, three slots of each (one warp alone takes longer
// to ask for both than it takes to use them); two warpgroups multiply, each the up to 64 query tokens by one head.
// Where a KV head has four query heads or more, two blocks work on four of them side by side, each copying half of a
// tile to both, so that what is read from global memory serves 256 rows of queries. Queries, scores and outputs stay in
// registers. The scores of a tile are multiplied while the values of the tile before are, and become weights meanwhile.
// Barriers in shared memory say that a slot is full or free.
#include <algorithm>

#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/attention.h"
#include "backends/cuda/step_inputs.cuh"
#include "backends/cuda/warpgroup.cuh"

namespace llmrt::cuda {

namespace {

constexpr uint32_t kGroupThreads = 128, kConsumers = 2, kThreads = (1 + kConsumers) * kGroupThreads;
constexpr uint32_t kTileKeys = 128, kScaleSlots = 4;
template <KvDType D>
inline constexpr uint32_t kSlots = D == KvDType::kF16 ? 3 : 2;  // of keys, and of values
constexpr uint32_t kColumnTile = kTileKeys * 128;               // bytes of 64 dims of a tile: rows of 128 bytes
// Of a thread that copies, and of one that multiplies: 64 K in all.
template <KvDType D>
inline constexpr int kProducerRegisters = D == KvDType::kF16 ? 40 : 56;
template <KvDType D>
inline constexpr int kConsumerRegisters = D == KvDType::kF16 ? 232 : 224;
static_assert(kPromptItemTokens == 64);

template <int kDims, KvDType D>
struct Slots {
  static constexpr uint32_t kSlotBytes = kDims / 64 * kColumnTile;
  static constexpr uint32_t kRawBytes = D == KvDType::kF16 ? 16 : kTileKeys * kDims * kKvBytes<D>;
  static constexpr uint32_t kScales = kVectorScales<D> ? kTileKeys : 2;
  uint8_t keys[kSlots<D>][kSlotBytes], values[kSlots<D>][kSlotBytes];
  uint64_t keys_full[kSlots<D>], keys_free[kSlots<D>], values_full[kSlots<D>], values_free[kSlots<D>];
  alignas(16) uint8_t raw[3][kRawBytes];  // keys or values as they are stored
  // Of the vectors of tile n in place n % 4. Both come with the keys, and are read before the keys of tile n + 2 are
  // multiplied; those of tile n + 4 come later than that.
  float key_scales[kScaleSlots][kScales], value_scales[kScaleSlots][kScales];
};
// Tiles stand at multiples of 1024 bytes, which dynamic shared memory need not.
template <int kDims, KvDType D>
inline constexpr uint32_t kSharedBytes = sizeof(Slots<kDims, D>) + 1024;

// Where word `word` (8 numbers) of key `row` stands in a slot.
__device__ inline uint32_t place_of(uint32_t row, uint32_t word) {
  return word / 8 * kColumnTile + row * 128 + (word % 8 ^ row % 8) * 16;
}

struct Work {
  AttentionItem item;
  uint32_t kv_head, head_first, num_heads;  // one or two query heads
  uint32_t key_first, num_tiles;            // from the beginning of a block of the pool on
};
constexpr uint32_t kNowhere = 0x7fff0000;  // behind all vectors
struct Works {
  const AttentionItem* items;
  uint32_t num_items, num_kv_heads, group_heads, block_tokens;
  uint32_t pairs;  // of query heads that take a turn each, this block's one among them
  uint32_t rank, num_blocks;

  __device__ uint32_t count() const { return num_items * num_kv_heads * pairs; }
  __device__ Work at(uint32_t i) const {
    const uint32_t pair = i % pairs * num_blocks + rank, kv_head = i / pairs % num_kv_heads;
    const AttentionItem item = items[num_items - 1 - i / pairs / num_kv_heads];
    const uint32_t key_first = item.key_begin / block_tokens * block_tokens;
    return {item,
            kv_head,
            kv_head * group_heads + pair * 2,
            min(2u, group_heads - pair * 2),
            key_first,
            max(1u, (item.key_end - key_first + kTileKeys - 1) / kTileKeys)};
  }
};

// ---- copying -------------------------------------------------------------------------------------------------------

// A place for a tile. Sources of tiles fill one after the other as they become free: fill(target, works).
struct Target {
  uint8_t* slot;
  uint64_t *full, *free;
  uint32_t parity;  // of the phase of `free` that is waited for
  uint32_t which;   // 0: keys, 1: values
  uint32_t tile;    // its number among all
};

// Where the n-th tile of keys (which = 0) or values goes.
template <int kDims, KvDType D>
struct SlotsOf {
  Slots<kDims, D>& slots;

  __device__ Target operator()(uint32_t n, uint32_t which) const {
    const uint32_t i = n % kSlots<D>, parity = ~(n / kSlots<D>)&1;
    return which == 0 ? Target{slots.keys[i], &slots.keys_full[i], &slots.keys_free[i], parity, which, n}
                      : Target{slots.values[i], &slots.values_full[i], &slots.values_free[i], parity, which, n};
  }
};

// f16: two warps for keys and two for values, each for half of their pieces of 64 dims. With kBlocks = 2 they copy
// every other block of the pool, to both blocks of the cluster.
template <int kDims, uint32_t kBlocks>
struct Copier {
  static constexpr uint32_t kParts = 2, kColumns = kDims / 64;

  const KvLayer& kv;
  const RowMap& map;
  uint32_t rank;

  // Where keys of the tile's lane-th block of the pool begin.
  __device__ uint32_t find(const Work& work, uint32_t tile) const {
    const uint32_t lane = threadIdx.x % kWarp, key = work.key_first + tile * kTileKeys + (lane << kv.block_shift);
    if (lane >= kTileKeys >> kv.block_shift || key >= work.item.key_end) return kNowhere;
    const int64_t vector = kv.vector_index(work.item.slot, key, 0, work.kv_head);
    return vector < 0 ? kNowhere : static_cast<uint32_t>(vector);
  }

  // The first part tells the barrier of the bytes of both.
  __device__ void copy(const Target& to, uint32_t found) const {
    const uint32_t part = threadIdx.x / kWarp % kParts;
    const bool is_first = threadIdx.x % kWarp == 0;
    barrier_wait(to.free, to.parity);
    if (is_first && part == 0) barrier_arrive_for_bytes(to.full, kColumns * kColumnTile);
    const uint32_t column = kColumns == 1 ? 0 : part, skipped = kColumns == 1 ? part : 0;
    for (uint32_t i = rank + skipped * kBlocks; i < kTileKeys >> kv.block_shift; i += kBlocks * kParts / kColumns) {
      const uint32_t block = __shfl_sync(kFullMask, found, i);
      const uint32_t row = block == kNowhere ? kNowhere : block + (to.which * kv.num_kv_heads << kv.block_shift);
      if (is_first)
        copy_rows<kBlocks>(to.slot + column * kColumnTile + (i << kv.block_shift) * 128, map, column * 64, row,
                           to.full);
    }
  }

  // Tile after tile of what this warp copies.
  __device__ void fill(const SlotsOf<kDims, KvDType::kF16>& target, const Works& works) const {
    const uint32_t which = threadIdx.x / kWarp / kParts;
    uint32_t n = 0;
    for (uint32_t i = blockIdx.x; i < works.count(); i += gridDim.x) {
      const Work work = works.at(i);
      uint32_t now = find(work, 0);
      for (uint32_t tile = 0; tile < work.num_tiles; ++tile) {
        const uint32_t next = find(work, tile + 1);
        copy(target(n++, which), now);
        now = next;
      }
    }
  }
};

// Other numbers: a warpgroup. They come to shared memory as they are stored, two copies ahead, and become f16 when
// their slot is free, those with scales of blocks multiplied by them. Keys from key_end on and dims past head_dim are
// zeros.
template <int kDims, KvDType D>
struct Converter {
  static constexpr uint32_t kNumbers = 16 / kKvBytes<D>;  // of a piece of 16 bytes
  static constexpr uint32_t kPieces = kDims / kNumbers;   // of a vector, and how many a thread copies
  static constexpr uint32_t kWarpRows = kWarp / kPieces;  // that a warp copies at a time

  struct Found {
    uint32_t vector = kNowhere;
    float key_scale = 0, value_scale = 0;
  };

  const KvLayer& kv;
  Slots<kDims, D>& slots;
  Target targets[2] = {};  // of the two newest copies, which are under way
  Found founds[2] = {};
  uint32_t num_copies = 0;

  // A lane looks up the row that lanes kPieces * (lane % kWarpRows) and following copy at the (lane / kWarpRows)-th
  // time.
  __device__ static uint32_t row_of(uint32_t time, uint32_t which) {
    return (time * 4 + threadIdx.x % kGroupThreads / kWarp) * kWarpRows + which;
  }
  __device__ static uint32_t lane_row() { return row_of(threadIdx.x % kWarp / kWarpRows, threadIdx.x % kWarpRows); }
  __device__ uint64_t value_of(uint32_t vector) const { return uint64_t{vector} + (kv.num_kv_heads << kv.block_shift); }

  __device__ Found find(const Work& work, uint32_t tile) const {
    const uint32_t key = work.key_first + tile * kTileKeys + lane_row();
    Found found;
    if (key >= work.item.key_end) return found;
    const int64_t vector = kv.vector_index(work.item.slot, key, 0, work.kv_head);
    if (vector < 0) return found;
    found.vector = static_cast<uint32_t>(vector);
    if constexpr (kVectorScales<D>) {
      found.key_scale = (kv.scales ? kv.scales[vector] : 1.0f) * kKvUnit<D>;
      found.value_scale = (kv.scales ? kv.scales[value_of(found.vector)] : kv.value_scale) * kKvUnit<D> * kValueGain<D>;
    }
    return found;
  }

  // The place of this thread's i-th piece of copy n.
  __device__ uint8_t* raw(uint32_t n, uint32_t i) const {
    return slots.raw[n % 3] + (i * kGroupThreads + threadIdx.x % kGroupThreads) * 16;
  }

  __device__ void copy(const Target& to, const Found& found) {
    const uint32_t piece = threadIdx.x % kPieces;
#pragma unroll
    for (uint32_t i = 0; i < kPieces; ++i) {
      uint64_t vector;
      const bool inside = vector_of(to, found, i, &vector);
      copy_async<16>(raw(num_copies, i), kv.data + (inside ? vector * kv.head_dim * kKvBytes<D> + piece * 16 : 0),
                    inside);
    }
    copy_async_commit();
    copy_async_wait<2>();
    if (num_copies >= 2) convert(num_copies - 2, targets[0], founds[0]);
    targets[0] = targets[1];
    founds[0] = founds[1];
    targets[1] = to;
    founds[1] = found;
    ++num_copies;
  }
  // Keys and values in the order in which they are used.
  __device__ void fill(const SlotsOf<kDims, D>& target, const Works& works) {
    uint32_t n = 0;
    for (uint32_t i = blockIdx.x; i < works.count(); i += gridDim.x) {
      const Work work = works.at(i);
      Found now = find(work, 0), next = find(work, 1);
      copy(target(n, 0), now);
      for (uint32_t tile = 1; tile < work.num_tiles; ++tile) {
        const Found after = find(work, tile + 1);
        copy(target(n + 1, 0), next);
        copy(target(n++, 1), now);
        now = next;
        next = after;
      }
      copy(target(n++, 1), now);
    }
    copy_async_wait<0>();
    if (num_copies >= 2) convert(num_copies - 2, targets[0], founds[0]);
    if (num_copies >= 1) convert(num_copies - 1, targets[1], founds[1]);
  }

  // What this lane's i-th piece of keys or values belongs to; false: zeros.
  __device__ bool vector_of(const Target& to, const Found& found, uint32_t i, uint64_t* vector) const {
    const uint32_t lane = threadIdx.x % kWarp;
    const uint32_t key = __shfl_sync(kFullMask, found.vector, i * kWarpRows + lane / kPieces);
    *vector = to.which ? value_of(key) : key;
    return key != kNowhere && lane % kPieces * kNumbers < kv.head_dim;
  }

  // Copy n, which is complete as far as this thread has made it: it converts just that.
  __device__ void convert(uint32_t n, const Target& to, const Found& found) const {
    const uint32_t lane = threadIdx.x % kWarp, piece = lane % kPieces;
    barrier_wait(to.free, to.parity);
    if constexpr (kVectorScales<D>) {
      if (to.which == 0) {
        slots.key_scales[to.tile % kScaleSlots][lane_row()] = found.key_scale;
        slots.value_scales[to.tile % kScaleSlots][lane_row()] = found.value_scale;
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < kPieces; ++i) {
      const uint32_t row = row_of(i, lane / kPieces);
      float factor = 0;
      if constexpr (kBlockScales<D>) {
        uint64_t vector;
        if (vector_of(to, found, i, &vector))
          factor = kv.scales[vector * scales_of_vector<D>(kv) + piece * kNumbers / kKvScaleBlock] * kKvUnit<D>;
      }
      const uint4 bits = *reinterpret_cast<const uint4*>(raw(n, i));
#pragma unroll
      for (uint32_t w = 0; w < kNumbers / 8; ++w) {
        KvWord<D> word{};
        if constexpr (kKvBytes<D> == 1)
          word.bits = w == 0 ? uint2{bits.x, bits.y} : uint2{bits.z, bits.w};
        else
          word.bits = bits;
        if constexpr (kBlockScales<D>) word.factor = factor;
        uint32_t pairs[4];
        decode_word<D>(word, pairs);
        *reinterpret_cast<uint4*>(to.slot + place_of(row, piece * (kNumbers / 8) + w)) = {pairs[0], pairs[1], pairs[2],
                                                                                          pairs[3]};
      }
    }
    shared_writes_visible();
    barrier_arrive(to.full);
  }
};

// ---- multiplying ---------------------------------------------------------------------------------------------------

// 64 rows of queries; this lane has rows g and g + 8 of its warp's 16.
template <int kDims, uint32_t kBlocks, KvDType D>
struct Consumer {
  const AttentionArgs& args;
  Slots<kDims, D>& slots;
  uint32_t query[kDims / 16][4];
  float out[kDims / 8][4], largest[2], sum[2];

  __device__ static uint32_t row() { return threadIdx.x % kGroupThreads / kWarp * 16 + threadIdx.x % kWarp / 4; }

  // A work's queries on their way: this lane's two rows, two neighbouring dims at a time.
  struct Queries {
    float2 pairs[kDims / 8][2];
  };
  __device__ Queries fetch_queries(const AttentionItem& item, uint32_t head) const {
    Queries queries;
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t token = row() + half * 8;
      const float* from =
          args.qkv + uint64_t{item.token_first + token} * args.qkv_columns + head * args.head_dim + threadIdx.x % 4 * 2;
#pragma unroll
      for (uint32_t j = 0; j < kDims / 8; ++j)
        queries.pairs[j][half] = token < item.num_tokens && j * 8 < args.head_dim
                                     ? *reinterpret_cast<const float2*>(from + j * 8)
                                     : float2{};
    }
    return queries;
  }
  __device__ void take(const Queries& queries) {
#pragma unroll
    for (uint32_t k = 0; k < kDims / 16; ++k)
#pragma unroll
      for (uint32_t part = 0; part < 4; ++part) {
        const float2 pair = queries.pairs[k * 2 + part / 2][part % 2];
        query[k][part] = half2_bits(__floats2half2_rn(pair.x, pair.y));
      }
  }

  // Where a tile of keys or of values stands, and the parity of its barriers' phase. Slots are the same in all threads;
  // the compiler knows that of what comes from one lane, and computes what depends on it once a warp.
  struct Place {
    uint32_t slot = 0, parity = 0;
    __device__ void advance() {
      const bool is_last = slot + 1 == kSlots<D>;
      slot = __shfl_sync(kFullMask, is_last ? 0 : slot + 1, 0);
      parity ^= is_last ? 1 : 0;
    }
  };
  __device__ static void wait_full(uint64_t (&full)[kSlots<D>], const Place& place) {
    barrier_wait(&full[place.slot], place.parity);
  }

  // Begins scores = queries * keys.
  __device__ void multiply_keys(float (&scores)[kTileKeys / 8][4], const Place& place) const {
    const uint64_t keys = product_operand(shared_address(slots.keys[place.slot]), 0);
#pragma unroll
    for (uint32_t k = 0; k < kDims / 16; ++k)
      warpgroup_product<false>(scores, query[k], keys + (k / 4 * kColumnTile + k % 4 * 32) / 16, k > 0);
    products_commit();
  }
  // Begins out += weights * values.
  __device__ void multiply_values(const uint32_t (&weights)[kTileKeys / 16][4], const Place& place) {
    const uint64_t values = product_operand(shared_address(slots.values[place.slot]), kColumnTile);
#pragma unroll
    for (uint32_t k = 0; k < kTileKeys / 16; ++k)
      warpgroup_product<true>(out, weights[k], values + k * 16 * 128 / 16, true);
    products_commit();
  }

  __device__ static void release(uint64_t* free) {
    __syncwarp();
    const uint32_t lane = threadIdx.x % kWarp;
    if constexpr (kBlocks == 1) {
      if (lane == 0) barrier_arrive(free);
    } else {
      if (lane < kBlocks) barrier_arrive_at(free, lane);  // this slot of each block is filled by both
    }
  }

  // Values behind the last key are whatever the block of the pool holds, and 0 times that need not be 0.
  __device__ void clear_values(const Work& work, const Place& values, uint32_t number) {
    const uint32_t block_tokens = 1u << args.kv.block_shift;
    const uint32_t from = work.item.key_end - work.key_first - (work.num_tiles - 1) * kTileKeys;
    const uint32_t rows = (block_tokens - from % block_tokens) % block_tokens;
    if (rows == 0) return;
#pragma unroll 1
    for (uint32_t i = threadIdx.x % kGroupThreads; i < rows * (kDims / 8); i += kGroupThreads) {
      uint8_t* place = slots.values[values.slot] + place_of(from + i / (kDims / 8), i % (kDims / 8));
      *reinterpret_cast<uint4*>(place) = {};
    }
    shared_writes_visible();
    named_barrier_wait(1 + number, kGroupThreads);
  }

  // Keys that a row does not see: those behind its position and item.key_end, those before item.key_begin and its
  // window.
  __device__ void mask(float (&scores)[kTileKeys / 8][4], const AttentionItem& item, uint32_t key_first) const {
    const uint32_t first_row_end = min(item.key_end, item.position_first + 1), last_row = item.position_first + 63;
    if (key_first + kTileKeys <= first_row_end && key_first >= item.key_begin &&
        (args.window == 0 || key_first + args.window > last_row))
      return;
    int begin[2], end[2];  // of what a row sees, counted from this lane's first key
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t position = item.position_first + row() + half * 8, lane_first = key_first + threadIdx.x % 4 * 2;
      end[half] = static_cast<int>(min(item.key_end, position + 1) - lane_first);
      begin[half] = static_cast<int>(item.key_begin - lane_first);
      if (args.window > 0) begin[half] = max(begin[half], static_cast<int>(position + 1 - args.window - lane_first));
    }
#pragma unroll
    for (int j = 0; j < static_cast<int>(kTileKeys / 8); ++j)
#pragma unroll
      for (int c = 0; c < 4; ++c)
        if (j * 8 + c % 2 < begin[c / 2] || j * 8 + c % 2 >= end[c / 2]) scores[j][c] = -INFINITY;
  }

  // Scores of keys key_first and following become weights; what is summed so far is to be multiplied by `factor`.
  __device__ void weigh(float (&scores)[kTileKeys / 8][4], const AttentionItem& item, uint32_t key_first, uint32_t n,
                        float (&factor)[2]) {
    if constexpr (kVectorScales<D>) multiply(scores, slots.key_scales[n % kScaleSlots]);
    // A positive factor and nothing else is applied behind the maximum, in the addition that the weights need anyway.
    const bool is_plain = args.soft_cap == 0 && args.scale > 0;
    const float scale = is_plain ? args.scale * kLog2E : 1.0f;
    if (!is_plain) {
      const ScoreRule rule{item.key_begin, item.key_end, args.window, args.scale, args.soft_cap};
#pragma unroll
      for (uint32_t j = 0; j < kTileKeys / 8; ++j)
#pragma unroll
        for (uint32_t c = 0; c < 4; ++c) scores[j][c] = rule.score(scores[j][c]);
    }
    mask(scores, item, key_first);
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      float most = -INFINITY;
#pragma unroll
      for (uint32_t j = 0; j < kTileKeys / 8; ++j)
        most = fmaxf(most, fmaxf(scores[j][2 * half], scores[j][2 * half + 1]));
      most = fmaxf(most, __shfl_xor_sync(kFullMask, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kFullMask, most, 2));
      most = fmaxf(largest[half], most * scale);
      const float base = most == -INFINITY ? 0.0f : most;  // nothing seen yet: weights are exp2(-inf) = 0
      factor[half] = exp2_fast(largest[half] - base);
      largest[half] = most;
      float added = 0;
#pragma unroll
      for (uint32_t j = 0; j < kTileKeys / 8; ++j) {
#pragma unroll
        for (uint32_t c = 2 * half; c < 2 * half + 2; ++c) {
          scores[j][c] = exp2_fast(fmaf(scores[j][c], scale, -base));
          added += scores[j][c];
        }
      }
      sum[half] = sum[half] * factor[half] + added;
    }
  }

  __device__ void rescale(const float (&factor)[2]) {
    if (!__any_sync(kFullMask, factor[0] != 1.0f || factor[1] != 1.0f)) return;
#pragma unroll
    for (uint32_t j = 0; j < kDims / 8; ++j)
#pragma unroll
      for (uint32_t c = 0; c < 4; ++c) out[j][c] *= factor[c / 2];
  }

  // Each column by its factor.
  __device__ static void multiply(float (&scores)[kTileKeys / 8][4], const float* factors) {
#pragma unroll
    for (uint32_t j = 0; j < kTileKeys / 8; ++j) {
      const float2 pair = *reinterpret_cast<const float2*>(factors + j * 8 + threadIdx.x % 4 * 2);
      scores[j][0] *= pair.x;
      scores[j][1] *= pair.y;
      scores[j][2] *= pair.x;
      scores[j][3] *= pair.y;
    }
  }

  // Weights of keys as factors of the values of tile n.
  __device__ void pack(float (&scores)[kTileKeys / 8][4], uint32_t n, uint32_t (&weights)[kTileKeys / 16][4]) const {
    if constexpr (kVectorScales<D>) multiply(scores, slots.value_scales[n % kScaleSlots]);
#pragma unroll
    for (uint32_t k = 0; k < kTileKeys / 16; ++k) pack_weights(scores[2 * k], scores[2 * k + 1], weights[k]);
  }

  // What has been attended to; of an item of splits its part, not divided by the sum.
  __device__ void write(const AttentionItem& item, uint32_t head) {
    if (item.partial >= 0 || args.out_dtype == DType::kF32)
      write_as<float>(item.partial >= 0 ? reinterpret_cast<std::byte*>(args.partial_values) : args.out, item, head);
    else if (args.out_dtype == DType::kF16)
      write_as<__half>(args.out, item, head);
    else
      write_as<__nv_bfloat16>(args.out, item, head);
  }
  template <class Number>
  __device__ void write_as(std::byte* out_data, const AttentionItem& item, uint32_t head) {
    const bool is_split = item.partial >= 0;
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t token = row() + half * 8;
      sum[half] += __shfl_xor_sync(kFullMask, sum[half], 1);
      sum[half] += __shfl_xor_sync(kFullMask, sum[half], 2);
      if (token >= item.num_tokens) continue;
      if (!is_split && sum[half] > 0) sum[half] += sink_weight(args, head, largest[half]);
      const float inverse = (is_split || !(sum[half] > 0) ? 1.0f : 1.0f / sum[half]) / kValueGain<D>;
      const uint64_t place = is_split ? uint64_t{static_cast<uint32_t>(item.partial)} + token * item.partial_stride
                                      : uint64_t{item.token_first} + token;
      const uint64_t vector = place * args.num_heads + head;
      if (is_split && threadIdx.x % 4 == 0)
        reinterpret_cast<float2*>(args.partial_sums)[vector] = {largest[half], sum[half]};
      std::byte* target = out_data + (vector * args.head_dim + threadIdx.x % 4 * 2) * sizeof(Number);
#pragma unroll
      for (uint32_t j = 0; j < kDims / 8; ++j)
        if (j * 8 < args.head_dim)
          store_pair<Number>(target + j * 8 * sizeof(Number), out[j][2 * half] * inverse,
                             out[j][2 * half + 1] * inverse);
    }
  }
  template <class Number>
  __device__ static void store_pair(std::byte* target, float x, float y) {
    if constexpr (sizeof(Number) == 4)
      *reinterpret_cast<float2*>(target) = {x, y};
    else if constexpr (std::is_same_v<Number, __half>)
      *reinterpret_cast<uint32_t*>(target) = half2_bits(__floats2half2_rn(x, y));
    else
      *reinterpret_cast<uint32_t*>(target) = bf16_pair_bits(x, y);
  }

  // Work after work. While the last products of one are under way, the queries of the next are fetched.
  __device__ void run(const Works& works, uint32_t number) {
    const uint32_t num_works = works.count();
    if (blockIdx.x >= num_works) return;
    // The second warpgroup of a single head computes it too, and writes nothing.
    const auto head_of = [number](const Work& of) { return of.head_first + min(number, of.num_heads - 1); };
    Work work = works.at(blockIdx.x);
    take(fetch_queries(work.item, head_of(work)));
    uint32_t n = 0;  // tiles so far
    Place keys, values;
    for (uint32_t i = blockIdx.x;;) {
      float scores[kTileKeys / 8][4] = {}, factor[2] = {};
      uint32_t weights[kTileKeys / 16][4];
      wait_full(slots.keys_full, keys);
      products_begin();
      multiply_keys(scores, keys);
#pragma unroll
      for (uint32_t j = 0; j < kDims / 8; ++j) out[j][0] = out[j][1] = out[j][2] = out[j][3] = 0;
      largest[0] = largest[1] = -INFINITY;
      sum[0] = sum[1] = 0;
      products_wait<0>(scores);
      release(&slots.keys_free[keys.slot]);
      keys.advance();
      weigh(scores, work.item, work.key_first, n, factor);
      pack(scores, n, weights);
      for (uint32_t tile = 1; tile < work.num_tiles; ++tile) {
        ++n;
        wait_full(slots.keys_full, keys);
        wait_full(slots.values_full, values);
        products_begin();
        multiply_keys(scores, keys);
        multiply_values(weights, values);
        products_wait<1>(scores);
        release(&slots.keys_free[keys.slot]);
        keys.advance();
        // Always so; behind a branch the compiler does not move the wait for the outputs ahead of the weights.
        if (args.num_heads > 0) weigh(scores, work.item, work.key_first + tile * kTileKeys, n, factor);
        products_wait<0>(out);
        release(&slots.values_free[values.slot]);
        values.advance();
        rescale(factor);
        pack(scores, n, weights);
      }
      ++n;
      wait_full(slots.values_full, values);
      if constexpr (D == KvDType::kF16) clear_values(work, values, number);
      products_begin();
      multiply_values(weights, values);
      const AttentionItem done = work.item;
      const uint32_t head = head_of(work), num_heads = work.num_heads;
      i += gridDim.x;
      if (i < num_works) work = works.at(i);  // else the same queries again, for nothing
      const Queries queries = fetch_queries(work.item, head_of(work));
      products_wait<0>(out);
      release(&slots.values_free[values.slot]);
      values.advance();
      take(queries);
      if (number < num_heads) write(done, head);
      if (i >= num_works) break;
    }
  }
};

template <int kDims, uint32_t kBlocks, KvDType D>
__global__ void __launch_bounds__(kThreads, 1)
    attention_prompt_warpgroups_kernel(AttentionArgs args, const __grid_constant__ RowMap map) {
#if defined(LLMRT_SM_90A)
  auto& slots = *reinterpret_cast<Slots<kDims, D>*>(dynamic_shared_at_1024());
  const uint32_t group_heads = args.num_heads / args.kv.num_kv_heads, rank = kBlocks == 1 ? 0 : blockIdx.y;
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < kSlots<D>; ++i) {
      barrier_init(&slots.keys_full[i], D == KvDType::kF16 ? 1 : kGroupThreads);
      barrier_init(&slots.values_full[i], D == KvDType::kF16 ? 1 : kGroupThreads);
      barrier_init(&slots.keys_free[i], kBlocks * kConsumers * kGroupThreads / kWarp);
      barrier_init(&slots.values_free[i], kBlocks * kConsumers * kGroupThreads / kWarp);
    }
    barriers_visible();
  }
  if constexpr (kBlocks == 1)
    __syncthreads();
  else
    cluster_sync();
  grid_dependency_wait_alone();
  grid_dependency_release();  // now the next kernel may read what was waited for
  const Works works{input_array<AttentionItem>(args.inputs, kFwdPromptItems),
                    args.inputs[kFwdNumPromptItems],
                    args.kv.num_kv_heads,
                    group_heads,
                    1u << args.kv.block_shift,
                    (group_heads + 1) / 2 / kBlocks,
                    rank,
                    kBlocks};
  const uint32_t group = threadIdx.x / kGroupThreads;
  if (group == 0) {
    fewer_registers<kProducerRegisters<D>>();
    if constexpr (D != KvDType::kF16)
      Converter<kDims, D>{args.kv, slots}.fill({slots}, works);
    else
      Copier<kDims, kBlocks>{args.kv, map, rank}.fill({slots}, works);
  } else {
    more_registers<kConsumerRegisters<D>>();
    Consumer<kDims, kBlocks, D>{args, slots}.run(works, group - 1);
  }
  if constexpr (kBlocks > 1) cluster_sync();  // nobody leaves while the other one may copy or arrive here
#else
  __trap();  // OpContext::has_warpgroups says that this is not the code that runs
#endif
}

// Whether two blocks share their keys and values.
bool in_pairs(KvDType dtype, uint32_t num_heads, uint32_t num_kv_heads) {
  return dtype == KvDType::kF16 && (num_heads / num_kv_heads + 1) / 2 % 2 == 0;
}

// fn.template operator()<kDims, kBlocks, D>().
template <class Fn>
auto with_blocks(KvDType dtype, uint32_t head_dim, bool pairs, Fn fn) {
  return with_kv_type(dtype, head_dim, [&]<KvDType D, int kDims>() {
    constexpr int kDimsMost = kDims > 128 ? 128 : kDims;  // longer heads go elsewhere
    if constexpr (D == KvDType::kF16)
      if (pairs) return fn.template operator()<kDimsMost, 2, D>();
    return fn.template operator()<kDimsMost, 1, D>();
  });
}

}  // namespace

Status check_prompt_warpgroups(const AttentionShape& shape) {
  if (shape.num_vectors() <= kNowhere) return {};
  return make_error(ErrorCode::kUnsupported, "paged_attention: a layer of {} vectors: expected at most {}",
                    shape.num_vectors(), kNowhere);
}

void lay_out_prompt_warpgroups(const AttentionShape& shape, const DeviceFacts& device, AttentionChoice* choice) {
  const KvDType dtype = shape.pool.dtype;
  with_blocks(dtype, shape.head_dim, in_pairs(dtype, shape.num_heads, shape.pool.num_kv_heads),
              [&]<int kDims, uint32_t kBlocks, KvDType D>() {
                choice->grid = {std::max(device.num_sms / kBlocks, 1u), kBlocks};
                choice->threads = kThreads;
                choice->shared_bytes = kSharedBytes<kDims, D>;
                choice->cluster = kBlocks;
                choice->stages = kSlots<D>;
              });
}

Status attend_prompt_by_warpgroups(const AttentionChoice& choice, const AttentionArgs& args, KvDType dtype,
                                   const OpContext& at) {
  const KvLayer& kv = args.kv;
  RowMap map;
  if (dtype == KvDType::kF16) {
    Result<RowMap> made = make_row_map(kv.data, kv.num_vectors(), kv.head_dim, 1u << kv.block_shift);
    if (!made) return made.error();
    map = *made;
  }
  return with_blocks(dtype, args.head_dim, choice.cluster > 1, [&]<int kDims, uint32_t kBlocks, KvDType D>() {
    return launch(at, choice, attention_prompt_warpgroups_kernel<kDims, kBlocks, D>, args, map);
  });
}

}  // namespace llmrt::cuda
