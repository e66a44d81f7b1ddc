// latent_attention: all heads of a token against one row of the cache a key, whose first numbers are the values too.
//
// An item's query rows are its tokens times the heads, one behind the other as they lie in memory; a block takes
// kRowTiles times 16 of them and walks the item's keys, kKeys at a time. Rows of the cache come into shared memory in
// f16, where all of the block's query rows read them, as keys and as values: a row is read from memory once for all
// heads of a token. kColumnWarps warps share 16 query rows: for scores each has a part of the keys, for outputs a part
// of the values' columns; maxima and weights go through shared memory. Products in f16 with f32 sums, softmax in f32.
//
// Lane 4 * g + t. Words are 8 numbers. For scores a lane reads words 4 * i + t, of query rows g and g + 8 and of one
// key, so the order of the columns does not matter (paged.cuh). Keys of a tile of 8 stand in the order 0, 4, 1, 5, ...:
// column n is key n % 2 * 4 + n / 2. A word of key k stands at place word ^ swizzle(k) of its eight, and so neither
// lanes g with g + 1, which read keys 4 apart, nor lanes t, which read keys 1 apart for outputs, meet in one bank.
#include <fmt/format.h>

#include "backends/cuda/choose.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/attention.h"
#include "backends/cuda/step_inputs.cuh"

namespace llmrt::cuda {
namespace {

// What is the same for all launches of the op.
struct LatentArgs {
  const uint32_t* inputs;
  const float* query;  // [T * num_heads, row_dim]
  std::byte* out;      // [T * num_heads, rank] out_dtype
  DType out_dtype;
  LatentCache cache;
  uint32_t num_heads, rank, row_dim;
  float scale;        // of scores, times log2 e
  float value_scale;  // of fp8-tensor
  float *partial_values, *partial_sums;
  uint32_t stages;      // tiles of keys in shared memory: 1 or 2
  uint32_t works_item;  // blocks an item, at most
  bool is_prompt;
};

template <uint32_t kRowTiles_, uint32_t kColumnWarps_, uint32_t kKeys_>
struct LatentShape {
  static constexpr uint32_t kRowTiles = kRowTiles_, kColumnWarps = kColumnWarps_, kKeys = kKeys_;
  static constexpr uint32_t kRows = kRowTiles * 16, kWarps = kRowTiles * kColumnWarps, kThreads = kWarps * kWarp;
  static constexpr uint32_t kTilesWarp = kKeys / 8 / kColumnWarps;        // of keys, whose scores a warp makes
  static constexpr uint32_t kParts = kLatentRankMax / 64 / kColumnWarps;  // of 64 columns, at most
  static constexpr uint32_t kWeightStride = kKeys / 2 + 4;                // words of 4 bytes of a row of weights
  static_assert(kTilesWarp >= 1 && kKeys % 16 == 0);
};
using LatentFew = LatentShape<1, 4, 32>;   // 16 query rows
using LatentSome = LatentShape<2, 4, 32>;  // 32
using LatentMany = LatentShape<4, 2, 32>;  // 64

// Words of a row in shared memory, of the query too.
__host__ __device__ inline uint32_t latent_words(uint32_t row_dim) {
  return (row_dim + 63) / 64 * 8;
}
__device__ inline uint32_t key_place(uint32_t key, uint32_t word) {
  return word ^ (key % 4 * 2 ^ (key & 4));
}
__device__ inline uint32_t query_place(uint32_t row, uint32_t word) {
  return word ^ row % 2 * 4;
}
// The key of column n of a tile of 8.
__device__ inline uint32_t key_of_column(uint32_t n) {
  return n % 2 * 4 + n / 2;
}

// One behind the other in dynamic shared memory.
template <class S>
struct LatentShared {
  uint4* query;       // [kRows][words]
  uint4* keys;        // [stages][kKeys][words]
  float* key_scales;  // [stages][kKeys]
  uint32_t* weights;  // [kRows][kWeightStride]
  float* maxima;      // [kColumnWarps][kRows]; at the end the sums
  int32_t* vectors;   // [stages][kKeys]: the place of each key's row in the layer, -1: none

