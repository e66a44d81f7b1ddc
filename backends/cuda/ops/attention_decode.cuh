// paged_attention for query tokens that come alone (decode): bound by reading keys and values once.
//
// A block takes (item, KV head) pairs from a persistent grid: up to 16 rows share every key and value that is read. A
// row is a query head of the group; in lists with runs, whose items may have several tokens, a token and a head, tokens
// first. Its 4 warps take tiles of 16 keys in turn, straight from global memory into registers (paged.cuh), each with a
// running softmax of its own; at the end the warps' results are merged through shared memory and written as output or
// as a partial. Products in f16 with f32 sums, softmax in f32. A row's sums and their order are those that it has where
// its token is an item by itself, and whatever could be contracted to other roundings is written out.
#pragma once

#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/attention.h"
#include "backends/cuda/step_inputs.cuh"

namespace llmrt::cuda::decode_tiles {

inline constexpr uint32_t kWarps = 4, kThreads = kWarps * kWarp;
inline constexpr uint32_t kRows = 16;  // query rows of a tile
inline constexpr uint32_t kTileKeys = 16;

// The tile of an item's rows that a block computes for one KV head.
struct RowTile {
  uint32_t kv_head, group_heads, row_first, num_rows;

  // Which token of the item and which head of all a row is.
  template <bool kHasRuns>
  __device__ uint32_t token(uint32_t row) const {
    return kHasRuns ? (row_first + row) / group_heads : 0;
  }
  template <bool kHasRuns>
  __device__ uint32_t head(uint32_t row) const {
    return kv_head * group_heads + (kHasRuns ? (row_first + row) % group_heads : row_first + row);
  }
};

// Words of 16 bytes (8 dims) in a row of q: one half-row of padding keeps rows g and g + 1 in different banks.
template <int kDims>
inline constexpr uint32_t kQueryWords = kDims / 8 + 4;

// The query rows of the tile into shared memory as f16; rows and dims that are not there are zero.
template <int kDims, bool kHasRuns>
__device__ void load_queries(uint4* query, const AttentionArgs& args, uint32_t token_first, const RowTile& rows) {
  for (uint32_t i = threadIdx.x; i < kRows * kDims / 8; i += kThreads) {
    const uint32_t row = i / (kDims / 8), word = i % (kDims / 8);
    uint4 bits = {};
    if (row < rows.num_rows && word * 8 < args.head_dim) {
      const uint32_t token = token_first + rows.token<kHasRuns>(row), head = rows.head<kHasRuns>(row);
      const float4* from = reinterpret_cast<const float4*>(args.qkv + uint64_t{token} * args.qkv_columns +
                                                           head * args.head_dim + word * 8);
      const float4 a = from[0], b = from[1];
      bits = {half2_bits(__floats2half2_rn(a.x, a.y)), half2_bits(__floats2half2_rn(a.z, a.w)),
              half2_bits(__floats2half2_rn(b.x, b.y)), half2_bits(__floats2half2_rn(b.z, b.w))};
    }
    query[row * kQueryWords<kDims> + word] = bits;
  }
}

// Where a tile of 16 keys lies; tiles never cross a block.
struct Tile {
  const uint8_t *keys, *values;
  const float *key_scales = nullptr, *value_scales = nullptr;
};

template <KvDType D>
__device__ bool find_tile(const KvLayer& kv, uint32_t slot, uint32_t key_first, uint32_t head, Tile* tile) {
  const int64_t k = kv.vector_index(slot, key_first, 0, head), v = kv.vector_index(slot, key_first, 1, head);
  if (k < 0) return false;
  tile->keys = kv.data + k * kv.head_dim * kKvBytes<D>;
  tile->values = kv.data + v * kv.head_dim * kKvBytes<D>;
  if (kv.scales) {
    tile->key_scales = kv.scales + k * scales_of_vector<D>(kv);
    tile->value_scales = kv.scales + v * scales_of_vector<D>(kv);
  }
  return true;
}

// One tile: scores, weights, outputs. `tokens`: of the lane's two rows, in an item of `num_tokens` whose first one is
// at `position`; with runs.
template <KvDType D, int kDims, bool kHasRuns>
__device__ void attend_tile(Accumulator<kDims>& acc, const uint4* query, const KvLayer& kv, const Tile& tile,
                            const ScoreRule& rule, uint32_t key_first, uint32_t position, const uint32_t (&tokens)[2],
                            uint32_t num_tokens) {
  const uint32_t g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  const uint32_t vector_bytes = kv.head_dim * kKvBytes<D>, num_words = kv.head_dim / 8;
  const uint32_t num_scales = scales_of_vector<D>(kv);
  const auto in_range = [&](uint32_t key) { return key >= rule.key_begin && key < rule.key_end; };

  KvWord<D> k_words[2][kDims / 32];
#pragma unroll
  for (uint32_t j = 0; j < 2; ++j) {
    const uint32_t key = j * 8 + g;
#pragma unroll
    for (uint32_t i = 0; i < kDims / 32; ++i)
      k_words[j][i] =
          i * 4 + t < num_words && in_range(key_first + key)
              ? load_word<D>(tile.keys + key * vector_bytes, i * 4 + t, i * 4 + t, tile.key_scales + key * num_scales)
              : KvWord<D>{};
  }
  // Asked for with the keys: they would be waited for again behind the products.
  [[maybe_unused]] float key_scale[2][2], value_scale[2][2];
  if constexpr (kVectorScales<D>) {
#pragma unroll
    for (uint32_t j = 0; j < 2; ++j)
#pragma unroll
      for (uint32_t c = 0; c < 2; ++c) {
        const uint32_t offset = j * 8 + 2 * t + c;
        const bool has_scale = tile.key_scales && in_range(key_first + offset);
        key_scale[j][c] = has_scale ? tile.key_scales[offset] : 1.0f;
        value_scale[j][c] = has_scale ? tile.value_scales[offset] : kv.value_scale;
      }
  }
  float s[2][4] = {};
#pragma unroll
  for (uint32_t i = 0; i < kDims / 32; ++i) {
    const uint4 upper = query[g * kQueryWords<kDims> + i * 4 + t];
    const uint4 lower = query[(g + 8) * kQueryWords<kDims> + i * 4 + t];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      uint32_t numbers[4];
      decode_word<D>(k_words[j][i], numbers);
      add_products(s[j], upper, lower, numbers);
    }
  }
  // Values are asked for before the softmax, which needs the time; wide heads have no registers to hold them all.
  constexpr int kHalves = kDims / 64;
  constexpr bool kEarly = kHalves <= 2;
  const auto load_values = [&](uint32_t h, KvWord<D>(&v)[4]) {
#pragma unroll
    for (uint32_t n = 0; n < 4; ++n) {
      const uint32_t key = 2 * t + n % 2 + n / 2 * 8;
      v[n] = h * 8 + g < num_words && in_range(key_first + key)
                 ? load_word<D>(tile.values + key * vector_bytes, h * 8 + g, h * 8 + g,
                                tile.value_scales + key * num_scales)
                 : KvWord<D>{};
    }
  };
  KvWord<D> v_words[kEarly ? kHalves : 1][4];
  if constexpr (kEarly) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) load_values(h, v_words[h]);
  }

