// Attention for decode items (one query token), made for bandwidth: one workgroup an item and a KV head (x walks the
// items, y = KV head, z = kHeads query heads of its group). A key is read by kKeyLanes lanes, 8 numbers each; they take
// kBatch keys of one block at a time and keep softmax and values of all their query heads in registers. As soon as a
// batch has been multiplied, the loads of the next one replace it, by a block id that was fetched a batch before.
// Subgroups split the keys and are merged through shared memory. Of an item that is one of several splits the last
// group to arrive merges them, in their order. f32 arithmetic.
#version 460
#pragma use_vulkan_memory_model
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "types.glsl"
#include "arrival.glsl"
#include "paged.glsl"

layout(constant_id = 15) const uint kHeads = 4;
layout(constant_id = 16) const uint kKeyLanes = 8;   // a power of two, at least kHeadDim / 8
layout(constant_id = 17) const uint kSubgroups = 4;  // of the workgroup
layout(constant_id = 18) const uint kBatch = 4;      // a power of two, at most 16: the keys of a batch are in one block
layout(constant_id = 19) const uint kMergeBatch = 8;

#include "paged_decode.glsl"

const uint kOctets = kHeadDim / 8;
const uint kKeySlots = kSubgroup / kKeyLanes;
const uint kStride = kSubgroups * kKeySlots * kBatch;  // keys of a batch of the whole group
const bool kScaled = kVectorScales || kBlockScales;
const float kUnit = kF8 ? 256.0 : 1.0;  // of numbers as unpack_octet gives them
// Sums are scaled anew only when a maximum has risen by more than this (in powers of two).
const float kRise = 8.0;
shared float shared_max[kSubgroups * kHeads], shared_sum[kSubgroups * kHeads];
shared vec4 shared_values[kSubgroups * kHeads * 2 * kOctets];  // of a head: first halves of octets, then second

// Keys and values on their way from memory, or arrived; the block of the batch after them.
uvec4 k_raw[kBatch], v_raw[kBatch];
float k_factor[kBatch], v_factor[kBatch];
uint next_block;

struct Keys {
  uint begin, end;  // that the token sees
  uint table, block_shift, kv_head, octet;
};

// Keys that are not seen are replaced by ones that are, so that every number is one that was written.
void fetch_block(Keys keys, uint key_first) {
  next_block = tables.w[keys.table + (min(key_first, keys.end - 1u) >> keys.block_shift)];
}
uint key_vector(Keys keys, uint key) {
  uint at = clamp(key, keys.begin, keys.end - 1u) & (block_tokens - 1u);  // blocks are of 16, 32 or 64
  return (next_block * 2u * num_kv_heads + keys.kv_head) * block_tokens + at;
}
// Numbers 8i to 8i + 7 of a vector of the pool, as they lie there.
uvec4 load_octet(uint vector, uint i) {
  if (kBytes) return uvec4(Pairs(data).p[vector * kOctets + i], 0u, 0u);
  return Quads(data).q[vector * kOctets + i];
}
void fetch_keys(Keys keys, uint key_first) {
  [[unroll]] for (uint b = 0; b < kBatch; ++b) {
    uint vector = key_vector(keys, key_first + b);
    k_raw[b] = load_octet(vector, keys.octet);
    if (kScaled) k_factor[b] = kv_scale(vector, keys.octet, 1.0);
  }
}
void fetch_values(Keys keys, uint key_first) {
  [[unroll]] for (uint b = 0; b < kBatch; ++b) {
    uint vector = key_vector(keys, key_first + b) + num_kv_heads * block_tokens;
    v_raw[b] = load_octet(vector, keys.octet);
    if (kScaled) v_factor[b] = kv_scale(vector, keys.octet, 1.0);
  }
}

// Bytes become low bits of floats around 2^23, without the slow conversions of integers.
vec4 i8_numbers(uint word) {
  uint upper = word >> 16;
  vec4 biased = uintBitsToFloat((uvec4(word, word, upper, upper) & uvec4(0xffu, 0xff00u, 0xffu, 0xff00u)) ^
                                uvec4(0x4b000080u, 0x4b008000u, 0x4b000080u, 0x4b008000u));
  return biased * vec4(1.0, 0.00390625, 1.0, 0.00390625) - vec4(8388736.0, 32896.0, 8388736.0, 32896.0);
}
void unpack_octet(uvec4 raw, out vec4 low, out vec4 high) {
  if (!kBytes) {
    low = vec4(unpack16(raw.x, kKvDType), unpack16(raw.y, kKvDType));
    high = vec4(unpack16(raw.z, kKvDType), unpack16(raw.w, kKvDType));
  } else {
    low = kF8 ? f8_units(raw.x) : i8_numbers(raw.x);
    high = kF8 ? f8_units(raw.y) : i8_numbers(raw.y);
  }
}

struct State {
  float largest[kHeads], sum[kHeads];
  vec4 low[kHeads], high[kHeads];  // this lane's 8 numbers of the values
};

void merge(inout State s, uint h, float largest, float sum, vec4 low, vec4 high) {
  float now = max(s.largest[h], largest), a = exp2(s.largest[h] - now), b = exp2(largest - now);
  s.largest[h] = now;
  s.sum[h] = s.sum[h] * a + sum * b;
  s.low[h] = s.low[h] * a + low * b;
  s.high[h] = s.high[h] * a + high * b;
}