  __device__ LatentShared(uint32_t words, uint32_t stages) {
    query = reinterpret_cast<uint4*>(dynamic_shared());
    keys = query + S::kRows * words;
    key_scales = reinterpret_cast<float*>(keys + stages * S::kKeys * words);
    weights = reinterpret_cast<uint32_t*>(key_scales + stages * S::kKeys);
    maxima = reinterpret_cast<float*>(weights + S::kRows * S::kWeightStride);
    vectors = reinterpret_cast<int32_t*>(maxima + S::kColumnWarps * S::kRows);
  }
  static uint32_t bytes(uint32_t words, uint32_t stages) {
    return (S::kRows + stages * S::kKeys) * words * 16 + stages * S::kKeys * 8 +
           S::kRows * (S::kWeightStride + S::kColumnWarps) * 4;
  }
};

// The query rows of a block: those from `first` on, of the step's tokens times heads.
struct LatentRowsOf {
  uint64_t first;
  uint32_t count;
  uint32_t row_first;       // of the item's rows
  uint32_t position_first;  // of the item
  uint32_t num_heads;

  __device__ uint32_t token(uint32_t r) const { return (row_first + r) / num_heads; }  // of the item
  __device__ uint32_t position(uint32_t r) const { return position_first + token(r); }
};

template <class S>
__device__ void load_latent_queries(uint4* query, const LatentArgs& args, const LatentRowsOf& rows, uint32_t words) {
  for (uint32_t i = threadIdx.x; i < S::kRows * words; i += S::kThreads) {
    const uint32_t row = i / words, word = i % words;
    uint4 bits = {};
    if (row < rows.count && word * 8 < args.row_dim) {
      const float4* from = reinterpret_cast<const float4*>(args.query + (rows.first + row) * args.row_dim + word * 8);
      const float4 a = from[0], b = from[1];
      bits = {half2_bits(__floats2half2_rn(a.x, a.y)), half2_bits(__floats2half2_rn(a.z, a.w)),
              half2_bits(__floats2half2_rn(b.x, b.y)), half2_bits(__floats2half2_rn(b.z, b.w))};
    }
    query[row * words + query_place(row, word)] = bits;
  }
}

// Where rows of keys [first, + kKeys) lie; those at or behind `end` lie nowhere.
template <class S>
__device__ void find_latent_keys(int32_t* vectors, const LatentArgs& args, uint32_t slot, uint32_t first,
                                 uint32_t end) {
  if (threadIdx.x >= S::kKeys) return;
  const uint32_t key = first + threadIdx.x;
  vectors[threadIdx.x] = key < end ? args.cache.vector_of(slot, key) : -1;
}

// Rows of keys into shared memory, in f16: copied on the side where they lie so, else decoded here. Rows that are not
// there are zero.
template <KvDType D, class S>
__device__ void load_latent_keys(uint4* keys, float* key_scales, const int32_t* vectors, const LatentArgs& args,
                                 uint32_t words) {
  const uint32_t row_words = args.row_dim / 8, num_scales = kBlockScales<D> ? args.row_dim / kKvScaleBlock : 1;
  for (uint32_t i = threadIdx.x; i < S::kKeys * row_words; i += S::kThreads) {
    const uint32_t key = i / row_words, word = i % row_words;
    const int32_t vector = vectors[key];
    const uint8_t* row = args.cache.data + static_cast<uint64_t>(max(vector, 0)) * args.row_dim * kKvBytes<D>;
    uint4* to = keys + key * words + key_place(key, word);
    if constexpr (D == KvDType::kF16) {
      copy_async<16>(to, row + word * 16, vector >= 0);
    } else {
      uint32_t pairs[4] = {};
      if (vector >= 0)
        decode_word<D>(load_word<D>(row, word, word, args.cache.scales + static_cast<uint64_t>(vector) * num_scales),
                       pairs);
      *to = {pairs[0], pairs[1], pairs[2], pairs[3]};
    }
  }
  if constexpr (kVectorScales<D>) {
    if (threadIdx.x < S::kKeys) {
      const int32_t vector = vectors[threadIdx.x];
      key_scales[threadIdx.x] = args.cache.scales == nullptr ? args.value_scale
                                : vector < 0                 ? 0.0f
                                                             : args.cache.scales[vector];
    }
  }
}

// Columns of words that no row has stay zero.
template <class S>
__device__ void clear_latent_tails(uint4* keys, const LatentArgs& args, uint32_t words) {
  const uint32_t row_words = args.row_dim / 8, tail = words - row_words;
  for (uint32_t i = threadIdx.x; i < args.stages * S::kKeys * tail; i += S::kThreads) {
    const uint32_t key = i / tail;
    keys[key * words + key_place(key % S::kKeys, row_words + i % tail)] = {};
  }
}

// A warp's share of 16 query rows: outputs of its columns, and the running maxima of rows g and g + 8, with this lane's
// part of the sums over the warp's keys.
template <class S>
struct LatentSums {
  float out[S::kParts][8][4] = {};
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};
};

// Scores of the warp's keys: s[j] those of a tile of 8.
template <class S>
__device__ void score_latent_keys(float (&s)[S::kTilesWarp][4], const uint4* query, const uint4* keys, uint32_t words,
                                  uint32_t row_tile, uint32_t column_warp) {
  const uint32_t g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4, row = row_tile * 16 + g;
  const uint32_t key_first = column_warp * S::kTilesWarp * 8 + key_of_column(g);
  for (uint32_t word = t; word < words; word += 4) {
    const uint4 upper = query[row * words + query_place(row, word)];
    const uint4 lower = query[(row + 8) * words + query_place(row, word)];
#pragma unroll
    for (uint32_t j = 0; j < S::kTilesWarp; ++j) {
      const uint32_t key = key_first + j * 8;
      const uint4 k = keys[key * words + key_place(key, word)];
      const uint32_t pairs[4] = {k.x, k.y, k.z, k.w};
      add_products(s[j], upper, lower, pairs);
    }
  }
}

// Products to scores in units of log2 e; keys that a row does not see are -inf. Returns the largest of rows g and g + 8
// in every lane of the row.
template <KvDType D, class S>
__device__ float2 finish_latent_scores(float (&s)[S::kTilesWarp][4], const LatentArgs& args, const LatentRowsOf& rows,
                                       const float* key_scales, uint32_t key_begin, uint32_t key_end, uint32_t row_tile,
                                       uint32_t column_warp) {
  const uint32_t g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (uint32_t j = 0; j < S::kTilesWarp; ++j) {
#pragma unroll
    for (uint32_t c = 0; c < 4; ++c) {
      const uint32_t place = (column_warp * S::kTilesWarp + j) * 8 + key_of_column(2 * t + c % 2);
      const uint32_t key = key_begin + place, r = row_tile * 16 + g + c / 2 * 8;
      float score = s[j][c] * args.scale;
      if constexpr (kVectorScales<D>) score *= key_scales[place] * kKvUnit<D>;
      s[j][c] = key < key_end && r < rows.count && key <= rows.position(r) ? score : -INFINITY;
      most[c / 2] = fmaxf(most[c / 2], s[j][c]);
    }
  }
#pragma unroll
  for (float& m : most) {
    m = fmaxf(m, __shfl_xor_sync(kFullMask, m, 1));
    m = fmaxf(m, __shfl_xor_sync(kFullMask, m, 2));
  }
  return {most[0], most[1]};
}

// Weights of the warp's keys to shared memory, relative to the new maxima of the rows, to which what is summed so far
// is brought.
template <KvDType D, class S>
__device__ void weigh_latent_keys(LatentSums<S>& sums, const float (&s)[S::kTilesWarp][4],
                                  const LatentShared<S>& shared, const float* key_scales, uint32_t row_tile,
                                  uint32_t column_warp) {
  const uint32_t g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  float factor[2], base[2];
#pragma unroll
  for (uint32_t half = 0; half < 2; ++half) {
    float most = sums.max[half];
#pragma unroll
    for (uint32_t w = 0; w < S::kColumnWarps; ++w)
      most = fmaxf(most, shared.maxima[w * S::kRows + row_tile * 16 + half * 8 + g]);
    base[half] = most == -INFINITY ? 0.0f : most;  // nothing seen yet: weights are exp2(-inf) = 0
    factor[half] = exp2f(sums.max[half] - base[half]);
    sums.max[half] = most;
    sums.sum[half] *= factor[half];
  }
#pragma unroll
  for (uint32_t j = 0; j < S::kTilesWarp; ++j) {
    const uint32_t tile = column_warp * S::kTilesWarp + j;
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      float weight[2];
#pragma unroll
      for (uint32_t c = 0; c < 2; ++c) {
        weight[c] = exp2f(s[j][2 * half + c] - base[half]);
        sums.sum[half] += weight[c];
        if constexpr (kVectorScales<D>)
          weight[c] *= key_scales[tile * 8 + key_of_column(2 * t + c)] * (kKvUnit<D> * kValueGain<D>);
      }
      shared.weights[(row_tile * 16 + half * 8 + g) * S::kWeightStride + tile * 4 + t] =
          half2_bits(__floats2half2_rn(weight[0], weight[1]));
    }
  }
  if (!__any_sync(kFullMask, factor[0] != 1.0f || factor[1] != 1.0f)) return;
#pragma unroll
  for (auto& part : sums.out)
#pragma unroll
    for (auto& four : part)
#pragma unroll
      for (uint32_t c = 0; c < 4; ++c) four[c] *= factor[c / 2];
}

