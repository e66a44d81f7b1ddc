// latent_rows of one token: the row of the cache (rank numbers normed by RMS, then rope_dim numbers turned), in the
// pool's dtype, and the turned ends of the queries. One workgroup a token (x); the row lies in shared memory.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "reduce.glsl"
#include "kv_format.glsl"
#include "rope.glsl"

layout(constant_id = 10) const uint kRope = kInterleaved;
layout(constant_id = 11) const uint kWrite = kKvF16;  // the pool's dtype

layout(push_constant) uniform Push {
  Floats q, kv, query;
  Ints positions, kv_slots;
  Floats norm, freqs;
  Words data;
  Floats scales;
  Words count;
  uint num_heads, nope, rank, rope_dim;
  float eps, magnitude, k_scale;  // k_scale: of an fp8-tensor pool
  uint turns_q;                   // 1: in q, too
};

const bool kI8 = kWrite == kKvI8 || kWrite == kKvI8Block, kBlocks = kWrite == kKvI8Block || kWrite == kKvF8Block;

shared float row[576];

// Pair i of numbers from `first` on of `from`.
uvec2 pair_at(uint i) {
  return kRope == kInterleaved ? uvec2(2u * i, 2u * i + 1u) : uvec2(i, i + rope_dim / 2u);
}

void write_pool(uint vector) {
  uint dim = rank + rope_dim;
  if (kWrite < kKvI8) {
    for (uint i = gl_LocalInvocationID.x; i < dim / 2u; i += gl_WorkGroupSize.x)
      data.w[vector * (dim / 2u) + i] = pack16(vec2(row[2u * i], row[2u * i + 1u]), kWrite);
    return;
  }
  uint each = kBlocks ? kKvScaleBlock : dim, num_scales = dim / each;
  for (uint part = 0; part < num_scales; ++part) {
    uint begin = part * each, end = begin + each;
    float inverse = 1.0 / k_scale;
    if (kWrite != kKvF8Tensor) {
      float largest = 0.0;
      for (uint i = begin + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x)
        largest = max(largest, abs(row[i]));
      float scale = group_max(largest) / (kI8 ? 127.0 : 448.0);
      if (gl_LocalInvocationID.x == 0u) scales.f[vector * num_scales + part] = scale;
      inverse = scale > 0.0 ? 1.0 / scale : 0.0;
    }
    for (uint i = begin / 4u + gl_LocalInvocationID.x; i < end / 4u; i += gl_WorkGroupSize.x) {
      uint packed = 0u;
      [[unroll]] for (uint j = 0; j < 4u; ++j) {
        float x = row[4u * i + j] * inverse;
        packed |= (kI8 ? i8_bits(x) : f8_bits(x)) << (8u * j);
      }
      data.w[vector * (dim / 4u) + i] = packed;
    }
  }
}

void main() {
  uint t = gl_WorkGroupID.x, dim = rank + rope_dim, num_pairs = rope_dim / 2u;
  if (t >= count.w[0]) return;
  uint position = uint(positions.i[t]), first = t * dim;
  float sum = 0.0;
  for (uint i = gl_LocalInvocationID.x; i < rank; i += gl_WorkGroupSize.x) {
    float x = kv.f[first + i];
    row[i] = x;
    sum += x * x;
  }
  float factor = 1.0 / sqrt(group_sum(sum) / float(rank) + eps);
  for (uint i = gl_LocalInvocationID.x; i < rank; i += gl_WorkGroupSize.x) row[i] *= factor * norm.f[i];
  for (uint i = gl_LocalInvocationID.x; i < num_pairs; i += gl_WorkGroupSize.x) {
    uvec2 at = pair_at(i);
    vec2 angle = turn(position, freqs.f[i]) * magnitude;
    vec2 x = turned(vec2(kv.f[first + rank + at.x], kv.f[first + rank + at.y]), angle);
    row[rank + at.x] = x.x;
    row[rank + at.y] = x.y;
    for (uint head = 0; head < num_heads; ++head) {
      uint from = (t * num_heads + head) * (nope + rope_dim) + nope, to = (t * num_heads + head) * dim + rank;
      vec2 y = turned(vec2(q.f[from + at.x], q.f[from + at.y]), angle);
      query.f[to + at.x] = y.x;
      query.f[to + at.y] = y.y;
      if (turns_q == 1u) {
        q.f[from + at.x] = y.x;
        q.f[from + at.y] = y.y;
      }
    }
  }
  group_barrier();
  int kv_slot = kv_slots.i[t];
  if (kv_slot >= 0) write_pool(uint(kv_slot));  // blocks hold one vector a token
}