#pragma unroll
  for (uint32_t j = 0; j < 2; ++j) {
#pragma unroll
    for (uint32_t c = 0; c < 4; ++c) {
      const uint32_t offset = j * 8 + 2 * t + c % 2, key = key_first + offset;
      const bool seen = rule.sees(key, position + (kHasRuns ? tokens[c / 2] : 0));
      float product = s[j][c];
      if constexpr (kVectorScales<D>) product *= key_scale[j][c % 2] * kKvUnit<D>;
      s[j][c] = seen ? rule.score(product) : -INFINITY;
    }
  }
  acc.template weigh<2>(s);
  if constexpr (kVectorScales<D>) {
#pragma unroll
    for (uint32_t j = 0; j < 2; ++j)
#pragma unroll
      for (uint32_t c = 0; c < 4; ++c) {
        const float factor = value_scale[j][c % 2] * (kKvUnit<D> * kValueGain<D>);
        // Where the token sees no key no number need be.
        const bool seen = !kHasRuns || rule.sees(key_first + j * 8 + 2 * t + c % 2, position + tokens[c / 2]);
        s[j][c] *= seen ? factor : 0.0f;
      }
  }
  uint32_t weights[4];
  pack_weights(s[0], s[1], weights);
  // Whether all tokens see the same keys of the tile.
  const bool is_alike = num_tokens == 1 || (key_first + kTileKeys - 1 <= position &&
                                            (rule.window == 0 || key_first + rule.window >= position + num_tokens));
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    if constexpr (!kEarly) load_values(h, v_words[0]);
    const KvWord<D>(&words)[4] = v_words[kEarly ? h : 0];
    if (!kHasRuns || is_alike) {
      acc.template add_values<D>(h, weights, words);
    } else if constexpr (kHasRuns) {
      // Values that a token does not see must be no numbers of its sums, and need not be finite.
      for (uint32_t token = 0; token < num_tokens; ++token) {
        KvWord<D> seen[4];
#pragma unroll
        for (uint32_t n = 0; n < 4; ++n)
          seen[n] = rule.sees(key_first + 2 * t + n % 2 + n / 2 * 8, position + token) ? words[n] : KvWord<D>{};
        acc.template add_values<D>(h, weights, seen, tokens[0] == token, tokens[1] == token);
      }
    }
  }
}