// Outputs += weights * values, for the warp's columns: parts of 64, of which every kColumnWarps-th is its own.
template <class S>
__device__ void add_latent_values(LatentSums<S>& sums, const uint32_t* weights, const uint4* keys, uint32_t words,
                                  uint32_t num_parts, uint32_t row_tile, uint32_t column_warp) {
  const uint32_t g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  const uint32_t* upper = weights + (row_tile * 16 + g) * S::kWeightStride + t;
  const uint32_t* lower = upper + 8 * S::kWeightStride;
#pragma unroll
  for (uint32_t b = 0; b < S::kKeys / 16; ++b) {
    const uint32_t a[4] = {upper[b * 8], lower[b * 8], upper[b * 8 + 4], lower[b * 8 + 4]};
#pragma unroll
    for (uint32_t p = 0; p < S::kParts; ++p) {
      const uint32_t part = p * S::kColumnWarps + column_warp;
      if (part >= num_parts) break;
      uint32_t numbers[4][4];
#pragma unroll
      for (uint32_t k = 0; k < 4; ++k) {
        const uint32_t key = b * 16 + k / 2 * 8 + k % 2 * 4 + t;  // of columns 2t, 2t + 1, 2t + 8, 2t + 9
        const uint4 v = keys[key * words + key_place(key, part * 8 + g)];
        numbers[k][0] = v.x, numbers[k][1] = v.y, numbers[k][2] = v.z, numbers[k][3] = v.w;
      }
#pragma unroll
      for (uint32_t d = 0; d < 8; ++d) {
        const uint32_t select = d % 2 ? 0x7632 : 0x5410;  // number d of two keys side by side
        mma_16x8x16(sums.out[p][d], a,
                    {__byte_perm(numbers[0][d / 2], numbers[1][d / 2], select),
                     __byte_perm(numbers[2][d / 2], numbers[3][d / 2], select)});
      }
    }
  }
}

