// Attention for prompt items on matrix units (KHR cooperative matrix): f16 factors, f32 sums, online softmax in f32.
// Grid: x = KV head, y = tile of the item's rows, z walks the items. A subgroup owns kRowFrags * kM rows: their queries
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

layout(constant_id = 15) const uint kSubgroups = 4;
layout(constant_id = 16) const uint kM = 16;  // the device's shape: rows of q
layout(constant_id = 17) const uint kN = 16;  // keys, or dimensions of a value
layout(constant_id = 18) const uint kK = 16;  // dimensions of a key, or keys
layout(constant_id = 19) const uint kRowFrags = 1;
layout(constant_id = 20) const uint kTileKeys = 32;  // at least 8 for each lane of a row
layout(constant_id = 21) const uint kGroupHeads = 1;  // query heads of a KV head

const uint kRows = kRowFrags * kM;  // of a subgroup
const bool kManyRegisters = kRowFrags > 1;
const uint kTileRows = kSubgroups * kRows;
const uint kLanes = kSubgroups * kSubgroup;
const uint kOctets = kHeadDim / 8;
const uint kStride = kOctets + 1;       // of kv_tile, with 16 bytes of padding against bank conflicts
const uint kScoreStride = kTileKeys / 4 + 1;
const uint kRowLanes = kSubgroup / kM;  // lanes that share a row of scores
const uint kLaneKeys = kTileKeys / kRowLanes, kWeightOctets = kLaneKeys / 8;
const uint kRun = kLaneKeys < 16 ? kLaneKeys : 16;  // a lane has every kRowLanes-th run of so many keys
const uint kDimFrags = kHeadDim / kN;
const bool kScaled = kBytes && !kBlockScales;
const float kUnit = kF8 ? 256.0 : 1.0;  // of a scaled number as f16 (f8_halves)
const float kValueGain = kScaled && !kF8 ? 128.0 : 1.0;
// Sums are scaled anew only when the maximum of a row has risen by more than this (in powers of two): f16 holds weights
// of up to 16 as well as those of up to 1, but their products with scales need its range.
const float kRise = kScaled ? 0.0 : 4.0;
// Eight f16 a uvec4, also because matrices are loaded from multiples of 16 bytes: the type aligns the arrays.
// Keys, then values; at last outputs, of as many dimensions of a matrix of rows as there is room for.
const uint kOutputMost = kN < 32 ? 32 : kN, kOutputDims = kHeadDim < kOutputMost ? kHeadDim : kOutputMost;
const uint kOutputStride = kOutputDims / 4 + 1, kOutputParts = (kHeadDim + kOutputDims - 1) / kOutputDims;
const uint kKvQuads = 2 * kTileKeys * kStride, kOutputQuads = kSubgroups * kM * kOutputStride;
shared uvec4 kv_tile[kKvQuads > kOutputQuads ? kKvQuads : kOutputQuads];
shared uvec4 scratch[kSubgroups * kM * kScoreStride];  // queries; scores, factors, weights; at last factors
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

// What scores become before the softmax, in powers of two, of queries that were scaled.
vec4 finish_scores(vec4 product) {
  if (!kSoftCap) return product;
  return kLog2e * vec4(capped(product.x), capped(product.y), capped(product.z), capped(product.w));
}

// A lane's j-th four of the keys of its row.
uint lane_quad(uint j, uint part) { return (j / (kRun / 4u) * kRowLanes + part) * (kRun / 4u) + j % (kRun / 4u); }

uvec4 weights[kWeightOctets];  // of a lane's keys, as f16

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
  [[unroll]] for (uint mask = 1; mask < kRowLanes; mask *= 2) now = max(now, subgroupShuffleXor(now, mask));
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
  [[unroll]] for (uint o = 0; o < kWeightOctets; ++o) weights[o] = to_halves(score[2 * o], score[2 * o + 1]);
  return factor;
}

// Queries of kM rows pass through scratch in as many turns as it takes. Where there are registers a lane asks for all of
// its octets at once.
const uint kTurnOctets = kTileKeys / 4, kTurns = (kOctets + kTurnOctets - 1) / kTurnOctets;
const uint kLaneOctets = (kM * kTurnOctets + kSubgroup - 1) / kSubgroup;
uvec4 queries[kRowFrags][kTurns][kLaneOctets];
void fetch_queries(Item item, uint kv_head, uint row_first, uint num_rows, uint f, uint turn) {
  float factor = kSoftCap ? scale : scale * kLog2e;
  [[unroll]] for (uint j = 0; j < kLaneOctets; ++j) {
    uint i = j * kSubgroup + gl_SubgroupInvocationID;
    uint row = min(row_first + f * kM + i / kTurnOctets, num_rows - 1u);
    uint first = q_first(item.token_first + row / kGroupHeads, kv_head * kGroupHeads + row % kGroupHeads);
    uint from = first / 4u + 2u * min(turn * kTurnOctets + i % kTurnOctets, kOctets - 1u);
    queries[f][turn][j] = to_halves(Vec4s(qkv).v[from] * factor, Vec4s(qkv).v[from + 1u] * factor);
  }
}
void store_queries(uint f, uint turn, uint at) {
  [[unroll]] for (uint j = 0; j < kLaneOctets; ++j) {
    uint i = j * kSubgroup + gl_SubgroupInvocationID;
    if (kM * kTurnOctets % kSubgroup != 0 && i >= kM * kTurnOctets) continue;
    scratch[at + i / kTurnOctets * kScoreStride + i % kTurnOctets] = queries[f][turn][j];
  }
}

