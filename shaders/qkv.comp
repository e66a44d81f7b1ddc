// qk_norm, rope and kv_write of one head of one token: any run of the three over a qkv tensor. One workgroup a head
// (x: q heads, then k, then v; y: token). The head lies in shared memory; q and k go back in place, k and v to the pool.
// With kByPairs nothing is shared: x walks two pairs of all heads at a time.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "reduce.glsl"
#include "kv_format.glsl"
#include "rope.glsl"

layout(constant_id = 10) const uint kNorm = 0;  // 1: of q and k, 2: of v too
layout(constant_id = 11) const uint kRope = kNoRope;
layout(constant_id = 12) const uint kWrite = 0;  // 0 none, else the pool's dtype
layout(constant_id = 13) const bool kByPairs = false;  // all pairs of a head turn, and the pool is of 16 bits

layout(push_constant) uniform Push {
  Floats qkv, q_weight, k_weight, v_weight;
  Ints positions;
  Floats freqs;
  Ints kv_slots;
  Words data;
  Floats scales;
  Words count;
  uint num_heads, num_kv_heads, head_dim, rope_dim, block_tokens;
  float eps, magnitude;
  float k_scale, v_scale;  // of an fp8-tensor pool
};

const bool kI8 = kWrite == kKvI8 || kWrite == kKvI8Block, kBlocks = kWrite == kKvI8Block || kWrite == kKvF8Block;

shared float head[256];

void normalise(bool is_q, bool is_v) {
  float sum = 0.0;
  for (uint i = gl_LocalInvocationID.x; i < head_dim; i += gl_WorkGroupSize.x) sum += head[i] * head[i];
  float factor = 1.0 / sqrt(group_sum(sum) / float(head_dim) + eps);
  for (uint i = gl_LocalInvocationID.x; i < head_dim; i += gl_WorkGroupSize.x)
    head[i] *= factor * (is_q ? q_weight.f[i] : is_v ? v_weight.f[i] : k_weight.f[i]);
  group_barrier();
}

void rotate(uint position) {
  uint half_dim = rope_dim / 2u;
  for (uint i = gl_LocalInvocationID.x; i < half_dim; i += gl_WorkGroupSize.x) {
    uint a = kRope == kInterleaved ? 2u * i : i, b = kRope == kInterleaved ? a + 1u : i + half_dim;
    vec2 t = turn(position, freqs.f[i]) * magnitude;
    vec2 x = turned(vec2(head[a], head[b]), t);
    head[a] = x.x;
    head[b] = x.y;
  }
  group_barrier();
}

uint pool_vector(uint kv_slot, uint which, uint kv_head) {
  return ((kv_slot / block_tokens * 2u + which) * num_kv_heads + kv_head) * block_tokens + kv_slot % block_tokens;
}

void write_pool(uint kv_slot, uint which, uint kv_head) {
  uint vector = pool_vector(kv_slot, which, kv_head);
  if (kWrite < kKvI8) {
    for (uint i = gl_LocalInvocationID.x; i < head_dim / 2u; i += gl_WorkGroupSize.x)
      data.w[vector * (head_dim / 2u) + i] = pack16(vec2(head[2u * i], head[2u * i + 1u]), kWrite);
    return;
  }
  uint each = kBlocks ? kKvScaleBlock : head_dim, num_scales = head_dim / each;
  for (uint part = 0; part < num_scales; ++part) {
    uint begin = part * each, end = begin + each;
    float inverse = 1.0 / (which == 0u ? k_scale : v_scale);
    if (kWrite != kKvF8Tensor) {
      float largest = 0.0;
      for (uint i = begin + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x) largest = max(largest, abs(head[i]));
      float scale = group_max(largest) / (kI8 ? 127.0 : 448.0);
      if (gl_LocalInvocationID.x == 0u) scales.f[vector * num_scales + part] = scale;
      inverse = scale > 0.0 ? 1.0 / scale : 0.0;
    }
    for (uint i = begin / 4u + gl_LocalInvocationID.x; i < end / 4u; i += gl_WorkGroupSize.x) {
      uint packed = 0u;
      [[unroll]] for (uint j = 0; j < 4u; ++j) {
        float x = head[4u * i + j] * inverse;
        packed |= (kI8 ? i8_bits(x) : f8_bits(x)) << (8u * j);
      }
      data.w[vector * (head_dim / 4u) + i] = packed;
    }
  }
}