template <KvDType D, class S>
__device__ void write_latent_rows(LatentSums<S>& sums, const LatentShared<S>& shared, const LatentArgs& args,
                                  const LatentRowsOf& rows, const AttentionItem& item, uint32_t row_tile,
                                  uint32_t column_warp) {
  const uint32_t g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  __syncthreads();  // the maxima have been read
#pragma unroll
  for (uint32_t half = 0; half < 2; ++half) {
    float sum = sums.sum[half];
    sum += __shfl_xor_sync(kFullMask, sum, 1);
    sum += __shfl_xor_sync(kFullMask, sum, 2);
    if (t == 0) shared.maxima[column_warp * S::kRows + row_tile * 16 + half * 8 + g] = sum;
  }
  __syncthreads();
#pragma unroll
  for (uint32_t half = 0; half < 2; ++half) {
    const uint32_t r = row_tile * 16 + half * 8 + g;
    if (r >= rows.count) continue;
    float sum = 0;
#pragma unroll
    for (uint32_t w = 0; w < S::kColumnWarps; ++w) sum += shared.maxima[w * S::kRows + r];
    const bool is_partial = item.partial >= 0;
    const uint32_t stride = args.is_prompt ? item.partial_stride : 0;
    const uint64_t partial =
        (static_cast<uint64_t>(max(item.partial, 0)) + rows.token(r) * uint64_t{stride}) * args.num_heads +
        (rows.row_first + r) % args.num_heads;
    // A sum of nothing makes outputs 0; a NaN stays one.
    const float factor = is_partial ? 1.0f / kValueGain<D> : sum > 0 ? 1.0f / (sum * kValueGain<D>) : sum;
    std::byte* to = is_partial ? reinterpret_cast<std::byte*>(args.partial_values) : args.out;
    const uint64_t row = (is_partial ? partial : rows.first + r) * args.rank;
    if (is_partial && column_warp == 0 && t == 0) {
      args.partial_sums[partial * 2] = sums.max[half];
      args.partial_sums[partial * 2 + 1] = sum;
    }
#pragma unroll
    for (uint32_t p = 0; p < S::kParts; ++p) {
#pragma unroll
      for (uint32_t c = 0; c < 2; ++c) {
        const uint32_t column = (p * S::kColumnWarps + column_warp) * 64 + (2 * t + c) * 8;
        if (column >= args.rank) continue;
        float eight[8];
#pragma unroll
        for (uint32_t d = 0; d < 8; ++d) eight[d] = sums.out[p][d][half * 2 + c] * factor;
        store_eight(to, is_partial ? DType::kF32 : args.out_dtype, row + column, eight);
      }
    }
  }
}