void run(Item item, uint kv_head) {
  uint num_rows = item.num_tokens * kGroupHeads;
  uint tile_first = gl_WorkGroupID.y * kTileRows;
  if (tile_first >= num_rows) return;
  uint row_first = tile_first + gl_SubgroupID * kRows, own = gl_SubgroupID * kM * kScoreStride;
  uint lane_row = gl_SubgroupInvocationID / kRowLanes, part = gl_SubgroupInvocationID % kRowLanes;
  uint lane_at = own + lane_row * kScoreStride;
  // Keys beyond the last row's position count for nobody.
  uint last_position = item.position_first + (min(tile_first + kTileRows, num_rows) - 1u) / kGroupHeads;
  uint key_end = min(item.key_end, last_position + 1u), block_shift = findMSB(block_tokens);
  if (item.key_begin < key_end) fetch_blocks(item, block_shift, item.key_begin, key_end);
  if (kManyRegisters) [[unroll]] for (uint f = 0; f < kRowFrags; ++f)
    [[unroll]] for (uint turn = 0; turn < kTurns; ++turn) fetch_queries(item, kv_head, row_first, num_rows, f, turn);
  if (item.key_begin < key_end) {
    fetch_keys(kv_head, item.key_begin, key_end);
    fetch_blocks(item, block_shift, item.key_begin + kTileKeys, key_end);
  }
  coopmat<float16_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA> q[kRowFrags * (kHeadDim / kK)];
  [[unroll]] for (uint r = 0; r < kRowFrags; ++r) {
    [[unroll]] for (uint d = 0; d < kHeadDim / kK; ++d) {
      uint octet = d * (kK / 8u), at = octet % kTurnOctets;
      if (at == 0u) {
        if (!kManyRegisters) fetch_queries(item, kv_head, row_first, num_rows, r, octet / kTurnOctets);
        sync_subgroup();
        store_queries(r, octet / kTurnOctets, own);
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
    position[r] = item.position_first + min(row_first + r * kM + lane_row, num_rows - 1u) / kGroupHeads;
    largest[r] = kNoScore;
    sum[r] = 0.0;
  }
  uint position_low = item.position_first + row_first / kGroupHeads;
  uint position_high = item.position_first + (min(row_first + kRows, num_rows) - 1u) / kGroupHeads;
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
      [[unroll]] for (uint o = 0; o < kWeightOctets; ++o)
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
  // Outputs of a matrix of rows after the other, kOutputDims at a time, through shared memory, so that lanes write what
  // lies beside each other. Those of an item that is split are not divided by their sum.
  bool is_split = item.partial >= 0;
  uint own_outputs = gl_SubgroupID * kM * kOutputStride;
  barrier();  // the last tile has been read
  [[unroll]] for (uint r = 0; r < kRowFrags; ++r) {
    [[unroll]] for (uint mask = 1; mask < kRowLanes; mask *= 2) sum[r] += subgroupShuffleXor(sum[r], mask);
    uint sum_row = row_first + r * kM + lane_row;
    float whole = is_split ? 1.0 : inverse_sum(sum[r], largest[r] / kLog2e, kv_head * kGroupHeads + sum_row % kGroupHeads);
    float inverse = whole / kValueGain;
    if (part == 0u) {
      scratch[lane_at].x = floatBitsToUint(inverse);
      if (is_split && sum_row < num_rows) {
        uint to = partial_first(item, sum_row / kGroupHeads, kv_head * kGroupHeads + sum_row % kGroupHeads);
        partials.f[to] = largest[r] / kLog2e;
        partials.f[to + 1u] = sum[r];
      }
    }
    [[unroll]] for (uint o = 0; o < kOutputParts; ++o) {
      uint first = o * kOutputDims;
      [[unroll]] for (uint d = 0; d < kOutputDims / kN; ++d)
        if (o * (kOutputDims / kN) + d < kDimFrags)
          coopMatStore(sums[r * kDimFrags + o * (kOutputDims / kN) + d], kv_tile,
                       own_outputs + d * (kN / 4u), kOutputStride, gl_CooperativeMatrixLayoutRowMajor);
      sync_subgroup();
      const uint kQuads = kM * kOutputDims / 4;
      [[dont_unroll]] for (uint j = 0; j < (kQuads + kSubgroup - 1) / kSubgroup; ++j) {
        uint i = j * kSubgroup + gl_SubgroupInvocationID;
        uint frag_row = min(i / (kOutputDims / 4), kM - 1u), quad = i % (kOutputDims / 4);
        uint row = row_first + r * kM + frag_row, token = row / kGroupHeads, dim = first + 4u * quad;
        uint head = kv_head * kGroupHeads + row % kGroupHeads;
        vec4 value = uintBitsToFloat(kv_tile[own_outputs + frag_row * kOutputStride + quad]) *
                     uintBitsToFloat(scratch[own + frag_row * kScoreStride].x);
        if (i < kQuads && row < num_rows && dim < kHeadDim) {
          if (is_split) {
            uint to = partial_first(item, token, head) / 2u + 1u + dim / 2u;
            Pairs(partials).p[to] = floatBitsToUint(value.xy);
            Pairs(partials).p[to + 1u] = floatBitsToUint(value.zw);
          } else if (dim < out_dim()) {
            uint to = (out_first(item.token_first + token, head) + dim) / 4u;
            if (kOutDType == kF32)
              Vec4s(result).v[to] = value;
            else
              Pairs(result).p[to] = uvec2(pack16(value.xy, kOutDType), pack16(value.zw, kOutDType));
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
  for (uint i = gl_WorkGroupID.z; i < count; i += gl_NumWorkGroups.z) run(load_item(count - 1u - i), gl_WorkGroupID.x);
}
