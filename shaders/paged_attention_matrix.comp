// Attention for prompt items on matrix units (KHR cooperative matrix): f16 factors, f32 sums, online softmax in f32.
// Grid: x walks the items, y = KV head, z = tile of the item's rows. A subgroup owns kM rows: their queries stay in its
// fragments, their outputs in its sums; only scores and weights pass through its part of shared memory. Tiles of
// kTileKeys keys and values are shared by the group. 8-bit numbers are multiplied as they are; the scale of a key
// is applied to its score, that of a value to its weight (times kValueGain, so that f16 holds the weights as well as it
// would hold the values). Scales of blocks are applied before.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "types.glsl"
#include "paged.glsl"

layout(constant_id = 14) const uint kSubgroups = 4;
layout(constant_id = 15) const uint kM = 16;  // the device's shape: rows of q
layout(constant_id = 16) const uint kN = 16;  // keys, or dimensions of a value
layout(constant_id = 17) const uint kK = 16;  // dimensions of a key, or keys

const uint kTileKeys = 32;
const uint kTileRows = kSubgroups * kM;       // at most 2 * kTileKeys: the queries pass through kv_tile
const uint kStride = kHeadDim / 8 + 1;        // of kv_tile, with 16 bytes of padding against bank conflicts
const uint kScoreStride = kTileKeys + 4;      // in floats
const uint kWeightStride = kTileKeys / 8 + 1;
const uint kRowLanes = kSubgroup / kM;        // lanes that share a row of scores
const uint kLaneKeys = kTileKeys / kRowLanes;
const uint kDimFrags = kHeadDim / kN;
const bool kScaled = kBytes && !kBlockScales;
const float kUnit = kF8 ? 256.0 : 1.0;  // of a scaled number as f16 (f8_halves)
const float kValueGain = kScaled && !kF8 ? 128.0 : 1.0;
// Eight f16 a uvec4, also because matrices are loaded from multiples of 16 bytes: the type aligns the arrays.
shared uvec4 kv_tile[2 * kTileKeys * kStride];                        // keys, then values
shared uvec4 weights[kSubgroups * kM * kWeightStride];
shared float scores[kSubgroups * kM * kScoreStride];                  // later the rows' factors, at last their outputs
shared float tile_scales[kScaled ? 2 * kTileKeys : 4];

uvec2 to_halves(vec4 v) { return uvec2(packHalf2x16(v.xy), packHalf2x16(v.zw)); }
uvec4 to_halves(vec4 a, vec4 b) { return uvec4(to_halves(a), to_halves(b)); }
// Numbers of four bytes as f16, in units of kUnit where there are scales to be applied later.
uvec2 byte_halves(uint word, float factor) {
  if (!kScaled) return to_halves(byte_values(word) * factor);
  return kF8 ? f8_halves(word) : to_halves(i8_values(word));
}

void load_queries(Item item, uint kv_head, uint group_heads, uint row_first, uint num_rows) {
  const uint kOctets = kHeadDim / 8u;
  for (uint i = gl_LocalInvocationIndex; i < kTileRows * kOctets; i += gl_WorkGroupSize.x) {
    uint r = i / kOctets, octet = i % kOctets, row = min(row_first + r, num_rows - 1u);
    uint first = q_first(item.token_first + row / group_heads, kv_head * group_heads + row % group_heads);
    uint from = first / 4u + 2u * octet;
    kv_tile[r * kStride + octet] = to_halves(Vec4s(qkv).v[from], Vec4s(qkv).v[from + 1u]);
  }
}