template <KvDType D, class S>
__global__ void __launch_bounds__(S::kThreads, S::kRowTiles <= 2 ? 2 : 1) latent_attention_kernel(LatentArgs args) {
  const uint32_t words = latent_words(args.row_dim), warp = threadIdx.x / kWarp;
  const LatentShared<S> shared(words, args.stages);
  const uint32_t row_tile = warp / S::kColumnWarps, column_warp = warp % S::kColumnWarps;
  const AttentionItem* items =
      input_array<AttentionItem>(args.inputs, args.is_prompt ? kFwdPromptItems : kFwdDecodeItems);
  const uint32_t num_works = args.inputs[args.is_prompt ? kFwdNumPromptItems : kFwdNumDecodeItems] * args.works_item;
  if (blockIdx.x < num_works) clear_latent_tails<S>(shared.keys, args, words);
  grid_dependency_wait();
  for (uint32_t work = blockIdx.x; work < num_works; work += gridDim.x) {
    const AttentionItem item = items[work / args.works_item];
    const uint32_t row_first = work % args.works_item * S::kRows, item_rows = item.num_tokens * args.num_heads;
    if (row_first >= item_rows) continue;  // the whole block
    const LatentRowsOf rows{uint64_t{item.token_first} * args.num_heads + row_first,
                            min(S::kRows, item_rows - row_first), row_first, item.position_first, args.num_heads};
    // No row sees a key behind the last one's position.
    const uint32_t key_end = min(item.key_end, rows.position(rows.count - 1) + 1);
    const uint32_t num_tiles = key_end > item.key_begin ? (key_end - item.key_begin + S::kKeys - 1) / S::kKeys : 0;
    const auto load = [&](uint32_t tile) {
      const uint32_t stage = tile % args.stages;
      load_latent_keys<D, S>(shared.keys + stage * S::kKeys * words, shared.key_scales + stage * S::kKeys,
                             shared.vectors + stage * S::kKeys, args, words);
    };
    const auto find = [&](uint32_t tile) {
      find_latent_keys<S>(shared.vectors + tile % args.stages * S::kKeys, args, item.slot,
                          item.key_begin + tile * S::kKeys, key_end);
    };
    __syncthreads();  // the work before has been written
    load_latent_queries<S>(shared.query, args, rows, words);
    find(0);
    __syncthreads();
    if (args.stages > 1 && num_tiles > 0) load(0);
    copy_async_commit();
    LatentSums<S> sums;
    for (uint32_t tile = 0; tile < num_tiles; ++tile) {
      const uint32_t stage = tile % args.stages;
      if (args.stages == 1) load(tile);
      copy_async_commit();
      copy_async_wait<0>();
      if (args.stages > 1 && tile + 1 < num_tiles) find(tile + 1);
      __syncthreads();  // the tile is there; the one before has been read
      if (args.stages > 1 && tile + 1 < num_tiles) load(tile + 1);
      copy_async_commit();
      const uint4* keys = shared.keys + stage * S::kKeys * words;
      const float* key_scales = shared.key_scales + stage * S::kKeys;
      float s[S::kTilesWarp][4] = {};
      score_latent_keys<S>(s, shared.query, keys, words, row_tile, column_warp);
      const float2 most = finish_latent_scores<D, S>(s, args, rows, key_scales, item.key_begin + tile * S::kKeys,
                                                     key_end, row_tile, column_warp);
      const uint32_t g = threadIdx.x % kWarp / 4;
      if (threadIdx.x % 4 == 0) {
        shared.maxima[column_warp * S::kRows + row_tile * 16 + g] = most.x;
        shared.maxima[column_warp * S::kRows + row_tile * 16 + 8 + g] = most.y;
      }
      __syncthreads();
      weigh_latent_keys<D, S>(sums, s, shared, key_scales, row_tile, column_warp);
      __syncthreads();
      add_latent_values<S>(sums, shared.weights, keys, words, (args.rank + 63) / 64, row_tile, column_warp);
      if (args.stages > 1 || tile + 1 == num_tiles) continue;
      __syncthreads();  // one stage: the values have been read
      find(tile + 1);
      __syncthreads();
    }
    write_latent_rows<D, S>(sums, shared, args, rows, item, row_tile, column_warp);
  }
}

