// Attention for prompt items without matrix units: tiles of 32 rows by 2 * kKeyLanes keys, in f32 (PAIRS: packed f16, its
// sums of a few products added in f32), online softmax. Grid: x walks the items, y = KV head, z = tile of the item's rows.
// 8 x kKeyLanes invocations: each has four rows and, of their scores, two keys, of their outputs every kKeyLanes-th 16
// bytes. Those of a row lie in one subgroup, so a row's maximum needs no memory. Keys and values take turns in one tile.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "types.glsl"
#include "paged.glsl"
#include "paged_outputs.glsl"
#ifdef PAIRS
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define TILE uvec4
const uint kUnitVecs = 2;
// Units whose products are added in f16: four a unit on each side of a pair. One where the pool's numbers are rounded.
const uint kRun = kKvDType == kKvF16 ? 2 : 1;
#else
#define TILE vec4
const uint kUnitVecs = 1;
#endif

layout(constant_id = 15) const uint kKeyLanes = 16;  // a power of two, at most a subgroup

const uint kRows = 4, kKeys = 2;  // of an invocation
const uint kTileRows = 8 * kRows, kTileKeys = kKeys * kKeyLanes, kThreads = 8 * kKeyLanes;
const uint kUnits = kHeadDim / 4 / kUnitVecs, kLaneUnits = (kUnits + kKeyLanes - 1) / kKeyLanes;  // of 16 bytes
const uint kStride = kUnits + 1;  // one more against bank conflicts
shared TILE q_tile[kTileRows * kStride], kv_tile[kTileKeys * kStride];
shared TILE weights[kTileKeys * kTileRows / 4];  // [key][four rows]

uint thread, row_quad, lane;
// Lanes whose numbers differ in bit 0 have the same rows, in bit 1 the same keys, where a subgroup has rows of two lanes:
// see tile_sums.glsl.
const bool kIsWoven = 2 * kKeyLanes <= kSubgroup;
void find_lane() {
  thread = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
  row_quad = kIsWoven ? (thread >> 1 & 1u) + thread / (2u * kKeyLanes) * 2u : thread / kKeyLanes;
  lane = kIsWoven ? (thread & 1u) + (thread >> 2) % (kKeyLanes / 2u) * 2u : thread % kKeyLanes;
}
// From a lane to the one whose `lane` differs in bit `mask`.
uint lanes_apart(uint mask) { return kIsWoven && mask > 1u ? 2u * mask : mask; }

#ifdef PAIRS
// A row's numbers are brought to below 1/8 by a power of two, so that no sum of eight products with finite numbers of f16
// overflows. Each lane has a row's every kKeyLanes-th unit, and gets what undoes it.
float load_row(uint from, uint tile_row) {
  vec4 q[kLaneUnits][2];
  float largest = 0.0;
  [[unroll]] for (uint i = 0; i < kLaneUnits; ++i)
    [[unroll]] for (uint k = 0; k < 2; ++k) {
      q[i][k] = Vec4s(qkv).v[from / 4u + 2u * min(lane + i * kKeyLanes, kUnits - 1u) + k];
      vec4 a = abs(q[i][k]);
      largest = max(largest, max(max(a.x, a.y), max(a.z, a.w)));
    }
  [[unroll]] for (uint mask = 1; mask < kKeyLanes; mask *= 2u)
    largest = max(largest, subgroupShuffleXor(largest, lanes_apart(mask)));
  uint exponent = clamp(floatBitsToUint(largest) >> 23, 1u, 249u);
  float factor = uintBitsToFloat((250u - exponent) << 23);
  [[unroll]] for (uint i = 0; i < kLaneUnits; ++i) {
    vec4 low = q[i][0] * factor, high = q[i][1] * factor;
    if (lane + i * kKeyLanes < kUnits)
      q_tile[tile_row * kStride + lane + i * kKeyLanes] = uvec4(packHalf2x16(low.xy), packHalf2x16(low.zw),
                                                                packHalf2x16(high.xy), packHalf2x16(high.zw));
  }
  return uintBitsToFloat((exponent + 4u) << 23);
}

uvec4 load_unit(uint vector, uint unit, float other) {
  if (kKvDType == kKvF16) return Quads(data).q[vector * kUnits + unit];
  vec4 low = kv_load4(vector, 2u * unit, other), high = kv_load4(vector, 2u * unit + 1u, other);
  return uvec4(packHalf2x16(low.xy), packHalf2x16(low.zw), packHalf2x16(high.xy), packHalf2x16(high.zw));
}
#else
void load_rows(Item item, uint kv_head, uint group_heads, uint row_first, uint num_rows) {
  for (uint i = thread; i < kTileRows * kUnits; i += kThreads) {
    uint row = min(row_first + i / kUnits, num_rows - 1u);
    uint from = q_first(item.token_first + row / group_heads, kv_head * group_heads + row % group_heads);
    q_tile[i / kUnits * kStride + i % kUnits] = Vec4s(qkv).v[from / 4u + i % kUnits];
  }
}

