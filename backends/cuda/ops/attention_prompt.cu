// paged_attention for prompt chunks: bound by the matrix units.
//
// An item is up to 64 query tokens of a row and all or some of their keys. A block takes (item, query head) pairs from
// a persistent grid; its 4 warps have 16 query rows each. Keys and values come in tiles of 64 (or fewer) through two
// stages of shared memory, as they are stored; a tile is copied while the one before is multiplied. The online softmax
// keeps f32 maxima and sums; products in f16 with f32 sums. Words of 8 dims stand swizzled, so that the lanes of a
// quarter warp read different banks (see key_place and value_place).
#include "backends/cuda/choose.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/attention.h"
#include "backends/cuda/step_inputs.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kWarps = 4, kThreads = kWarps * kWarp;
constexpr uint32_t kRows = kWarps * 16, kStages = 2;
static_assert(kPromptItemTokens == kRows);

// A row of shared memory holds the words of one key: 16 or 8 bytes each, at least 128 bytes in all.
template <KvDType D, int kDims, uint32_t kKeys>
struct Layout {
  static constexpr uint32_t kTileKeys = kKeys;
  static constexpr uint32_t kWordBytes = 8 * kKvBytes<D>;
  static constexpr uint32_t kRowBytes = kDims / 8 * kWordBytes < 128 ? 128 : kDims / 8 * kWordBytes;
  static constexpr uint32_t kTileBytes = kTileKeys * kRowBytes;
  static constexpr uint32_t kScalesKey = kBlockScales<D> ? kDims / kKvScaleBlock : kVectorScales<D> ? 1 : 0;
  static constexpr uint32_t kScaleBytes = kTileKeys * kScalesKey * 4;
  static constexpr uint32_t kStageBytes = 2 * (kTileBytes + kScaleBytes);  // keys, values, scales of each
  static constexpr uint32_t kQueryWords = kDims / 8 + 4;                   // of 16 bytes in a row of q
  static constexpr uint32_t kQueryBytes = kRows * kQueryWords * 16;
  static constexpr uint32_t kSharedBytes = kQueryBytes + kStages * kStageBytes;

  // Scores read words 4 * i + t of keys g and its neighbours.
  __device__ static uint32_t key_place(uint32_t key, uint32_t word) {
    return word ^ (kKvBytes<D> == 1 ? (key & 3) << 2 : (key & 1) << 2);
  }
  // Outputs read words g and its neighbours of keys 2t.
  __device__ static uint32_t value_place(uint32_t key, uint32_t word) {
    return word ^ (kKvBytes<D> == 1 ? (key >> 1 & 3) << 2 : (key >> 1 & 3) << 1);
  }
};

// Keys of a tile on devices where one of 64 has no room: Turing gives a block 64 KB of shared memory, others 99.
template <KvDType D, int kDims>
inline constexpr uint32_t kFewKeys = (kDims > 128 ? 32 : 64) / kKvBytes<D>;
constexpr uint32_t kSharedBytesLeast = 64 << 10;  // of all devices

template <int kDims>
__device__ void load_queries(uint4* query, const AttentionArgs& args, const AttentionItem& item, uint32_t head) {
  constexpr uint32_t kQueryWords = kDims / 8 + 4;
  for (uint32_t i = threadIdx.x; i < kRows * kDims / 8; i += kThreads) {
    const uint32_t row = i / (kDims / 8), word = i % (kDims / 8);
    uint4 bits = {};
    if (row < item.num_tokens && word * 8 < args.head_dim) {
      const float4* from = reinterpret_cast<const float4*>(
          args.qkv + uint64_t{item.token_first + row} * args.qkv_columns + head * args.head_dim + word * 8);
      const float4 a = from[0], b = from[1];
      bits = {half2_bits(__floats2half2_rn(a.x, a.y)), half2_bits(__floats2half2_rn(a.z, a.w)),
              half2_bits(__floats2half2_rn(b.x, b.y)), half2_bits(__floats2half2_rn(b.z, b.w))};
    }
    query[row * kQueryWords + word] = bits;
  }
}

