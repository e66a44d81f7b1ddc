// Attention for decode items (one query token), made for bandwidth: one workgroup an item and a KV head (x walks the
// items, y = KV head, z = kHeads query heads of its group). A key is read by kKeyLanes lanes, 8 numbers each; a subgroup
// works on several keys at once, kBatch of them in flight a lane, and keeps softmax and values of all its query
// heads in registers. Subgroups split the keys and are merged through shared memory. f32 arithmetic.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "types.glsl"
#include "paged.glsl"

layout(constant_id = 14) const uint kHeads = 4;
layout(constant_id = 15) const uint kKeyLanes = 8;   // a power of two, at least kHeadDim / 8
layout(constant_id = 16) const uint kSubgroups = 4;  // of the workgroup

const uint kBatch = 4;
const uint kOctets = kHeadDim / 8;
shared float shared_max[kSubgroups * kHeads], shared_sum[kSubgroups * kHeads];
shared float shared_values[kSubgroups * kHeads * kHeadDim];

// Numbers 8i to 8i + 7 of a vector of the pool, as they lie there.
uvec4 load_octet(uint vector, uint i) {
  if (!kBytes) return Quads(data).q[vector * kOctets + i];
  return uvec4(data.w[(vector * kOctets + i) * 2u], data.w[(vector * kOctets + i) * 2u + 1u], 0u, 0u);
}
void unpack_octet(uvec4 raw, float factor, out vec4 low, out vec4 high) {
  if (!kBytes) {
    low = vec4(unpack16(raw.x, kKvDType), unpack16(raw.y, kKvDType));
    high = vec4(unpack16(raw.z, kKvDType), unpack16(raw.w, kKvDType));
  } else {
    low = kF8 ? f8_units(raw.x) * (256.0 * factor) : i8_values(raw.x) * factor;
    high = kF8 ? f8_units(raw.y) * (256.0 * factor) : i8_values(raw.y) * factor;
  }
}

struct State {
  float largest[kHeads], sum[kHeads];
  vec4 low[kHeads], high[kHeads];  // this lane's 8 numbers of the values
};

void merge(inout State s, uint h, float largest, float sum, vec4 low, vec4 high) {
  float now = max(s.largest[h], largest), a = exp(s.largest[h] - now), b = exp(largest - now);
  s.largest[h] = now;
  s.sum[h] = s.sum[h] * a + sum * b;
  s.low[h] = s.low[h] * a + low * b;
  s.high[h] = s.high[h] * a + high * b;
}

void attend(Item item, uint kv_head, uint heads_first, uint group_heads, inout State s) {
  uint lane = gl_SubgroupInvocationID, part = lane % kKeyLanes, octet = min(part, kOctets - 1u);
  vec4 q_low[kHeads], q_high[kHeads];
  [[unroll]] for (uint h = 0; h < kHeads; ++h) {
    uint head = kv_head * group_heads + min(heads_first + h, group_heads - 1u);
    uint from = q_first(item.token_first, head) / 4u + octet * 2u;
    // Lanes beyond the head add nothing to a score.
    q_low[h] = part < kOctets ? Vec4s(qkv).v[from] : vec4(0.0);
    q_high[h] = part < kOctets ? Vec4s(qkv).v[from + 1u] : vec4(0.0);
  }
  uint key_slots = kSubgroup / kKeyLanes, step = kSubgroups * key_slots;
  uint key_end = min(item.key_end, item.position_first + 1u);
  for (uint base = item.key_begin; base < key_end; base += step * kBatch) {
    uvec4 k_raw[kBatch], v_raw[kBatch];
    float k_factor[kBatch], v_factor[kBatch];
    uint keys[kBatch];
    [[unroll]] for (uint b = 0; b < kBatch; ++b) {
      keys[b] = base + b * step + gl_SubgroupID * key_slots + lane / kKeyLanes;
      uint k_vector = kv_vector(item.slot, min(keys[b], key_end - 1u), 0u, kv_head);
      uint v_vector = k_vector + num_kv_heads * block_tokens;
      k_raw[b] = load_octet(k_vector, octet);
      v_raw[b] = load_octet(v_vector, octet);
      k_factor[b] = kv_scale(k_vector, octet, 1.0);
      v_factor[b] = kv_scale(v_vector, octet, v_scale);
    }
    float score[kHeads][kBatch];
    [[unroll]] for (uint b = 0; b < kBatch; ++b) {
      vec4 low, high;
      unpack_octet(k_raw[b], k_factor[b], low, high);
      [[unroll]] for (uint h = 0; h < kHeads; ++h) {
        float dots = dot(q_low[h], low) + dot(q_high[h], high);
        for (uint mask = kKeyLanes / 2u; mask > 0u; mask /= 2u) dots += subgroupShuffleXor(dots, mask);
        score[h][b] = keys[b] < key_end ? finish_score(dots, keys[b], item.position_first) : -kInfinity;
      }
    }
    [[unroll]] for (uint h = 0; h < kHeads; ++h) {
      float now = s.largest[h];
      [[unroll]] for (uint b = 0; b < kBatch; ++b) now = max(now, score[h][b]);
      float factor = exp(s.largest[h] - now);
      s.largest[h] = now;
      s.sum[h] *= factor;
      s.low[h] *= factor;
      s.high[h] *= factor;
    }
    [[unroll]] for (uint b = 0; b < kBatch; ++b) {
      vec4 low, high;
      unpack_octet(v_raw[b], v_factor[b], low, high);
      [[unroll]] for (uint h = 0; h < kHeads; ++h) {
        float weight = exp(score[h][b] - s.largest[h]);
        s.sum[h] += weight;
        s.low[h] += weight * low;
        s.high[h] += weight * high;
      }
    }
  }
  // The key slots of the subgroup, then one lane a part holds the subgroup's result.
  for (uint mask = kKeyLanes; mask < kSubgroup; mask *= 2u) {
    [[unroll]] for (uint h = 0; h < kHeads; ++h) {
      float largest = subgroupShuffleXor(s.largest[h], mask), sum = subgroupShuffleXor(s.sum[h], mask);
      vec4 low = subgroupShuffleXor(s.low[h], mask), high = subgroupShuffleXor(s.high[h], mask);
      merge(s, h, largest, sum, low, high);
    }
  }
}