// Two pairs of a head, the i-th of those. All is asked for before the token is known to be live.
void turn_and_store(uint t, uint head_idx, uint i) {
  const bool halves = kRope == kHalves;
  bool is_v = head_idx >= num_heads + num_kv_heads;
  uint first = (t * (num_heads + 2u * num_kv_heads) + head_idx) * head_dim;
  uint low = halves ? 2u * i : 4u * i, high = halves ? head_dim / 2u + 2u * i : 4u * i + 2u;
  vec2 a = uintBitsToFloat(Pairs(qkv).p[(first + low) / 2u]), b = uintBitsToFloat(Pairs(qkv).p[(first + high) / 2u]);
  vec2 freq = uintBitsToFloat(Pairs(freqs).p[i]);
  uint position = uint(positions.i[t]);
  int kv_slot = kv_slots.i[t];
  if (t >= count.w[0]) return;
  if (!is_v) {
    vec2 turn_a = turn(position, freq.x) * magnitude, turn_b = turn(position, freq.y) * magnitude;
    if (halves) {
      vec2 x = turned(vec2(a.x, b.x), turn_a), y = turned(vec2(a.y, b.y), turn_b);
      a = vec2(x.x, y.x);
      b = vec2(x.y, y.y);
    } else {
      a = turned(a, turn_a);
      b = turned(b, turn_b);
    }
    Pairs(qkv).p[(first + low) / 2u] = floatBitsToUint(a);
    Pairs(qkv).p[(first + high) / 2u] = floatBitsToUint(b);
  }
  if (head_idx < num_heads || kv_slot < 0) return;
  uint vector = pool_vector(uint(kv_slot), is_v ? 1u : 0u, (head_idx - num_heads) % num_kv_heads);
  data.w[(vector * head_dim + low) / 2u] = pack16(a, kWrite);
  data.w[(vector * head_dim + high) / 2u] = pack16(b, kWrite);
}

void main() {
  uint head_idx = gl_WorkGroupID.x, t = gl_WorkGroupID.y;
  if (kByPairs) {
    uint i = gl_GlobalInvocationID.x;
    if (i < (num_heads + 2u * num_kv_heads) * head_dim / 4u) turn_and_store(t, i / (head_dim / 4u), i % (head_dim / 4u));
    return;
  }
  if (t >= count.w[0]) return;
  bool is_q = head_idx < num_heads, is_v = head_idx >= num_heads + num_kv_heads;
  uint first = (t * (num_heads + 2u * num_kv_heads) + head_idx) * head_dim;
  for (uint i = gl_LocalInvocationID.x; i < head_dim; i += gl_WorkGroupSize.x) head[i] = qkv.f[first + i];
  group_barrier();
  bool is_normed = kNorm == 2 || (kNorm == 1 && !is_v), is_turned = kRope != kNoRope && !is_v;
  if (is_normed) normalise(is_q, is_v);
  if (is_turned) rotate(uint(positions.i[t]));
  if (is_normed || is_turned)
    for (uint i = gl_LocalInvocationID.x; i < head_dim; i += gl_WorkGroupSize.x) qkv.f[first + i] = head[i];
  if (kWrite > 0u && !is_q) {
    int kv_slot = kv_slots.i[t];
    if (kv_slot >= 0) write_pool(uint(kv_slot), is_v ? 1u : 0u, (head_idx - num_heads) % num_kv_heads);
  }
}