// ---- choice --------------------------------------------------------------------------------------------------------

struct LatentChoice : KernelChoice {
  uint32_t row_tiles = 1;  // 1, 2 or 4
  bool is_prompt = false;
  uint32_t works_item = 1;
};

template <class Fn>
auto with_latent_shape(uint32_t row_tiles, Fn fn) {
  if (row_tiles == 1) return fn.template operator()<LatentFew>();
  if (row_tiles == 2) return fn.template operator()<LatentSome>();
  return fn.template operator()<LatentMany>();
}

// fn.template operator()<D>(): D is kF8 for fp8-tensor.
template <class Fn>
Status with_latent_dtype(KvDType dtype, Fn fn) {
  switch (dtype) {
    case KvDType::kF16:
      return fn.template operator()<KvDType::kF16>();
    case KvDType::kBF16:
      return fn.template operator()<KvDType::kBF16>();
    case KvDType::kI8:
      return fn.template operator()<KvDType::kI8>();
    case KvDType::kF8:
    case KvDType::kF8Tensor:
      return fn.template operator()<KvDType::kF8>();
    case KvDType::kI8Block:
      return fn.template operator()<KvDType::kI8Block>();
    default:
      return fn.template operator()<KvDType::kF8Block>();
  }
}

LatentArgs latent_args(const LatentAttention& op, const LatentChoice& choice, const OpContext& at) {
  LatentArgs args{};
  args.inputs = at.forward_inputs + op.kv_group * kForwardHeaderWords;
  args.query = at.tensor<float>(op.query);
  args.out = at.bytes(op.out);
  args.out_dtype = at.desc(op.out).dtype;
  args.cache = latent_cache(op.kv_group, op.layer, at);
  args.num_heads = op.num_heads;
  args.rank = op.rank;
  args.row_dim = op.row_dim();
  args.scale = op.scale * kLog2E;
  args.value_scale = op.scales.k;
  args.partial_values = at.partial_values;
  args.partial_sums = at.partial_sums;
  args.stages = choice.stages;
  args.works_item = choice.works_item;
  args.is_prompt = choice.is_prompt;
  return args;
}

Status attend_latent(const LatentAttention& op, const LatentChoice& choice, const OpContext& at) {
  return with_latent_dtype(at.pools[op.kv_group].group.dtype, [&]<KvDType D>() {
    return with_latent_shape(choice.row_tiles, [&]<class S>() {
      return launch(at, choice, latent_attention_kernel<D, S>, latent_args(op, choice, at));
    });
  });
}

