// Attention for prompt items on matrix units (KHR cooperative matrix): f16 factors, f32 sums, online softmax in f32.
// Grid: x walks the items, y = KV head, z = tile of the item's rows. A subgroup owns kRowFrags * kM rows: their queries
// stay in its fragments, their outputs in its sums; scores and weights of kM rows at a time pass through its part of
// shared memory. Tiles of kTileKeys keys and values are shared by the group; the loads of the next one are under way
// meanwhile, and those of the blocks of the one after. 8-bit numbers are multiplied as they are; the scale of a key
// is applied to its score, that of a value to its weight (times kValueGain, so that f16 holds the weights as well as it
// would hold the values). Scales of blocks are applied before.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "types.glsl"
#include "paged.glsl"
#include "sync.glsl"

layout(constant_id = 14) const uint kSubgroups = 4;
layout(constant_id = 15) const uint kM = 16;  // the device's shape: rows of q
layout(constant_id = 16) const uint kN = 16;  // keys, or dimensions of a value
layout(constant_id = 17) const uint kK = 16;  // dimensions of a key, or keys
layout(constant_id = 18) const uint kRowFrags = 1;
layout(constant_id = 19) const uint kTileKeys = 32;  // at least 8 for each lane of a row

const uint kRows = kRowFrags * kM;  // of a subgroup
const uint kTileRows = kSubgroups * kRows;
const uint kLanes = kSubgroups * kSubgroup;
const uint kOctets = kHeadDim / 8;
const uint kStride = kOctets + 1;       // of kv_tile, with 16 bytes of padding against bank conflicts
const uint kScoreStride = kTileKeys / 4 + 1;
const uint kRowLanes = kSubgroup / kM;  // lanes that share a row of scores
const uint kLaneKeys = kTileKeys / kRowLanes;
const uint kRun = kLaneKeys < 16 ? kLaneKeys : 16;  // a lane has every kRowLanes-th run of so many keys
const uint kDimFrags = kHeadDim / kN;
const bool kScaled = kBytes && !kBlockScales;
const float kUnit = kF8 ? 256.0 : 1.0;  // of a scaled number as f16 (f8_halves)
const float kValueGain = kScaled && !kF8 ? 128.0 : 1.0;
// Sums are scaled anew only when the maximum of a row has risen by more than this (in powers of two): f16 holds weights
// of up to 16 as well as those of up to 1, but their products with scales need its range.
const float kRise = kScaled ? 0.0 : 4.0;
// Eight f16 a uvec4, also because matrices are loaded from multiples of 16 bytes: the type aligns the arrays.
shared uvec4 kv_tile[2 * kTileKeys * kStride];         // keys, then values
shared uvec4 scratch[kSubgroups * kM * kScoreStride];  // queries; scores, factors, weights; at last outputs
shared vec4 tile_scales[kScaled ? kTileKeys / 2 : 1];  // of keys, then values

// A lane's share of the next tile, on its way from memory: octets of keys and of the same keys' values.
const uint kPieces = (kTileKeys * kOctets + kLanes - 1) / kLanes;
uint next_block[kPieces];
uvec4 next_k[kPieces], next_v[kPieces];
vec2 next_scale[kPieces];

uvec2 to_halves(vec4 v) { return uvec2(packFloat2x16(f16vec2(v.xy)), packFloat2x16(f16vec2(v.zw))); }
uvec4 to_halves(vec4 a, vec4 b) { return uvec4(to_halves(a), to_halves(b)); }
// Numbers of four bytes as f16, in units of kUnit where there are scales to be applied later.
uvec2 byte_halves(uint word, float factor) {
  if (!kScaled) return to_halves(byte_values(word) * factor);
  return kF8 ? f8_halves(word) : to_halves(i8_values(word));
}

bool has_piece(uint j) {
  return kTileKeys * kOctets % kLanes == 0 || j * kLanes + gl_LocalInvocationIndex < kTileKeys * kOctets;
}
// Keys from key_end on are the last one again, so that every number is one that was written.
uint piece_key(uint j, uint key_first, uint key_end) {
  return min(key_first + (j * kLanes + gl_LocalInvocationIndex) / kOctets, key_end - 1u);
}
void fetch_blocks(Item item, uint block_shift, uint key_first, uint key_end) {
  [[unroll]] for (uint j = 0; j < kPieces; ++j)
    next_block[j] = tables.w[item.slot * blocks_row_max + (piece_key(j, key_first, key_end) >> block_shift)];
}
// 8 numbers a piece.
uvec4 fetch_octet(uint vector, uint octet) {
  if (kBytes) return uvec4(Pairs(data).p[vector * kOctets + octet], 0u, 0u);
  return Quads(data).q[vector * kOctets + octet];
}
void fetch_keys(uint kv_head, uint key_first, uint key_end) {
  [[unroll]] for (uint j = 0; j < kPieces; ++j) {
    uint octet = (j * kLanes + gl_LocalInvocationIndex) % kOctets;
    uint at = piece_key(j, key_first, key_end) & (block_tokens - 1u);  // blocks are of 16, 32 or 64
    uint k = (next_block[j] * 2u * num_kv_heads + kv_head) * block_tokens + at, v = k + num_kv_heads * block_tokens;
    if (!has_piece(j)) continue;
    next_k[j] = fetch_octet(k, octet);
    next_v[j] = fetch_octet(v, octet);
    if (kBytes) next_scale[j] = vec2(kv_scale(k, octet, 1.0), kv_scale(v, octet, v_scale));
  }
}