// The batch that has arrived; `next`: the first key of the lane's batch that replaces it.
void attend_batch(Keys keys, uint key_first, uint next, vec4 q_low[kHeads], vec4 q_high[kHeads],
                  inout State s) {
  float score[kHeads * kBatch];
  vec4 low, high;
  [[unroll]] for (uint b = 0; b < kBatch; ++b) {
    unpack_octet(k_raw[b], low, high);
    [[unroll]] for (uint h = 0; h < kHeads; ++h) {
      float dots = dot(q_low[h], low) + dot(q_high[h], high);
      if (kScaled) dots *= k_factor[b];
      score[h * kBatch + b] = dots;
    }
  }
  fetch_keys(keys, next);
  [[unroll]] for (uint mask = kKeyLanes / 2u; mask > 0u; mask /= 2u) {
    [[unroll]] for (uint i = 0; i < kHeads * kBatch; ++i) score[i] += subgroupShuffleXor(score[i], mask);
  }
  [[unroll]] for (uint b = 0; b < kBatch; ++b) {
    bool seen = key_first + b >= keys.begin && key_first + b < keys.end;
    [[unroll]] for (uint h = 0; h < kHeads; ++h) {
      uint i = h * kBatch + b;
      if (kSoftCap) score[i] = kLog2e * capped(score[i]);
      if (!seen) score[i] = -kInfinity;
    }
  }
  [[unroll]] for (uint h = 0; h < kHeads; ++h) {
    float now = score[h * kBatch];
    [[unroll]] for (uint b = 1; b < kBatch; ++b) now = max(now, score[h * kBatch + b]);
    if (now > s.largest[h] + kRise) {
      float factor = exp2(s.largest[h] - now);
      s.largest[h] = now;
      s.sum[h] *= factor;
      s.low[h] *= factor;
      s.high[h] *= factor;
    }
  }
  [[unroll]] for (uint b = 0; b < kBatch; ++b) {
    unpack_octet(v_raw[b], low, high);
    [[unroll]] for (uint h = 0; h < kHeads; ++h) {
      float weight = exp2(score[h * kBatch + b] - s.largest[h]);
      s.sum[h] += weight;
      if (kScaled) weight *= v_factor[b];
      s.low[h] += weight * low;
      s.high[h] += weight * high;
    }
  }
  fetch_values(keys, next);
  fetch_block(keys, next + kStride);
}

void attend(Item item, uint kv_head, uint heads_first, uint group_heads, inout State s) {
  uint lane = gl_SubgroupInvocationID, part = lane % kKeyLanes, own = lane / kKeyLanes * kBatch;
  Keys keys = Keys(item.key_begin, min(item.key_end, item.position_first + 1u), item.slot * blocks_row_max,
                   findLSB(block_tokens), kv_head, min(part, kOctets - 1u));
  if (window > 0u && item.position_first >= window) keys.begin = max(keys.begin, item.position_first + 1u - window);
  uint base = keys.begin / kBatch * kBatch + gl_SubgroupID * kKeySlots * kBatch;
  if (keys.begin < keys.end && base < keys.end) fetch_block(keys, base + own);
  vec4 q_low[kHeads], q_high[kHeads];
  float q_factor = kUnit * (kSoftCap ? scale : scale * kLog2e);
  [[unroll]] for (uint h = 0; h < kHeads; ++h) {
    uint head = kv_head * group_heads + min(heads_first + h, group_heads - 1u);
    uint from = q_first(item.token_first, head) / 4u + keys.octet * 2u;
    // Lanes beyond the head add nothing to a score.
    q_low[h] = part < kOctets ? Vec4s(qkv).v[from] * q_factor : vec4(0.0);
    q_high[h] = part < kOctets ? Vec4s(qkv).v[from + 1u] * q_factor : vec4(0.0);
  }
  if (keys.begin < keys.end && base < keys.end) {
    fetch_keys(keys, base + own);
    fetch_values(keys, base + own);
    fetch_block(keys, base + own + kStride);
    for (; base < keys.end; base += kStride) attend_batch(keys, base + own, base + own + kStride, q_low, q_high, s);
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

// Of a head, the quad that is the `i`th of shared_values.
uint quad_of(uint i) { return i % kOctets * 2u + i / kOctets; }

void finish(Item item, uint kv_head, uint heads_first, uint group_heads) {
  for (uint i = gl_LocalInvocationID.x; i < kHeads * 2u * kOctets; i += gl_WorkGroupSize.x) {
    uint h = i / (2u * kOctets), quad = i % (2u * kOctets);
    if (heads_first + h >= group_heads) continue;
    float largest = kNoScore, sum = 0.0;
    vec4 value = vec4(0.0);
    [[unroll]] for (uint g = 0; g < kSubgroups; ++g) largest = max(largest, shared_max[g * kHeads + h]);
    [[unroll]] for (uint g = 0; g < kSubgroups; ++g) {
      float factor = exp2(shared_max[g * kHeads + h] - largest);
      sum += shared_sum[g * kHeads + h] * factor;
      value += shared_values[(g * kHeads + h) * 2u * kOctets + quad] * factor;
    }
    value *= kUnit * (kScaled ? 1.0 : v_scale);
    store_result(item, kv_head * group_heads + heads_first + h, quad_of(quad), largest, sum, value);
  }
}

void main() {
  uint group_heads = num_heads / num_kv_heads, heads_first = gl_WorkGroupID.z * kHeads, kv_head = gl_WorkGroupID.y;
  uint count = num_items(), part = gl_SubgroupInvocationID;
  for (uint i = gl_WorkGroupID.x; i < count; i += gl_NumWorkGroups.x) {
    Item item = load_item(i);
    Merge merge;
    if (item.partial >= 0) merge = load_merge(item.partial_stride);  // long before it is needed
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
        shared_values[to * 2u * kOctets + part] = s.low[h];
        shared_values[to * 2u * kOctets + kOctets + part] = s.high[h];
      }
    }
    barrier();
    finish(item, kv_head, heads_first, group_heads);
    if (item.partial >= 0) merge_when_last(merge, kv_head, heads_first, group_heads);
  }
}