// Rows of 64 where there are so many, and as many stages as there is room for.
Status add_latent(const LatentAttention& op, bool is_prompt, const CompileInputs& inputs, Launches* out) {
  const uint32_t item_rows = op.num_heads * (is_prompt ? kPromptItemTokens : 1);
  const uint32_t words = latent_words(op.row_dim()), room = inputs.device.shared_bytes_max;
  LatentChoice choice;
  choice.kernel = "latent_attention";
  choice.is_prompt = is_prompt;
  choice.row_tiles = item_rows <= 16 ? 1 : item_rows <= 32 ? 2 : 4;
  const auto bytes = [&](uint32_t row_tiles, uint32_t stages) {
    return with_latent_shape(row_tiles, [&]<class S>() { return LatentShared<S>::bytes(words, stages); });
  };
  while (choice.row_tiles > 1 && bytes(choice.row_tiles, 2) > room) choice.row_tiles /= 2;
  choice.stages = bytes(choice.row_tiles, 2) <= room ? 2 : 1;
  choice.shared_bytes = bytes(choice.row_tiles, choice.stages);
  if (choice.shared_bytes > room)
    return make_error(ErrorCode::kUnsupported,
                      "latent_attention: expected {} bytes of shared memory a block for rows of {} numbers, found {}",
                      choice.shared_bytes, op.row_dim(), room);
  with_latent_shape(choice.row_tiles, [&]<class S>() {
    choice.threads = S::kThreads;
    choice.works_item = ceil_div(item_rows, S::kRows);
  });
  constexpr uint32_t kBlocksPerSm = 2;  // more than fit leave at once
  choice.grid = {inputs.device.num_sms * kBlocksPerSm};
  choice.variant = fmt::format("{} {} rows of {}{}", kv_dtype_name(inputs.pools[op.kv_group].dtype),
                               16 * choice.row_tiles, op.row_dim(), is_prompt ? " prompts" : "");
  add_launch(out, choice, [op](const LatentChoice& c, const OpContext& at) { return attend_latent(op, c, at); });
  return {};
}

// The merge of the splits of all items.
Status merge_latent(const LatentAttention& op, const AttentionChoice& choice, const OpContext& at) {
  AttentionArgs args{};
  args.inputs = at.forward_inputs + op.kv_group * kForwardHeaderWords;
  args.out = at.bytes(op.out);
  args.out_dtype = at.desc(op.out).dtype;
  args.num_heads = op.num_heads;
  args.head_dim = args.value_dim = op.rank;
  args.out_columns = op.num_heads * op.rank;
  args.partial_values = at.partial_values;
  args.partial_sums = at.partial_sums;
  return merge_partials(choice, args, at.pools[op.kv_group].group.dtype, at);
}

}  // namespace

uint32_t latent_row_max(uint32_t shared_bytes_max) {
  return LatentShared<LatentFew>::bytes(latent_words(kLatentRowMax), 1) <= shared_bytes_max ? kLatentRowMax : 0;
}

Status choose(const LatentAttention& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  if (op.kv_group >= inputs.pools.size())
    return make_error(ErrorCode::kInvalidArgument, "latent_attention: kv_group: expected below {}, found {}",
                      inputs.pools.size(), op.kv_group);
  const KvGroup& group = inputs.pools[op.kv_group];
  if (op.rank % 16 != 0 || op.rope_dim % 16 != 0 || op.rank > kLatentRankMax || op.row_dim() > kLatentRowMax)
    return make_error(ErrorCode::kUnsupported,
                      "latent_attention: rows of {} + {} numbers: expected multiples of 16, up to {} and {} together",
                      op.rank, op.rope_dim, kLatentRankMax, kLatentRowMax);
  if (!group.keys_only || op.row_dim() != group.head_dim || op.layer >= group.num_layers)
    return make_error(ErrorCode::kInvalidArgument,
                      "latent_attention: layer {}, rows of {}: the pool has {} layers of {}", op.layer, op.row_dim(),
                      group.num_layers, group.head_dim);
  if (!list.decode_only)
    if (Status status = add_latent(op, true, inputs, out); !status) return status;
  if (Status status = add_latent(op, false, inputs, out); !status) return status;
  AttentionChoice merge;
  merge.kernel = "attention_merge";
  merge.which = AttentionKernel::kMerge;
  merge.variant = fmt::format("latents of {}", op.rank);
  const AttentionShape shape{group, op.num_heads, op.rank, list.num_tokens, list.decode_only};
  lay_out_merge(shape, inputs.device, &merge);
  add_launch(out, std::move(merge),
             [op](const AttentionChoice& c, const OpContext& at) { return merge_latent(op, c, at); });
  return {};
}

}  // namespace llmrt::cuda
