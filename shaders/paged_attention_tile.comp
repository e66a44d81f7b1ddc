// Attention for prompt and decode items on any device: tiles of kTileRows rows by kTileKeys keys in shared memory, f32
// arithmetic, online softmax. Grid: x walks the items, y = KV head, z = tile of the item's rows. 128 invocations; in the
// last product each owns pairs of dimensions of one row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "paged.glsl"
#include "paged_outputs.glsl"

layout(constant_id = 15) const uint kTileRows = 16;
layout(constant_id = 16) const uint kTileKeys = 16;

const uint kThreads = 128;
const uint kRowThreads = kThreads / kTileRows;
const uint kPairs = (kHeadDim / 2 + kRowThreads - 1) / kRowThreads;
const uint kStride = kHeadDim + 1;
shared float q_tile[kTileRows * kStride], k_tile[kTileKeys * kStride], v_tile[kTileKeys * kStride];
shared float scores[kTileRows * kTileKeys], row_max[kTileRows], row_sum[kTileRows], row_scale[kTileRows];

void load_rows(Item item, uint kv_head, uint group_heads, uint row_first, uint num_rows) {
  for (uint i = gl_LocalInvocationID.x; i < kTileRows * kHeadDim; i += kThreads) {
    uint row = min(row_first + i / kHeadDim, num_rows - 1u);
    uint from = q_first(item.token_first + row / group_heads, kv_head * group_heads + row % group_heads);
    q_tile[i / kHeadDim * kStride + i % kHeadDim] = qkv.f[from + i % kHeadDim];
  }
  if (gl_LocalInvocationID.x < kTileRows) {
    row_max[gl_LocalInvocationID.x] = kNoScore;
    row_sum[gl_LocalInvocationID.x] = 0.0;
  }
}

void load_keys(Item item, uint kv_head, uint key_first, uint key_end) {
  for (uint i = gl_LocalInvocationID.x; i < kTileKeys * (kHeadDim / 4u); i += kThreads) {
    uint k = i / (kHeadDim / 4u), d = i % (kHeadDim / 4u), key = min(key_first + k, key_end - 1u);
    vec4 key4 = kv_load4(kv_vector(item.slot, key, 0u, kv_head), d, 1.0);
    vec4 value4 = kv_load4(kv_vector(item.slot, key, 1u, kv_head), d, v_scale);
    [[unroll]] for (uint e = 0; e < 4; ++e) {
      k_tile[k * kStride + 4u * d + e] = key4[e];
      v_tile[k * kStride + 4u * d + e] = value4[e];
    }
  }
}

void score_keys(Item item, uint group_heads, uint row_first, uint num_rows, uint key_first, uint key_end) {
  for (uint i = gl_LocalInvocationID.x; i < kTileRows * kTileKeys; i += kThreads) {
    uint row = i / kTileKeys, k = i % kTileKeys, key = key_first + k;
    float sum = 0.0;
    for (uint d = 0; d < kHeadDim; ++d) sum += q_tile[row * kStride + d] * k_tile[k * kStride + d];
    uint position = item.position_first + min(row_first + row, num_rows - 1u) / group_heads;
    scores[i] = key >= item.key_begin && key < key_end ? finish_score(sum, key, position) : -kInfinity;
  }
}

// Scores become weights; one invocation a row.
void weigh_rows() {
  uint row = gl_LocalInvocationID.x;
  if (row >= kTileRows) return;
  float old = row_max[row], largest = old, sum = 0.0;
  for (uint k = 0; k < kTileKeys; ++k) largest = max(largest, scores[row * kTileKeys + k]);
  for (uint k = 0; k < kTileKeys; ++k) {
    float weight = exp(scores[row * kTileKeys + k] - largest);
    scores[row * kTileKeys + k] = weight;
    sum += weight;
  }
  row_scale[row] = exp(old - largest);
  row_sum[row] = row_sum[row] * row_scale[row] + sum;
  row_max[row] = largest;
}

void run(Item item, uint kv_head) {
  uint group_heads = num_heads / num_kv_heads, num_rows = item.num_tokens * group_heads;
  uint row_first = gl_WorkGroupID.z * kTileRows;
  if (row_first >= num_rows) return;
  uint row = gl_LocalInvocationID.x / kRowThreads, lane = gl_LocalInvocationID.x % kRowThreads;
  vec2 sums[kPairs];
  [[unroll]] for (uint p = 0; p < kPairs; ++p) sums[p] = vec2(0.0);
  barrier();  // an earlier item may still be read
  load_rows(item, kv_head, group_heads, row_first, num_rows);
  // Keys beyond the last row's position count for nobody.
  uint last_position = item.position_first + (min(row_first + kTileRows, num_rows) - 1u) / group_heads;
  uint key_end = min(item.key_end, last_position + 1u);
  // Tiles begin where they do for a token by itself, whose window may begin behind the item's first key.
  for (uint key = item.key_begin / kTileKeys * kTileKeys; key < key_end; key += kTileKeys) {
    load_keys(item, kv_head, key, key_end);
    barrier();
    score_keys(item, group_heads, row_first, num_rows, key, key_end);
    barrier();
    weigh_rows();
    barrier();
    float factor = row_scale[row];
    [[unroll]] for (uint p = 0; p < kPairs; ++p) sums[p] *= factor;
    for (uint k = 0; k < kTileKeys; ++k) {
      float weight = scores[row * kTileKeys + k];
      [[unroll]] for (uint p = 0; p < kPairs; ++p) {
        uint d = min(2u * (lane + p * kRowThreads), kHeadDim - 2u);
        sums[p] += weight * vec2(v_tile[k * kStride + d], v_tile[k * kStride + d + 1u]);
      }
    }
    barrier();
  }
  if (row_first + row >= num_rows) return;
  uint token = (row_first + row) / group_heads, head = kv_head * group_heads + (row_first + row) % group_heads;
  uint to = partial_first(item, token, head);
  if (item.partial >= 0 && lane == 0u) {
    partials.f[to] = row_max[row];
    partials.f[to + 1u] = row_sum[row];
  }
  float inverse = inverse_sum(row_sum[row], row_max[row], head);
  [[unroll]] for (uint p = 0; p < kPairs; ++p) {
    uint pair = lane + p * kRowThreads;
    if (pair >= kHeadDim / 2u) continue;
    store_outputs(item, token, head, pair, sums[p], inverse);
  }
}

void main() {
  uint count = num_items();
  for (uint i = gl_WorkGroupID.x; i < count; i += gl_NumWorkGroups.x) run(load_any_item(i), gl_WorkGroupID.y);
}