// Starts the copy of keys [key_first, + a tile's) and their values; keys outside [begin, end) and dims past head_dim
// are zeros.
template <class L, KvDType D, int kDims>
__device__ void copy_tile(uint8_t* stage, const KvLayer& kv, const AttentionItem& item, uint32_t kv_head,
                          uint32_t key_first) {
  constexpr uint32_t kTileKeys = L::kTileKeys;
  constexpr uint32_t kPieces = kDims * kKvBytes<D> / 16;  // 16 bytes each: one word, or two of 8 bits
  constexpr uint32_t kWordsPiece = 16 / L::kWordBytes;
  for (uint32_t i = threadIdx.x; i < 2 * kTileKeys * kPieces; i += kThreads) {
    const uint32_t piece = i % kPieces, which = i / (kTileKeys * kPieces), row = i / kPieces % kTileKeys;
    const uint32_t key = key_first + row;
    const int64_t vector =
        key >= item.key_begin && key < item.key_end ? kv.vector_index(item.slot, key, which, kv_head) : -1;
    const bool inside = vector >= 0 && piece * 16 < kv.head_dim * kKvBytes<D>;
    const uint8_t* from = kv.data + (inside ? vector * kv.head_dim * kKvBytes<D> + piece * 16 : 0);
    const uint32_t word = piece * kWordsPiece;
    const uint32_t place = which ? L::value_place(row, word) : L::key_place(row, word);
    copy_async<16>(stage + which * L::kTileBytes + row * L::kRowBytes + place * L::kWordBytes, from, inside);
  }
  if constexpr (L::kScalesKey > 0) {
    float* scales = reinterpret_cast<float*>(stage + 2 * L::kTileBytes);
    const uint32_t num_scales = scales_of_vector<D>(kv);
    for (uint32_t i = threadIdx.x; i < 2 * kTileKeys * L::kScalesKey; i += kThreads) {
      const uint32_t part = i % L::kScalesKey, row = i / L::kScalesKey, which = row / kTileKeys;
      const uint32_t key = key_first + row % kTileKeys;
      const int64_t vector = key >= item.key_begin && key < item.key_end && part < num_scales
                                 ? kv.vector_index(item.slot, key, which, kv_head)
                                 : -1;
      const float scale = vector < 0  ? 0.0f
                          : kv.scales ? kv.scales[vector * num_scales + part]
                          : which     ? kv.value_scale
                                      : 1.0f;
      scales[i] = kVectorScales<D> ? scale * kKvUnit<D> : scale;
    }
  }
}

// One tile of keys for the 16 query rows of a warp, whose first is at position `first`.
template <class L, KvDType D, int kDims>
__device__ void attend_tile(Accumulator<kDims>& acc, const uint4* query, const uint8_t* stage, const ScoreRule& rule,
                            uint32_t key_first, uint32_t first) {
  constexpr uint32_t kTileKeys = L::kTileKeys;
  constexpr int kTiles = kTileKeys / 8;
  const uint32_t g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  const uint8_t* keys = stage;
  const uint8_t* values = stage + L::kTileBytes;
  const float* key_scales = reinterpret_cast<const float*>(stage + 2 * L::kTileBytes);
  const float* value_scales = key_scales + kTileKeys * L::kScalesKey;

  float s[kTiles][4] = {};
#pragma unroll
  for (uint32_t i = 0; i < kDims / 32; ++i) {
    const uint4 upper = query[g * L::kQueryWords + i * 4 + t];
    const uint4 lower = query[(g + 8) * L::kQueryWords + i * 4 + t];
#pragma unroll
    for (uint32_t j = 0; j < kTiles; ++j) {
      const uint32_t row = j * 8 + g;
      uint32_t numbers[4];
      const uint32_t word = i * 4 + t;
      decode_word<D>(
          load_word<D>(keys + row * L::kRowBytes, L::key_place(row, word), word, key_scales + row * L::kScalesKey),
          numbers);
      add_products(s[j], upper, lower, numbers);
    }
  }
#pragma unroll
  for (uint32_t j = 0; j < kTiles; ++j) {
#pragma unroll
    for (uint32_t c = 0; c < 4; ++c) {
      const uint32_t row = j * 8 + 2 * t + c % 2;
      float product = s[j][c];
      if constexpr (kVectorScales<D>) product *= key_scales[row];
      s[j][c] = rule.sees(key_first + row, first + g + c / 2 * 8) ? rule.score(product) : -INFINITY;
    }
  }
  acc.template weigh<kTiles>(s);
#pragma unroll
  for (uint32_t k = 0; k < kTiles / 2; ++k) {  // 16 keys
    if constexpr (kVectorScales<D>) {
#pragma unroll
      for (uint32_t j = 2 * k; j < 2 * k + 2; ++j)
#pragma unroll
        for (uint32_t c = 0; c < 4; ++c) s[j][c] *= value_scales[j * 8 + 2 * t + c % 2] * kValueGain<D>;
    }
    uint32_t weights[4];
    pack_weights(s[2 * k], s[2 * k + 1], weights);
#pragma unroll
    for (uint32_t h = 0; h < kDims / 64; ++h) {
      KvWord<D> v[4];
#pragma unroll
      for (uint32_t n = 0; n < 4; ++n) {
        const uint32_t row = k * 16 + 2 * t + n % 2 + n / 2 * 8;
        const uint32_t word = h * 8 + g;
        v[n] = load_word<D>(values + row * L::kRowBytes, L::value_place(row, word), word,
                            value_scales + row * L::kScalesKey);
      }
      acc.template add_values<D>(h, weights, v);
    }
  }
}

