// x += the sum of kDeltas deltas (in place); out = x / sqrt(mean(x^2) + eps) * weight. One workgroup a row; sums in f32.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "reduce.glsl"

layout(constant_id = 10) const uint kDeltas = 0;  // one behind the other; more than one only where invocations keep numbers
layout(constant_id = 11) const uint kOutDType = kF32;
layout(constant_id = 12) const uint kQuads = 0;  // vec4s of a row that an invocation keeps; 0: rows of any width, read twice
layout(constant_id = 13) const bool kLeavesFactor = false;

layout(push_constant) uniform Push {
  Floats x, delta, weight;
  Words result, count;
  Floats factors;  // kLeavesFactor: what each row was multiplied by
  uint columns;
  float eps;
};

// Numbers 2i and 2i + 1 of the row; 0 beyond its end.
vec2 load(uint first, uint i) {
  return vec2(x.f[first + 2u * i], 2u * i + 1u < columns ? x.f[first + 2u * i + 1u] : 0.0);
}

void leave(uint row, float factor) {
  if (kLeavesFactor && gl_LocalInvocationID.x == 0u) factors.f[row] = factor;
}

// All loads of the row at once, before it is known to be live.
void normalise_kept(uint row) {
  const uint lane = gl_LocalInvocationID.x, quads = columns / 4u, first = row * quads;
  vec4 kept[kQuads > 0 ? kQuads : 1], factors[kQuads > 0 ? kQuads : 1];
  [[unroll]] for (uint q = 0; q < kQuads; ++q) {
    uint i = min(q * gl_WorkGroupSize.x + lane, quads - 1u);
    kept[q] = Vec4s(x).v[first + i];
    vec4 deltas = vec4(0.0);
    [[unroll]] for (uint d = 0; d < kDeltas; ++d) deltas += Vec4s(delta).v[d * gl_NumWorkGroups.x * quads + first + i];
    if (kDeltas > 0) kept[q] += deltas;
    factors[q] = Vec4s(weight).v[i];
  }
  if (row >= count.w[0]) return;
  float sum = 0.0;
  [[unroll]] for (uint q = 0; q < kQuads; ++q) {
    uint i = q * gl_WorkGroupSize.x + lane;
    if (i >= quads) continue;
    sum += dot(kept[q], kept[q]);
    if (kDeltas > 0) Vec4s(x).v[first + i] = kept[q];
  }
  float factor = 1.0 / sqrt(group_sum(sum) / float(columns) + eps);
  leave(row, factor);
  [[unroll]] for (uint q = 0; q < kQuads; ++q) {
    uint i = q * gl_WorkGroupSize.x + lane;
    if (i >= quads) continue;
    vec4 y = kept[q] * factor * factors[q];
    if (kOutDType == kF32)
      Vec4s(result).v[first + i] = y;
    else
      Pairs(result).p[first + i] = uvec2(pack16(y.xy, kOutDType), pack16(y.zw, kOutDType));
  }
}

void main() {
  uint row = gl_WorkGroupID.x, first = row * columns;
  if (kQuads > 0) {
    normalise_kept(row);
    return;
  }
  if (row >= count.w[0]) return;
  float sum = 0.0;
  for (uint i = gl_LocalInvocationID.x; 2u * i < columns; i += gl_WorkGroupSize.x) {
    vec2 pair = load(first, i);
    if (kDeltas > 0) {
      pair += vec2(delta.f[first + 2u * i], 2u * i + 1u < columns ? delta.f[first + 2u * i + 1u] : 0.0);
      store_pair(Words(x), first, columns, i, pair, kF32);
    }
    sum += dot(pair, pair);
  }
  float factor = 1.0 / sqrt(group_sum(sum) / float(columns) + eps);
  leave(row, factor);
  // Each invocation reads back only what it wrote itself.
  for (uint i = gl_LocalInvocationID.x; 2u * i < columns; i += gl_WorkGroupSize.x) {
    vec2 w = vec2(weight.f[2u * i], weight.f[min(2u * i + 1u, columns - 1u)]);
    store_pair(result, first, columns, i, load(first, i) * factor * w, kOutDType);
  }
}