// 8 numbers at a time. Keys from key_end on are the last one again, so that every number is one that was written.
void load_keys(Item item, uint kv_head, uint key_first, uint key_end) {
  const uint kOctets = kHeadDim / 8u;
  for (uint i = gl_LocalInvocationIndex; i < 2 * kTileKeys * kOctets; i += gl_WorkGroupSize.x) {
    uint k = i / kOctets, octet = i % kOctets, key = min(key_first + k % kTileKeys, key_end - 1u);
    uint vector = kv_vector(item.slot, key, k / kTileKeys, kv_head), to = k * kStride + octet;
    if (kBytes) {
      uint from = vector * (kHeadDim / 4u) + octet * 2u;
      float factor = kv_scale(vector, octet, k < kTileKeys ? 1.0 : v_scale);
      kv_tile[to] = uvec4(byte_halves(data.w[from], factor), byte_halves(data.w[from + 1u], factor));
      if (kScaled && octet == 0u) tile_scales[k] = factor * kUnit;
    } else {
      uvec4 q = Quads(data).q[vector * kOctets + octet];
      kv_tile[to] = kKvDType == kKvF16 ? q
                                   : to_halves(vec4(unpack16(q.x, kKvDType), unpack16(q.y, kKvDType)),
                                               vec4(unpack16(q.z, kKvDType), unpack16(q.w, kKvDType)));
    }
  }
}

// The subgroup's scores become weights, and the factors of what is summed so far take the scores' place. A lane has
// every kRowLanes-th octet of its row's keys.
void weigh(uint key_first, uint key_end, uint position, inout float largest, inout float sum) {
  uint row = gl_SubgroupID * kM + gl_SubgroupInvocationID / kRowLanes, part = gl_SubgroupInvocationID % kRowLanes;
  float score[kLaneKeys], now = largest;
  [[unroll]] for (uint j = 0; j < kLaneKeys; ++j) {
    uint k = (part + j / 8u * kRowLanes) * 8u + j % 8u, key = key_first + k;
    float product = scores[row * kScoreStride + k];
    if (kScaled) product *= tile_scales[k];
    score[j] = key < key_end ? finish_score(product, key, position) : -kInfinity;
    now = max(now, score[j]);
  }
  for (uint mask = 1; mask < kRowLanes; mask *= 2u) now = max(now, subgroupShuffleXor(now, mask));
  float factor = exp(largest - now), added = 0.0;
  largest = now;
  [[unroll]] for (uint j = 0; j < kLaneKeys; j += 8u) {
    uint k = (part + j / 8u * kRowLanes) * 8u;
    float w[8];
    [[unroll]] for (uint e = 0; e < 8; ++e) {
      w[e] = exp(score[j + e] - now);
      added += w[e];
      if (kScaled) w[e] *= tile_scales[kTileKeys + k + e] * kValueGain;
    }
    weights[row * kWeightStride + k / 8u] = to_halves(vec4(w[0], w[1], w[2], w[3]), vec4(w[4], w[5], w[6], w[7]));
  }
  sum = sum * factor + added;  // of this lane's keys
  subgroupBarrier();           // all scores have been read
  for (uint n = part; n < kN; n += kRowLanes) scores[row * kScoreStride + n] = factor;
  subgroupBarrier();
}