template <KvDType D, int kDims>
__device__ void write_rows(Accumulator<kDims>& acc, const AttentionArgs& args, const AttentionItem& item,
                           uint32_t head) {
  const uint32_t warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  acc.finish_sums();
#pragma unroll
  for (uint32_t half = 0; half < 2; ++half) {
    const uint32_t row = warp * 16 + half * 8 + g;
    if (row >= item.num_tokens) continue;
    // A split's values are not divided by its sum.
    const bool is_split = item.partial >= 0;
    float sum = acc.sum[half];
    if (!is_split && sum > 0) sum += sink_weight(args, head, acc.max[half]);
    const float inverse = is_split ? 1.0f / kValueGain<D> : sum > 0 ? 1.0f / (sum * kValueGain<D>) : sum;
    const uint64_t partial =
        (uint64_t{static_cast<uint32_t>(item.partial)} + row * item.partial_stride) * args.num_heads + head;
    if (is_split && t == 0) {
      args.partial_sums[partial * 2] = acc.max[half];
      args.partial_sums[partial * 2 + 1] = sum;
    }
#pragma unroll
    for (uint32_t h = 0; h < kDims / 64; ++h) {
#pragma unroll
      for (uint32_t c = 0; c < 2; ++c) {
        const uint32_t dim = (h * 8 + 2 * t + c) * 8;
        if (dim >= args.value_dim) continue;
        float out[8];
#pragma unroll
        for (int d = 0; d < 8; ++d) out[d] = acc.out[h][d][half * 2 + c] * inverse;
        if (is_split)
          store_eight(reinterpret_cast<std::byte*>(args.partial_values), DType::kF32, partial * args.head_dim + dim,
                      out);
        else
          store_eight(args.out, args.out_dtype,
                      uint64_t{item.token_first + row} * args.out_columns + head * args.value_dim + dim, out);
      }
    }
  }
}