void finish(Item item, uint kv_head, uint heads_first, uint group_heads) {
  for (uint i = gl_LocalInvocationID.x; i < kHeads * (kHeadDim / 2u); i += gl_WorkGroupSize.x) {
    uint h = i / (kHeadDim / 2u), pair = i % (kHeadDim / 2u);
    if (heads_first + h >= group_heads) continue;
    float largest = kNoScore, sum = 0.0;
    vec2 value = vec2(0.0);
    for (uint g = 0; g < kSubgroups; ++g) largest = max(largest, shared_max[g * kHeads + h]);
    for (uint g = 0; g < kSubgroups; ++g) {
      float factor = exp(shared_max[g * kHeads + h] - largest);
      uint from = (g * kHeads + h) * kHeadDim + 2u * pair;
      sum += shared_sum[g * kHeads + h] * factor;
      value += vec2(shared_values[from], shared_values[from + 1u]) * factor;
    }
    uint head = kv_head * group_heads + heads_first + h;
    if (item.partial < 0) {
      store_pair(result, (item.token_first * num_heads + head) * kHeadDim, kHeadDim, pair,
                 sum > 0.0 ? value / sum : vec2(0.0), kOutDType);
      continue;
    }
    uint to = partial_first(uint(item.partial), head);
    partials.f[to + 2u + 2u * pair] = value.x;
    partials.f[to + 3u + 2u * pair] = value.y;
    if (pair == 0u) {
      partials.f[to] = largest;
      partials.f[to + 1u] = sum;
    }
  }
}

void main() {
  uint group_heads = num_heads / num_kv_heads, heads_first = gl_WorkGroupID.z * kHeads, kv_head = gl_WorkGroupID.y;
  uint count = num_items(), part = gl_SubgroupInvocationID;
  for (uint i = gl_WorkGroupID.x; i < count; i += gl_NumWorkGroups.x) {
    Item item = load_item(i);
    State s;
    [[unroll]] for (uint h = 0; h < kHeads; ++h) {
      s.largest[h] = kNoScore;
      s.sum[h] = 0.0;
      s.low[h] = s.high[h] = vec4(0.0);
    }
    attend(item, kv_head, heads_first, group_heads, s);
    barrier();  // an earlier item's values may still be read
    [[unroll]] for (uint h = 0; h < kHeads; ++h) {
      uint to = gl_SubgroupID * kHeads + h;
      if (part == 0u) {
        shared_max[to] = s.largest[h];
        shared_sum[to] = s.sum[h];
      }
      if (part < kOctets) {
        [[unroll]] for (uint e = 0; e < 4; ++e) {
          shared_values[to * kHeadDim + part * 8u + e] = s.low[h][e];
          shared_values[to * kHeadDim + part * 8u + 4u + e] = s.high[h][e];
        }
      }
    }
    barrier();
    finish(item, kv_head, heads_first, group_heads);
  }
}