uvec4 octet_halves(uvec4 q, float factor) {
  if (kBytes) return uvec4(byte_halves(q.x, factor), byte_halves(q.y, factor));
  if (kKvDType == kKvF16) return q;
  return to_halves(vec4(unpack16(q.x, kKvDType), unpack16(q.y, kKvDType)),
                   vec4(unpack16(q.z, kKvDType), unpack16(q.w, kKvDType)));
}
void store_keys() {
  [[unroll]] for (uint j = 0; j < kPieces; ++j) {
    uint i = j * kLanes + gl_LocalInvocationIndex, key = i / kOctets, octet = i % kOctets;
    if (!has_piece(j)) continue;
    kv_tile[key * kStride + octet] = next_k[j];
    kv_tile[(kTileKeys + key) * kStride + octet] = next_v[j];
    if (kScaled && octet == 0u) {
      tile_scales[key / 4u][key % 4u] = next_scale[j].x * kUnit;
      tile_scales[(kTileKeys + key) / 4u][key % 4u] = next_scale[j].y * kUnit * kValueGain;
    }
  }
}

// What scores become before the softmax, in powers of two.
vec4 finish_scores(vec4 product) {
  if (!kSoftCap) return product * (scale * kLog2e);
  product *= scale;
  return kLog2e * vec4(capped(product.x), capped(product.y), capped(product.z), capped(product.w));
}

// A lane's j-th four of the keys of its row.
uint lane_quad(uint j, uint part) { return (j / (kRun / 4u) * kRowLanes + part) * (kRun / 4u) + j % (kRun / 4u); }

uvec4 weights[kLaneKeys / 8];  // of a lane's keys, as f16

// Scores of a lane's keys, in the row of scratch that starts at `at`, become weights. Returns the factor of what the
// row has summed so far.
float weigh(uint at, uint part, uint key_first, uint key_end, bool is_edge, uint position, inout float largest,
            inout float sum) {
  vec4 score[kLaneKeys / 4], highest = vec4(largest);
  [[unroll]] for (uint j = 0; j < kLaneKeys / 4; ++j) {
    vec4 product = uintBitsToFloat(scratch[at + lane_quad(j, part)]);
    if (kScaled) product *= tile_scales[lane_quad(j, part)];
    score[j] = finish_scores(product);
  }
  if (is_edge) {
    [[unroll]] for (uint j = 0; j < kLaneKeys / 4; ++j) {
      [[unroll]] for (uint e = 0; e < 4; ++e) {
        uint key = key_first + 4u * lane_quad(j, part) + e;
        bool hidden = key >= key_end || key > position || (window > 0u && key + window <= position);
        score[j][e] = hidden ? -kInfinity : score[j][e];
      }
    }
  }
  [[unroll]] for (uint j = 0; j < kLaneKeys / 4; ++j) highest = max(highest, score[j]);
  float now = max(max(highest.x, highest.y), max(highest.z, highest.w)), factor = 1.0;
  for (uint mask = 1; mask < kRowLanes; mask *= 2u) now = max(now, subgroupShuffleXor(now, mask));
  if (now > largest + kRise) {
    factor = exp2(largest - now);
    largest = now;
  }
  vec4 added = vec4(0.0);
  [[unroll]] for (uint j = 0; j < kLaneKeys / 4; ++j) {
    score[j] = exp2(score[j] - largest);
    added += score[j];
    if (kScaled) score[j] *= tile_scales[kTileKeys / 4 + lane_quad(j, part)];
  }
  sum = sum * factor + (added.x + added.y) + (added.z + added.w);  // of this lane's keys
  [[unroll]] for (uint o = 0; o < kLaneKeys / 8; ++o) weights[o] = to_halves(score[2 * o], score[2 * o + 1]);
  return factor;
}

