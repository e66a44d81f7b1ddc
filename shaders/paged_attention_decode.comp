// Attention for decode items, made for bandwidth: one workgroup an item and a KV head (x walks the items, y = KV head, z =
// kRows of the item's rows). A key is read by kKeyLanes lanes, 8 numbers each; they take kBatch keys of one block at a
// time and keep softmax and values of all their rows in registers. As soon as a
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

layout(constant_id = 15) const uint kRows = 4;
layout(constant_id = 16) const uint kKeyLanes = 8;   // a power of two, at least kHeadDim / 8
layout(constant_id = 17) const uint kSubgroups = 4;  // of the workgroup
layout(constant_id = 18) const uint kBatch = 4;      // a power of two, at most 16: the keys of a batch are in one block
layout(constant_id = 19) const uint kMergeBatch = 8;
layout(constant_id = 20) const bool kHasRuns = false;  // items may have several tokens

#include "paged_decode.glsl"

const uint kOctets = kHeadDim / 8;
const uint kKeySlots = kSubgroup / kKeyLanes;
const uint kStride = kSubgroups * kKeySlots * kBatch;  // keys of a batch of the whole group
const bool kScaled = kVectorScales || kBlockScales;
const float kUnit = kF8 ? 256.0 : 1.0;  // of numbers as unpack_octet gives them
// Sums are scaled anew only when a maximum has risen by more than this (in powers of two).
const float kRise = 8.0;
shared float shared_max[kSubgroups * kRows], shared_sum[kSubgroups * kRows];
shared vec4 shared_values[kSubgroups * kRows * 2 * kOctets];  // of a head: first halves of octets, then second

// Keys and values on their way from memory, or arrived; the block of the batch after them.
uvec4 k_raw[kBatch], v_raw[kBatch];
float k_factor[kBatch], v_factor[kBatch];
uint next_block;

struct Keys {
  uint begin, end;  // that any token sees
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
  float largest[kRows], sum[kRows];
  vec4 low[kRows], high[kRows];  // this lane's 8 numbers of the values
};

void merge(inout State s, uint h, float largest, float sum, vec4 low, vec4 high) {
  float now = max(s.largest[h], largest), a = exp2(s.largest[h] - now), b = exp2(largest - now);
  s.largest[h] = now;
  s.sum[h] = s.sum[h] * a + sum * b;
  s.low[h] = s.low[h] * a + low * b;
  s.high[h] = s.high[h] * a + high * b;
}