template <KvDType D, int kDims, uint32_t kTileKeys>
__global__ void __launch_bounds__(kThreads) attention_prompt_kernel(AttentionArgs args) {
  grid_dependency_wait_alone();
  grid_dependency_release();  // now the next kernel may read what was waited for
  using L = Layout<D, kDims, kTileKeys>;
  uint4* query = reinterpret_cast<uint4*>(dynamic_shared());
  uint8_t* stages = dynamic_shared() + L::kQueryBytes;
  const uint32_t warp = threadIdx.x / kWarp;
  const AttentionItem* items = input_array<AttentionItem>(args.inputs, kFwdPromptItems);
  const uint32_t num_works = args.inputs[kFwdNumPromptItems] * args.num_heads;
  for (uint32_t work = blockIdx.x; work < num_works; work += gridDim.x) {
    const AttentionItem item = items[work / args.num_heads];
    const uint32_t head = work % args.num_heads, kv_head = head / (args.num_heads / args.kv.num_kv_heads);
    const ScoreRule rule{item.key_begin, item.key_end, args.window, args.scale, args.soft_cap};
    const uint32_t begin = item.key_begin / kTileKeys, end = (item.key_end + kTileKeys - 1) / kTileKeys;
    __syncthreads();  // everyone has left the queries and tiles of the work before
    load_queries<kDims>(query, args, item, head);
    copy_tile<L, D, kDims>(stages, args.kv, item, kv_head, begin * kTileKeys);
    copy_async_commit();
    Accumulator<kDims> acc;
    for (uint32_t tile = begin; tile < end; ++tile) {
      uint8_t* stage = stages + (tile - begin) % kStages * L::kStageBytes;
      uint8_t* other = stages + (tile - begin + 1) % kStages * L::kStageBytes;
      if (tile + 1 < end) copy_tile<L, D, kDims>(other, args.kv, item, kv_head, (tile + 1) * kTileKeys);
      copy_async_commit();
      copy_async_wait<1>();
      __syncthreads();
      attend_tile<L, D, kDims>(acc, query + warp * 16 * L::kQueryWords, stage, rule, tile * kTileKeys,
                               item.position_first + warp * 16);
      __syncthreads();
    }
    write_rows<D, kDims>(acc, args, item, head);
  }
}

// fn.template operator()<D, kDims, kTileKeys>() for the tile of that many keys.
template <class Fn>
auto with_tile(KvDType dtype, uint32_t head_dim, uint32_t tile_keys, Fn fn) {
  return with_kv_type(dtype, head_dim, [&]<KvDType D, int kDims>() {
    if constexpr (Layout<D, kDims, 64>::kSharedBytes > kSharedBytesLeast)
      if (tile_keys != 64) return fn.template operator()<D, kDims, kFewKeys<D, kDims>>();
    return fn.template operator()<D, kDims, 64>();
  });
}

}  // namespace

Status check_prompt_tiles(const AttentionShape& shape, const DeviceFacts& device) {
  const uint32_t most = attention_head_dim_max(device.shared_bytes_max);
  if (shape.head_dim <= most) return {};
  return make_error(ErrorCode::kUnsupported,
                    "paged_attention: {} bytes of shared memory a block have room for heads of {} numbers, found {}",
                    device.shared_bytes_max, most, shape.head_dim);
}

void lay_out_prompt_tiles(const AttentionShape& shape, const DeviceFacts& device, AttentionChoice* choice) {
  const KvDType dtype = shape.pool.dtype;
  choice->tile_keys = with_kv_type(dtype, shape.head_dim, [&]<KvDType D, int kDims>() {
    constexpr uint32_t kShared = Layout<D, kDims, 64>::kSharedBytes;
    return kShared > kSharedBytesLeast && kShared > device.shared_bytes_max ? kFewKeys<D, kDims> : 64u;
  });
  with_tile(dtype, shape.head_dim, choice->tile_keys, [&]<KvDType D, int kDims, uint32_t kTileKeys>() {
    constexpr uint32_t kBlocksPerSm = kDims <= 128 ? 2 : 1;
    choice->grid = {device.num_sms * kBlocksPerSm};
    choice->threads = kThreads;
    choice->shared_bytes = Layout<D, kDims, kTileKeys>::kSharedBytes;
    choice->stages = kStages;
  });
}

Status attend_prompt(const AttentionChoice& choice, const AttentionArgs& args, KvDType dtype, const OpContext& at) {
  return with_tile(dtype, args.head_dim, choice.tile_keys, [&]<KvDType D, int kDims, uint32_t kTileKeys>() {
    return launch(at, choice, attention_prompt_kernel<D, kDims, kTileKeys>, args);
  });
}

uint32_t attention_head_dim_max(uint32_t shared_bytes_max) {
  constexpr uint32_t kLongHeads =
      std::max(Layout<KvDType::kF16, 256, kFewKeys<KvDType::kF16, 256>>::kSharedBytes,
               Layout<KvDType::kI8Block, 256, kFewKeys<KvDType::kI8Block, 256>>::kSharedBytes);
  return shared_bytes_max >= kLongHeads ? 256 : 128;
}

}  // namespace llmrt::cuda