vec4 load_unit(uint vector, uint unit, float other) { return kv_load4(vector, unit, other); }
#endif

// Keys from key_end on are the last one again, so that every number is one that was written.
void load_tile(Item item, uint kv_head, uint which, uint key_first, uint key_end) {
  [[unroll]] for (uint j = 0; j < (kTileKeys * kUnits + kThreads - 1) / kThreads; ++j) {
    uint i = j * kThreads + thread, k = i / kUnits, key = min(key_first + k, key_end - 1u);
    if (kTileKeys * kUnits % kThreads != 0u && k >= kTileKeys) continue;
    kv_tile[k * kStride + i % kUnits] =
        load_unit(kv_vector(item.slot, key, which, kv_head), i % kUnits, which == 0u ? 1.0 : v_scale);
  }
}

void run(Item item, uint kv_head) {
  uint group_heads = num_heads / num_kv_heads, num_rows = item.num_tokens * group_heads;
  uint row_first = gl_WorkGroupID.z * kTileRows;
  if (row_first >= num_rows) return;
  uint own_first = row_first + kRows * row_quad;
  vec4 sums[kRows][kLaneUnits * kUnitVecs];
  float row_max[kRows], row_sum[kRows];  // row_sum: of this lane's keys
  uint positions[kRows];
  [[unroll]] for (uint r = 0; r < kRows; ++r) {
    [[unroll]] for (uint i = 0; i < kLaneUnits * kUnitVecs; ++i) sums[r][i] = vec4(0.0);
    row_max[r] = kNoScore;
    row_sum[r] = 0.0;
    positions[r] = item.position_first + min(own_first + r, num_rows - 1u) / group_heads;
  }
  barrier();  // an earlier item may still be read
#ifdef PAIRS
  float q_scales[kRows];
  [[unroll]] for (uint r = 0; r < kRows; ++r) {
    uint row = min(own_first + r, num_rows - 1u);
    q_scales[r] = load_row(q_first(item.token_first + row / group_heads, kv_head * group_heads + row % group_heads),
                           kRows * row_quad + r);
  }
#else
  load_rows(item, kv_head, group_heads, row_first, num_rows);
#endif
  // Keys beyond the last row's position count for nobody.
  uint last_position = item.position_first + (min(row_first + kTileRows, num_rows) - 1u) / group_heads;
  uint key_end = min(item.key_end, last_position + 1u);
  for (uint key_first = item.key_begin; key_first < key_end; key_first += kTileKeys) {
    load_tile(item, kv_head, 0u, key_first, key_end);
    barrier();
    float scores[kRows][kKeys];
    [[unroll]] for (uint r = 0; r < kRows; ++r)
      [[unroll]] for (uint k = 0; k < kKeys; ++k) scores[r][k] = 0.0;
#ifdef PAIRS
    for (uint first = 0; first < kUnits; first += kRun) {
      f16vec2 parts[kRows][kKeys];
      [[unroll]] for (uint d = 0; d < kRun; ++d) {
        uvec4 keys[kKeys];
        [[unroll]] for (uint k = 0; k < kKeys; ++k) keys[k] = kv_tile[(lane + k * kKeyLanes) * kStride + first + d];
        [[unroll]] for (uint r = 0; r < kRows; ++r) {
          uvec4 q = q_tile[(kRows * row_quad + r) * kStride + first + d];
          [[unroll]] for (uint k = 0; k < kKeys; ++k)
            [[unroll]] for (uint p = 0; p < 4; ++p) {
              f16vec2 a = unpackFloat2x16(q[p]), b = unpackFloat2x16(keys[k][p]);
              parts[r][k] = d + p == 0 ? a * b : fma(a, b, parts[r][k]);
            }
        }
      }
      [[unroll]] for (uint r = 0; r < kRows; ++r)
        [[unroll]] for (uint k = 0; k < kKeys; ++k) scores[r][k] += float(parts[r][k].x) + float(parts[r][k].y);
    }
    [[unroll]] for (uint r = 0; r < kRows; ++r)
      [[unroll]] for (uint k = 0; k < kKeys; ++k) scores[r][k] *= q_scales[r];
#else
    for (uint d = 0; d < kUnits; ++d) {
      vec4 keys[kKeys];
      [[unroll]] for (uint k = 0; k < kKeys; ++k) keys[k] = kv_tile[(lane + k * kKeyLanes) * kStride + d];
      [[unroll]] for (uint r = 0; r < kRows; ++r) {
        vec4 q = q_tile[(kRows * row_quad + r) * kStride + d];
        [[unroll]] for (uint k = 0; k < kKeys; ++k) scores[r][k] += dot(q, keys[k]);
      }
    }
#endif
    float factors[kRows];
    [[unroll]] for (uint r = 0; r < kRows; ++r) {
      float largest = row_max[r];
      [[unroll]] for (uint k = 0; k < kKeys; ++k) {
        uint key = key_first + lane + k * kKeyLanes;
        scores[r][k] = key < key_end ? finish_score(scores[r][k], key, positions[r]) : -kInfinity;
        largest = max(largest, scores[r][k]);
      }
      [[unroll]] for (uint mask = 1; mask < kKeyLanes; mask *= 2u)
        largest = max(largest, subgroupShuffleXor(largest, lanes_apart(mask)));
      factors[r] = exp(row_max[r] - largest);
      row_max[r] = largest;
      row_sum[r] *= factors[r];
    }
    [[unroll]] for (uint k = 0; k < kKeys; ++k) {
      vec4 own;
      [[unroll]] for (uint r = 0; r < kRows; ++r) {
        own[r] = exp(scores[r][k] - row_max[r]);
        row_sum[r] += own[r];
      }
#ifdef PAIRS
      uvec4 halves = uvec4(packHalf2x16(own.xx), packHalf2x16(own.yy), packHalf2x16(own.zz), packHalf2x16(own.ww));
      weights[(lane + k * kKeyLanes) * (kTileRows / 4u) + row_quad] = halves;
#else
      weights[(lane + k * kKeyLanes) * (kTileRows / 4u) + row_quad] = own;
#endif
    }
    barrier();
    load_tile(item, kv_head, 1u, key_first, key_end);
    [[unroll]] for (uint r = 0; r < kRows; ++r)
      [[unroll]] for (uint i = 0; i < kLaneUnits * kUnitVecs; ++i) sums[r][i] *= factors[r];
    barrier();
#ifdef PAIRS
    // Those of eight keys in f16, which only values beyond 8,191 can overflow.
    [[dont_unroll]] for (uint first = 0; first < kTileKeys; first += 8u) {
      f16vec2 parts[kRows][kLaneUnits * 4];
      [[unroll]] for (uint k = 0; k < 8; ++k) {
        uvec4 own = weights[(first + k) * (kTileRows / 4u) + row_quad];
        [[unroll]] for (uint i = 0; i < kLaneUnits; ++i) {
          uvec4 value = kv_tile[(first + k) * kStride + min(lane + i * kKeyLanes, kUnits - 1u)];
          [[unroll]] for (uint r = 0; r < kRows; ++r)
            [[unroll]] for (uint p = 0; p < 4; ++p) {
              f16vec2 a = unpackFloat2x16(own[r]), b = unpackFloat2x16(value[p]);
              parts[r][4 * i + p] = k == 0 ? a * b : fma(a, b, parts[r][4 * i + p]);
            }
        }
      }
      [[unroll]] for (uint r = 0; r < kRows; ++r)
        [[unroll]] for (uint i = 0; i < 2 * kLaneUnits; ++i)
          sums[r][i] += vec4(vec2(parts[r][2 * i]), vec2(parts[r][2 * i + 1]));
    }
#else
    for (uint k = 0; k < kTileKeys; ++k) {
      vec4 own = weights[k * (kTileRows / 4u) + row_quad];
      [[unroll]] for (uint i = 0; i < kLaneUnits; ++i) {
        vec4 value = kv_tile[k * kStride + min(lane + i * kKeyLanes, kUnits - 1u)];
        [[unroll]] for (uint r = 0; r < kRows; ++r) sums[r][i] += own[r] * value;
      }
    }
#endif
    barrier();
  }
  [[unroll]] for (uint r = 0; r < kRows; ++r) {
    [[unroll]] for (uint mask = 1; mask < kKeyLanes; mask *= 2u)
      row_sum[r] += subgroupShuffleXor(row_sum[r], lanes_apart(mask));
    uint row = own_first + r, token = row / group_heads, head = kv_head * group_heads + row % group_heads;
    if (row >= num_rows) continue;
    uint to = partial_first(item, token, head);
    if (item.partial >= 0 && lane == 0u) {
      partials.f[to] = row_max[r];
      partials.f[to + 1u] = row_sum[r];
    }
    float inverse = inverse_sum(row_sum[r], row_max[r], head);
    [[unroll]] for (uint i = 0; i < kLaneUnits * kUnitVecs; ++i) {
      uint vec = (lane + i / kUnitVecs * kKeyLanes) * kUnitVecs + i % kUnitVecs;
      if (vec >= kHeadDim / 4) continue;
      store_outputs(item, token, head, 2u * vec, sums[r][i].xy, inverse);
      store_outputs(item, token, head, 2u * vec + 1u, sums[r][i].zw, inverse);
    }
  }
}

void main() {
  find_lane();
  uint count = num_items();
  for (uint i = gl_WorkGroupID.x; i < count; i += gl_NumWorkGroups.x) run(load_item(i), gl_WorkGroupID.y);
}