// As many octets of the queries of kM rows as scratch holds.
const uint kScratchOctets = kTileKeys / 4;
void load_queries(Item item, uint kv_head, uint group_heads, uint row_first, uint num_rows, uint at, uint octet_first) {
  for (uint i = gl_SubgroupInvocationID; i < kM * kScratchOctets; i += kSubgroup) {
    uint r = i / kScratchOctets, o = i % kScratchOctets, row = min(row_first + r, num_rows - 1u);
    if (octet_first + o >= kOctets) continue;
    uint first = q_first(item.token_first + row / group_heads, kv_head * group_heads + row % group_heads);
    uint from = first / 4u + 2u * (octet_first + o);
    scratch[at + r * kScoreStride + o] = to_halves(Vec4s(qkv).v[from], Vec4s(qkv).v[from + 1u]);
  }
}

void run(Item item, uint kv_head) {
  uint group_heads = num_heads / num_kv_heads, num_rows = item.num_tokens * group_heads;
  uint tile_first = gl_WorkGroupID.z * kTileRows;
  if (tile_first >= num_rows) return;
  uint row_first = tile_first + gl_SubgroupID * kRows, own = gl_SubgroupID * kM * kScoreStride;
  uint lane_row = gl_SubgroupInvocationID / kRowLanes, part = gl_SubgroupInvocationID % kRowLanes;
  uint lane_at = own + lane_row * kScoreStride;
  coopmat<float16_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA> q[kRowFrags * (kHeadDim / kK)];
  [[unroll]] for (uint r = 0; r < kRowFrags; ++r) {
    [[unroll]] for (uint d = 0; d < kHeadDim / kK; ++d) {
      uint octet = d * (kK / 8u), at = octet % kScratchOctets;
      if (at == 0u) {
        sync_subgroup();
        load_queries(item, kv_head, group_heads, row_first + r * kM, num_rows, own, octet);
        sync_subgroup();
      }
      coopMatLoad(q[r * (kHeadDim / kK) + d], scratch, own + at, kScoreStride, gl_CooperativeMatrixLayoutRowMajor);
    }
  }
  sync_subgroup();
  coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> sums[kRowFrags * kDimFrags];
  [[unroll]] for (uint d = 0; d < kRowFrags * kDimFrags; ++d)
    sums[d] = coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(0.0);
  uint position[kRowFrags];
  float largest[kRowFrags], sum[kRowFrags];
  [[unroll]] for (uint r = 0; r < kRowFrags; ++r) {
    position[r] = item.position_first + min(row_first + r * kM + lane_row, num_rows - 1u) / group_heads;
    largest[r] = kNoScore;
    sum[r] = 0.0;
  }
  uint position_low = item.position_first + row_first / group_heads;
  uint position_high = item.position_first + (min(row_first + kRows, num_rows) - 1u) / group_heads;
  // Keys beyond the last row's position count for nobody.
  uint last_position = item.position_first + (min(tile_first + kTileRows, num_rows) - 1u) / group_heads;
  uint key_end = min(item.key_end, last_position + 1u), block_shift = findMSB(block_tokens);
  if (item.key_begin < key_end) {
    fetch_blocks(item, block_shift, item.key_begin, key_end);
    fetch_keys(kv_head, item.key_begin, key_end);
    fetch_blocks(item, block_shift, item.key_begin + kTileKeys, key_end);
  }
  for (uint key = item.key_begin; key < key_end; key += kTileKeys) {
    [[unroll]] for (uint j = 0; j < kPieces; ++j) {
      next_k[j] = octet_halves(next_k[j], next_scale[j].x);
      next_v[j] = octet_halves(next_v[j], next_scale[j].y);
    }
    barrier();  // the tile before, or an earlier item's last one, has been read
    store_keys();
    barrier();
    if (key + kTileKeys < key_end) {
      fetch_keys(kv_head, key + kTileKeys, key_end);
      fetch_blocks(item, block_shift, key + 2u * kTileKeys, key_end);
    }
    uint key_last = key + kTileKeys - 1u;
    // Tiles of which none of the subgroup's rows sees a key.
    if (row_first >= num_rows || key > position_high || (window > 0u && key_last + window <= position_low)) continue;
    bool is_edge = key_last >= key_end || key_last > position_low || (window > 0u && key + window <= position_high);
    coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> products[kRowFrags * (kTileKeys / kN)];
    [[unroll]] for (uint p = 0; p < kRowFrags * (kTileKeys / kN); ++p)
      products[p] = coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(0.0);
    [[unroll]] for (uint d = 0; d < kHeadDim / kK; ++d) {
      [[unroll]] for (uint n = 0; n < kTileKeys / kN; ++n) {
        coopmat<float16_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB> b;
        coopMatLoad(b, kv_tile, n * kN * kStride + d * (kK / 8u), kStride, gl_CooperativeMatrixLayoutColumnMajor);
        [[unroll]] for (uint r = 0; r < kRowFrags; ++r)
          products[r * (kTileKeys / kN) + n] =
              coopMatMulAdd(q[r * (kHeadDim / kK) + d], b, products[r * (kTileKeys / kN) + n]);
      }
    }
    coopmat<float16_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA> a[kRowFrags * (kTileKeys / kK)];
    [[unroll]] for (uint r = 0; r < kRowFrags; ++r) {
      [[unroll]] for (uint n = 0; n < kTileKeys / kN; ++n)
        coopMatStore(products[r * (kTileKeys / kN) + n], scratch, own + n * (kN / 4u), kScoreStride,
                     gl_CooperativeMatrixLayoutRowMajor);
      sync_subgroup();
      float factor = weigh(lane_at, part, key, key_end, is_edge, position[r], largest[r], sum[r]);
      sync_subgroup();  // all scores have been read
      if (subgroupBallot(factor != 1.0) != uvec4(0u)) {
        for (uint n = part; n < kN / 4u; n += kRowLanes) scratch[lane_at + n] = uvec4(floatBitsToUint(factor));
        sync_subgroup();
        coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> factors;
        coopMatLoad(factors, scratch, own, kScoreStride, gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint d = 0; d < kDimFrags; ++d) sums[r * kDimFrags + d] *= factors;
        sync_subgroup();
      }
      [[unroll]] for (uint o = 0; o < kLaneKeys / 8; ++o)
        scratch[lane_at + lane_quad(2u * o, part) / 2u] = weights[o];
      sync_subgroup();
      [[unroll]] for (uint k = 0; k < kTileKeys / kK; ++k)
        coopMatLoad(a[r * (kTileKeys / kK) + k], scratch, own + k * (kK / 8u), kScoreStride,
                    gl_CooperativeMatrixLayoutRowMajor);
      sync_subgroup();  // the weights have been read: the next scores may come
    }
    [[unroll]] for (uint k = 0; k < kTileKeys / kK; ++k) {
      [[unroll]] for (uint d = 0; d < kDimFrags; ++d) {
        coopmat<float16_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB> b;
        coopMatLoad(b, kv_tile, (kTileKeys + k * kK) * kStride + d * (kN / 8u), kStride,
                    gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint r = 0; r < kRowFrags; ++r)
          sums[r * kDimFrags + d] = coopMatMulAdd(a[r * (kTileKeys / kK) + k], b, sums[r * kDimFrags + d]);
      }
    }
  }
  bool is_split = item.partial >= 0;  // whose values are not divided by its sum
  [[unroll]] for (uint r = 0; r < kRowFrags; ++r) {
    for (uint mask = 1; mask < kRowLanes; mask *= 2u) sum[r] += subgroupShuffleXor(sum[r], mask);
    float inverse = is_split ? 1.0 / kValueGain : sum[r] > 0.0 ? 1.0 / (sum[r] * kValueGain) : 0.0;
    uint row = row_first + r * kM + lane_row;
    uint token = row / group_heads, head = kv_head * group_heads + row % group_heads;
    uint to = partial_first(item, token, head);
    if (is_split && row < num_rows && part == 0u) {
      partials.f[to] = largest[r] / kLog2e;
      partials.f[to + 1u] = sum[r];
    }
    [[unroll]] for (uint d = 0; d < kDimFrags; ++d) {
      coopMatStore(sums[r * kDimFrags + d], scratch, own, kScoreStride, gl_CooperativeMatrixLayoutRowMajor);
      sync_subgroup();
      if (row < num_rows) {
        for (uint n = part; n < kN / 4u; n += kRowLanes) {
          vec4 value = uintBitsToFloat(scratch[lane_at + n]) * inverse;
          uint pair = d * (kN / 2u) + 2u * n;
          if (is_split) {
            Pairs(partials).p[to / 2u + 1u + pair] = floatBitsToUint(value.xy);
            Pairs(partials).p[to / 2u + 2u + pair] = floatBitsToUint(value.zw);
          } else {
            uint first = ((item.token_first + token) * num_heads + head) * kHeadDim;
            store_pair(result, first, kHeadDim, pair, value.xy, kOutDType);
            store_pair(result, first, kHeadDim, pair + 1u, value.zw, kOutDType);
          }
        }
      }
      sync_subgroup();
    }
  }
}

void main() {
  uint count = num_items();
  // The last items have the most keys: whoever comes last should have little to do.
  for (uint i = gl_WorkGroupID.x; i < count; i += gl_NumWorkGroups.x) run(load_item(count - 1u - i), gl_WorkGroupID.y);
}