// The batch that has arrived; `next`: the first key of the lane's batch that replaces it.
void attend_batch(Keys keys, uint key_first, uint next, vec4 q_low[kRows], vec4 q_high[kRows], uvec2 seen_by_row[kRows],
                  inout State s) {
  float score[kRows * kBatch];
  vec4 low, high;
  [[unroll]] for (uint b = 0; b < kBatch; ++b) {
    unpack_octet(k_raw[b], low, high);
    [[unroll]] for (uint h = 0; h < kRows; ++h) {
      float dots = dot(q_low[h], low) + dot(q_high[h], high);
      if (kScaled) dots *= k_factor[b];
      score[h * kBatch + b] = dots;
    }
  }
  fetch_keys(keys, next);
  [[unroll]] for (uint mask = kKeyLanes / 2u; mask > 0u; mask /= 2u) {
    [[unroll]] for (uint i = 0; i < kRows * kBatch; ++i) score[i] += subgroupShuffleXor(score[i], mask);
  }
  [[unroll]] for (uint b = 0; b < kBatch; ++b) {
    bool seen = key_first + b >= keys.begin && key_first + b < keys.end;
    [[unroll]] for (uint h = 0; h < kRows; ++h) {
      uint i = h * kBatch + b;
      if (kSoftCap) score[i] = kLog2e * capped(score[i]);
      if (kHasRuns) seen = key_first + b >= seen_by_row[h].x && key_first + b < seen_by_row[h].y;
      if (!seen) score[i] = -kInfinity;
    }
  }
  [[unroll]] for (uint h = 0; h < kRows; ++h) {
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
    [[unroll]] for (uint h = 0; h < kRows; ++h) {
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

void attend(Item item, Rows rows, inout State s) {
  uint lane = gl_SubgroupInvocationID, part = lane % kKeyLanes, own = lane / kKeyLanes * kBatch;
  uvec2 seen = seen_by_any(item);
  Keys keys = Keys(seen.x, seen.y, item.slot * blocks_row_max, findLSB(block_tokens), rows.kv_head,
                   min(part, kOctets - 1u));
  // With runs from where it begins for a token by itself, too.
  const uint kMultiple = kHasRuns ? 16u : kBatch;
  uint base = keys.begin / kMultiple * kMultiple + gl_SubgroupID * kKeySlots * kBatch;
  if (keys.begin < keys.end && base < keys.end) fetch_block(keys, base + own);
  vec4 q_low[kRows], q_high[kRows];
  uvec2 seen_by_row[kRows];
  float q_factor = kUnit * (kSoftCap ? scale : scale * kLog2e);
  [[unroll]] for (uint h = 0; h < kRows; ++h) {
    Row row = row_of(rows, min(rows.first + h, rows.end - 1u));
    uint from = q_first(item.token_first + row.token, row.head) / 4u + keys.octet * 2u;
    // Lanes beyond the head add nothing to a score.
    q_low[h] = part < kOctets ? Vec4s(qkv).v[from] * q_factor : vec4(0.0);
    q_high[h] = part < kOctets ? Vec4s(qkv).v[from + 1u] * q_factor : vec4(0.0);
    if (kHasRuns) seen_by_row[h] = seen_by(item, row.token);
  }
  if (keys.begin < keys.end && base < keys.end) {
    fetch_keys(keys, base + own);
    fetch_values(keys, base + own);
    fetch_block(keys, base + own + kStride);
    for (; base < keys.end; base += kStride) attend_batch(keys, base + own, base + own + kStride, q_low, q_high, seen_by_row, s);
  }
  // The key slots of the subgroup, then one lane a part holds the subgroup's result.
  for (uint mask = kKeyLanes; mask < kSubgroup; mask *= 2u) {
    [[unroll]] for (uint h = 0; h < kRows; ++h) {
      float largest = subgroupShuffleXor(s.largest[h], mask), sum = subgroupShuffleXor(s.sum[h], mask);
      vec4 low = subgroupShuffleXor(s.low[h], mask), high = subgroupShuffleXor(s.high[h], mask);
      merge(s, h, largest, sum, low, high);
    }
  }
}

// Of a head, the quad that is the `i`th of shared_values.
uint quad_of(uint i) { return i % kOctets * 2u + i / kOctets; }

void finish(Item item, Merge merge, Rows rows) {
  for (uint i = gl_LocalInvocationID.x; i < kRows * 2u * kOctets; i += gl_WorkGroupSize.x) {
    uint h = i / (2u * kOctets), quad = i % (2u * kOctets);
    if (rows.first + h >= rows.end) continue;
    float largest = kNoScore, sum = 0.0;
    vec4 value = vec4(0.0);
    [[unroll]] for (uint g = 0; g < kSubgroups; ++g) largest = max(largest, shared_max[g * kRows + h]);
    [[unroll]] for (uint g = 0; g < kSubgroups; ++g) {
      float factor = exp2(shared_max[g * kRows + h] - largest);
      sum += shared_sum[g * kRows + h] * factor;
      value += shared_values[(g * kRows + h) * 2u * kOctets + quad] * factor;
    }
    value *= kUnit * (kScaled ? 1.0 : v_scale);
    store_result(item, merge, row_of(rows, rows.first + h), quad_of(quad), largest, sum, value);
  }
}

void run(Item item, Merge merge, Rows rows) {
  uint part = gl_SubgroupInvocationID;
  State s;
  [[unroll]] for (uint h = 0; h < kRows; ++h) {
    s.largest[h] = kNoScore;
    s.sum[h] = 0.0;
    s.low[h] = s.high[h] = vec4(0.0);
  }
  attend(item, rows, s);
  barrier();  // an earlier item's values may still be read
  [[unroll]] for (uint h = 0; h < kRows; ++h) {
    uint to = gl_SubgroupID * kRows + h;
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
  finish(item, merge, rows);
  if (item.partial >= 0) merge_when_last(merge, rows);
}

void main() {
  uint group_heads = num_heads / num_kv_heads, kv_head = gl_WorkGroupID.y, first = gl_WorkGroupID.z * kRows;
  uint count = num_items();
  for (uint i = gl_WorkGroupID.x; i < count; i += gl_NumWorkGroups.x) {
    Item item = load_item(i);
    Merge merge;
    if (item.partial >= 0) merge = load_merge(item.partial_stride);  // long before it is needed
    uint end = num_rows(item, group_heads);
    if (!kHasRuns) {
      run(item, merge, Rows(kv_head, group_heads, first, min(first + kRows, end)));
      continue;
    }
    for (uint row = first; row < end; row += gl_NumWorkGroups.z * kRows)
      run(item, merge, Rows(kv_head, group_heads, row, min(row + kRows, end)));
  }
}