// The warps' results, merged.
template <KvDType D, int kDims, bool kHasRuns>
__device__ void write_rows(Accumulator<kDims>& acc, float* shared, const AttentionArgs& args, const AttentionItem& item,
                           const RowTile& rows) {
  const uint32_t num_rows = rows.num_rows;
  uint32_t splits = 0;  // from a token's partial results to the next one's
  if (kHasRuns && item.partial >= 0)
    splits = input_array<MergeItem>(args.inputs, kFwdMerges)[item.merge_idx].num_partials;
  const uint32_t warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  float* maxima = shared;                 // [warp][row]
  float* sums = maxima + kWarps * kRows;  // [warp][row]
  float* values = sums + kWarps * kRows;  // [warp][num_rows][kDims]
  acc.finish_sums();
  if (t == 0) {
    for (int half = 0; half < 2; ++half) {
      maxima[warp * kRows + half * 8 + g] = acc.max[half];
      sums[warp * kRows + half * 8 + g] = acc.sum[half];
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t row = half * 8 + g;
    if (row >= num_rows) continue;
#pragma unroll
    for (int h = 0; h < kDims / 64; ++h)
#pragma unroll
      for (int c = 0; c < 2; ++c)
#pragma unroll
        for (int d = 0; d < 8; ++d)
          values[(warp * num_rows + row) * kDims + (h * 8 + 2 * t + c) * 8 + d] = acc.out[h][d][half * 2 + c];
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < num_rows * args.head_dim / 8; i += kThreads) {
    const uint32_t row = i / (args.head_dim / 8), dim = i % (args.head_dim / 8) * 8;
    const uint32_t token = rows.token<kHasRuns>(row), head = rows.head<kHasRuns>(row);
    float most = -INFINITY, sum = 0, out[8] = {};
    for (uint32_t w = 0; w < kWarps; ++w) most = fmaxf(most, maxima[w * kRows + row]);
    const float base = most == -INFINITY ? 0.0f : most;
    for (uint32_t w = 0; w < kWarps; ++w) {
      const float factor = exp2f(maxima[w * kRows + row] - base);
      sum = fmaf(factor, sums[w * kRows + row], sum);
#pragma unroll
      for (int d = 0; d < 8; ++d) out[d] = fmaf(factor, values[(w * num_rows + row) * kDims + dim + d], out[d]);
    }
    if (item.partial < 0) {
      sum = sum > 0 ? sum + sink_weight(args, head, most) : sum;
      const float inverse = sum > 0 ? 1.0f / (sum * kValueGain<D>) : sum;  // a NaN stays one
#pragma unroll
      for (int d = 0; d < 8; ++d) out[d] *= inverse;
      const uint64_t to = uint64_t{item.token_first + token} * args.num_heads + head;
      store_eight(args.out, args.out_dtype, to * args.head_dim + dim, out);
    } else {
      const uint64_t partial = uint64_t{static_cast<uint32_t>(item.partial) + token * splits} * args.num_heads + head;
#pragma unroll
      for (int d = 0; d < 8; ++d) out[d] *= 1.0f / kValueGain<D>;
      store_eight(reinterpret_cast<std::byte*>(args.partial_values), DType::kF32, partial * args.head_dim + dim, out);
      if (dim == 0) {
        args.partial_sums[partial * 2] = most;
        args.partial_sums[partial * 2 + 1] = sum;
      }
    }
  }
}

// With runs all first tiles of rows come first, as the others are nearly all empty.
template <KvDType D, int kDims, bool kHasRuns>
__global__ void __launch_bounds__(kThreads, kDims <= 128 ? 3 : 2) attention_decode_kernel(AttentionArgs args) {
  uint4* query = reinterpret_cast<uint4*>(dynamic_shared());
  float* results = reinterpret_cast<float*>(query + kRows * kQueryWords<kDims>);
  const uint32_t warp = threadIdx.x / kWarp, half_row = threadIdx.x % kWarp / 4;
  const AttentionItem* items = input_array<AttentionItem>(args.inputs, kFwdDecodeItems);
  const uint32_t num_items = args.inputs[kFwdNumDecodeItems], num_kv_heads = args.kv.num_kv_heads;
  const uint32_t group_heads = args.num_heads / num_kv_heads;
  const uint32_t row_tiles = ((kHasRuns ? kDecodeItemTokens : 1) * group_heads + kRows - 1) / kRows;
  const uint32_t num_works = num_items * num_kv_heads * row_tiles;
  const auto item_of = [&](uint32_t work) {
    return items[kHasRuns ? work / num_kv_heads % num_items : work / (num_kv_heads * row_tiles)];
  };
  AttentionItem item{};
  if (blockIdx.x < num_works) item = item_of(blockIdx.x);
  grid_dependency_wait();
  for (uint32_t work = blockIdx.x; work < num_works; work += gridDim.x) {
    if (work != blockIdx.x) item = item_of(work);
    const uint32_t row_tile = kHasRuns ? work / (num_kv_heads * num_items) : work % row_tiles;
    const uint32_t item_rows = (kHasRuns ? item.num_tokens : 1) * group_heads, row_first = row_tile * kRows;
    if (kHasRuns && row_first >= item_rows) continue;  // the whole block
    const uint32_t kv_head = (kHasRuns ? work : work / row_tiles) % num_kv_heads;
    const RowTile rows{kv_head, group_heads, row_first, min(kRows, item_rows - row_first)};
    __syncthreads();  // the work before has been written
    load_queries<kDims, kHasRuns>(query, args, item.token_first, rows);
    __syncthreads();
    const ScoreRule rule{item.key_begin, item.key_end, args.window, args.scale, args.soft_cap};
    const uint32_t last_token = kHasRuns ? item.num_tokens - 1 : 0;
    const uint32_t tokens[2] = {min(rows.token<kHasRuns>(half_row), last_token),
                                min(rows.token<kHasRuns>(half_row + 8), last_token)};
    Accumulator<kDims> acc;
    for (uint32_t key = item.key_begin / kTileKeys * kTileKeys + warp * kTileKeys; key < item.key_end;
         key += kWarps * kTileKeys) {
      Tile tile;
      if (find_tile<D>(args.kv, item.slot, key, kv_head, &tile))
        attend_tile<D, kDims, kHasRuns>(acc, query, args.kv, tile, rule, key, item.position_first, tokens,
                                        item.num_tokens);
    }
    write_rows<D, kDims, kHasRuns>(acc, results, args, item, rows);
  }
}

template <bool kHasRuns>
void lay_out(const AttentionShape& shape, const DeviceFacts& device, AttentionChoice* choice) {
  with_kv_type(shape.pool.dtype, shape.head_dim, [&]<KvDType D, int kDims>() {
    constexpr uint32_t kBlocksPerSm = kDims <= 128 ? 3 : 2;
    const uint32_t item_rows = (kHasRuns ? kDecodeItemTokens : 1) * shape.num_heads / shape.pool.num_kv_heads;
    choice->grid = {device.num_sms * kBlocksPerSm};
    choice->threads = kThreads;
    choice->shared_bytes =
        kRows * kQueryWords<kDims> * 16 + kWarps * (2 * kRows + std::min(item_rows, kRows) * kDims) * 4;
  });
}

template <bool kHasRuns>
Status attend(const AttentionChoice& choice, const AttentionArgs& args, KvDType dtype, const OpContext& at) {
  return with_kv_type(dtype, args.head_dim, [&]<KvDType D, int kDims>() {
    return launch(at, choice, attention_decode_kernel<D, kDims, kHasRuns>, args);
  });
}

}  // namespace llmrt::cuda::decode_tiles