void run(Item item, uint kv_head) {
  uint group_heads = num_heads / num_kv_heads, num_rows = item.num_tokens * group_heads;
  uint row_first = gl_WorkGroupID.z * kTileRows;
  if (row_first >= num_rows) return;
  barrier();  // an earlier item may still be read
  load_queries(item, kv_head, group_heads, row_first, num_rows);
  barrier();
  uint own_rows = gl_SubgroupID * kM;
  coopmat<float16_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA> q[kHeadDim / kK];
  [[unroll]] for (uint d = 0; d < kHeadDim / kK; ++d)
    coopMatLoad(q[d], kv_tile, own_rows * kStride + d * (kK / 8u), kStride, gl_CooperativeMatrixLayoutRowMajor);
  coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> sums[kDimFrags];
  [[unroll]] for (uint d = 0; d < kDimFrags; ++d)
    sums[d] = coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(0.0);
  uint row = own_rows + gl_SubgroupInvocationID / kRowLanes;
  uint position = item.position_first + min(row_first + row, num_rows - 1u) / group_heads;
  float largest = kNoScore, sum = 0.0;
  // Keys beyond the last row's position count for nobody.
  uint last_position = item.position_first + (min(row_first + kTileRows, num_rows) - 1u) / group_heads;
  uint key_end = min(item.key_end, last_position + 1u);
  for (uint key = item.key_begin; key < key_end; key += kTileKeys) {
    barrier();  // the queries, or the tile before, have been read
    load_keys(item, kv_head, key, key_end);
    barrier();
    [[unroll]] for (uint n = 0; n < kTileKeys; n += kN) {
      coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> products =
          coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(0.0);
      [[unroll]] for (uint d = 0; d < kHeadDim / kK; ++d) {
        coopmat<float16_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB> b;
        coopMatLoad(b, kv_tile, n * kStride + d * (kK / 8u), kStride, gl_CooperativeMatrixLayoutColumnMajor);
        products = coopMatMulAdd(q[d], b, products);
      }
      coopMatStore(products, scores, own_rows * kScoreStride + n, kScoreStride, gl_CooperativeMatrixLayoutRowMajor);
    }
    subgroupBarrier();
    weigh(key, key_end, position, largest, sum);
    coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> factors;
    coopMatLoad(factors, scores, own_rows * kScoreStride, kScoreStride, gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint d = 0; d < kDimFrags; ++d) sums[d] *= factors;
    [[unroll]] for (uint k = 0; k < kTileKeys; k += kK) {
      coopmat<float16_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA> a;
      coopMatLoad(a, weights, own_rows * kWeightStride + k / 8u, kWeightStride, gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint d = 0; d < kDimFrags; ++d) {
        coopmat<float16_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB> b;
        coopMatLoad(b, kv_tile, (kTileKeys + k) * kStride + d * (kN / 8u), kStride, gl_CooperativeMatrixLayoutRowMajor);
        sums[d] = coopMatMulAdd(a, b, sums[d]);
      }
    }
    subgroupBarrier();  // the factors have been read: the next scores may come
  }
  for (uint mask = 1; mask < kRowLanes; mask *= 2u) sum += subgroupShuffleXor(sum, mask);
  bool is_split = item.partial >= 0;  // whose values are not divided by its sum
  float inverse = is_split ? 1.0 / kValueGain : sum > 0.0 ? 1.0 / (sum * kValueGain) : 0.0;
  uint token = (row_first + row) / group_heads, head = kv_head * group_heads + (row_first + row) % group_heads;
  uint to = partial_first(item, token, head);
  if (is_split && row_first + row < num_rows && gl_SubgroupInvocationID % kRowLanes == 0u) {
    partials.f[to] = largest;
    partials.f[to + 1u] = sum;
  }
  [[unroll]] for (uint d = 0; d < kDimFrags; ++d) {
    coopMatStore(sums[d], scores, own_rows * kScoreStride, kScoreStride, gl_CooperativeMatrixLayoutRowMajor);
    subgroupBarrier();
    if (row_first + row < num_rows) {
      for (uint n = gl_SubgroupInvocationID % kRowLanes; n < kN / 2u; n += kRowLanes) {
        uint from = row * kScoreStride + 2u * n;
        vec2 value = vec2(scores[from], scores[from + 1u]) * inverse;
        uint pair = d * (kN / 2u) + n;
        if (is_split) {
          partials.f[to + 2u + 2u * pair] = value.x;
          partials.f[to + 3u + 2u * pair] = value.y;
        } else {
          store_pair(result, ((item.token_first + token) * num_heads + head) * kHeadDim, kHeadDim, pair, value,
                     kOutDType);
        }
      }
    }
    subgroupBarrier();
  }
}

void main() {
  uint count = num_items();
  for (uint i = gl_WorkGroupID.x; i < count; i += gl_NumWorkGroups.x) run(load_item(i), gl_WorkGroupID.y);
}
