// Attention for prompt items without matrix units: tiles of 32 rows by 2 * kKeyLanes keys, f32 arithmetic, online
// softmax. Grid: x walks the items, y = KV head, z = tile of the item's rows. 8 x kKeyLanes invocations: each has four
// rows and, of their scores, two keys, of their outputs every kKeyLanes-th vec4. Those of a row lie in one subgroup, so
// a row's maximum needs no memory. Keys and values take turns in one tile.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "types.glsl"
#include "paged.glsl"
#include "paged_outputs.glsl"

layout(constant_id = 14) const uint kKeyLanes = 16;  // a power of two, at most a subgroup

const uint kRows = 4, kKeys = 2;  // of an invocation
const uint kTileRows = 8 * kRows, kTileKeys = kKeys * kKeyLanes, kThreads = 8 * kKeyLanes;
const uint kVecs = kHeadDim / 4, kLaneVecs = (kVecs + kKeyLanes - 1) / kKeyLanes;
const uint kStride = kVecs + 1;  // with 16 bytes of padding against bank conflicts
shared vec4 q_tile[kTileRows * kStride], kv_tile[kTileKeys * kStride];
shared vec4 weights[kTileKeys * kTileRows / 4];  // [key][four rows]

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

void load_rows(Item item, uint kv_head, uint group_heads, uint row_first, uint num_rows) {
  for (uint i = thread; i < kTileRows * kVecs; i += kThreads) {
    uint row = min(row_first + i / kVecs, num_rows - 1u);
    uint from = q_first(item.token_first + row / group_heads, kv_head * group_heads + row % group_heads);
    q_tile[i / kVecs * kStride + i % kVecs] = Vec4s(qkv).v[from / 4u + i % kVecs];
  }
}

// Keys from key_end on are the last one again, so that every number is one that was written.
void load_tile(Item item, uint kv_head, uint which, uint key_first, uint key_end) {
  [[unroll]] for (uint j = 0; j < (kTileKeys * kVecs + kThreads - 1) / kThreads; ++j) {
    uint i = j * kThreads + thread, k = i / kVecs, key = min(key_first + k, key_end - 1u);
    if (kTileKeys * kVecs % kThreads != 0u && k >= kTileKeys) continue;
    kv_tile[k * kStride + i % kVecs] =
        kv_load4(kv_vector(item.slot, key, which, kv_head), i % kVecs, which == 0u ? 1.0 : v_scale);
  }
}

void run(Item item, uint kv_head) {
  uint group_heads = num_heads / num_kv_heads, num_rows = item.num_tokens * group_heads;
  uint row_first = gl_WorkGroupID.z * kTileRows;
  if (row_first >= num_rows) return;
  uint own_first = row_first + kRows * row_quad;
  vec4 sums[kRows][kLaneVecs];
  float row_max[kRows], row_sum[kRows];  // row_sum: of this lane's keys
  uint positions[kRows];
  [[unroll]] for (uint r = 0; r < kRows; ++r) {
    [[unroll]] for (uint i = 0; i < kLaneVecs; ++i) sums[r][i] = vec4(0.0);
    row_max[r] = kNoScore;
    row_sum[r] = 0.0;
    positions[r] = item.position_first + min(own_first + r, num_rows - 1u) / group_heads;
  }
  barrier();  // an earlier item may still be read
  load_rows(item, kv_head, group_heads, row_first, num_rows);
  // Keys beyond the last row's position count for nobody.
  uint last_position = item.position_first + (min(row_first + kTileRows, num_rows) - 1u) / group_heads;
  uint key_end = min(item.key_end, last_position + 1u);
  for (uint key_first = item.key_begin; key_first < key_end; key_first += kTileKeys) {
    load_tile(item, kv_head, 0u, key_first, key_end);
    barrier();
    float scores[kRows][kKeys];
    [[unroll]] for (uint r = 0; r < kRows; ++r)
      [[unroll]] for (uint k = 0; k < kKeys; ++k) scores[r][k] = 0.0;
    for (uint d = 0; d < kVecs; ++d) {
      vec4 keys[kKeys];
      [[unroll]] for (uint k = 0; k < kKeys; ++k) keys[k] = kv_tile[(lane + k * kKeyLanes) * kStride + d];
      [[unroll]] for (uint r = 0; r < kRows; ++r) {
        vec4 q = q_tile[(kRows * row_quad + r) * kStride + d];
        [[unroll]] for (uint k = 0; k < kKeys; ++k) scores[r][k] += dot(q, keys[k]);
      }
    }
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
      weights[(lane + k * kKeyLanes) * (kTileRows / 4u) + row_quad] = own;
    }
    barrier();
    load_tile(item, kv_head, 1u, key_first, key_end);
    [[unroll]] for (uint r = 0; r < kRows; ++r)
      [[unroll]] for (uint i = 0; i < kLaneVecs; ++i) sums[r][i] *= factors[r];
    barrier();
    for (uint k = 0; k < kTileKeys; ++k) {
      vec4 own = weights[k * (kTileRows / 4u) + row_quad];
      [[unroll]] for (uint i = 0; i < kLaneVecs; ++i) {
        vec4 value = kv_tile[k * kStride + min(lane + i * kKeyLanes, kVecs - 1u)];
        [[unroll]] for (uint r = 0; r < kRows; ++r) sums[r][i] += own[r] * value;
      }
    }
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
    float inverse = row_sum[r] > 0.0 ? 1.0 / row_sum[r] : 0.0;
    [[unroll]] for (uint i = 0; i < kLaneVecs; ++i) {
      uint vec = lane + i * kKeyLanes;
      if (vec >= kVecs) continue;
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
