// RMS norm of each run of group_columns numbers of a row, and a gate: kGateFirst: y = x * silu(gate), out = y / sqrt(mean
// (y^2) + eps) * weight; else out = x / sqrt(mean(x^2) + eps) * weight * silu(gate). One workgroup a run: x of the grid
// is the run, y the row. Sums in f32.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "reduce.glsl"

layout(constant_id = 10) const bool kGateFirst = false;
layout(constant_id = 11) const uint kOutDType = kF32;
// vec4s of a run that an invocation keeps; 0: runs of any width, read twice.
layout(constant_id = 12) const uint kQuads = 0;
layout(constant_id = 13) const bool kSharedWeight = false;  // of all runs

layout(push_constant) uniform Push {
  Floats x, gate, weight;
  Words result, count;
  uint group_columns, gate_columns;  // gate_columns: from a row to the next
  float eps;
};

vec2 silu(vec2 g) { return g / (1.0 + exp(-g)); }
vec4 silu(vec4 g) { return g / (1.0 + exp(-g)); }

void normalise_kept(uint first, uint gate_first, uint weight_first) {
  const uint lane = gl_LocalInvocationID.x, quads = group_columns / 4u;
  vec4 y[kQuads > 0 ? kQuads : 1], factors[kQuads > 0 ? kQuads : 1];
  float sum = 0.0;
  [[unroll]] for (uint q = 0; q < kQuads; ++q) {
    uint i = min(q * gl_WorkGroupSize.x + lane, quads - 1u);
    y[q] = Vec4s(x).v[first / 4u + i];
    factors[q] = silu(Vec4s(gate).v[gate_first / 4u + i]);
    if (kGateFirst) y[q] *= factors[q];
    if (q * gl_WorkGroupSize.x + lane < quads) sum += dot(y[q], y[q]);
  }
  float factor = 1.0 / sqrt(group_sum(sum) / float(group_columns) + eps);
  [[unroll]] for (uint q = 0; q < kQuads; ++q) {
    uint i = q * gl_WorkGroupSize.x + lane;
    if (i >= quads) continue;
    vec4 z = y[q] * factor * Vec4s(weight).v[weight_first / 4u + i];
    if (!kGateFirst) z *= factors[q];
    if (kOutDType == kF32)
      Vec4s(result).v[first / 4u + i] = z;
    else
      Pairs(result).p[first / 4u + i] = uvec2(pack16(z.xy, kOutDType), pack16(z.zw, kOutDType));
  }
}

// Numbers 2i and 2i + 1 of a run; the second is 0 beyond its end.
vec2 load(Floats source, uint first, uint i) {
  return vec2(source.f[first + 2u * i], 2u * i + 1u < group_columns ? source.f[first + 2u * i + 1u] : 0.0);
}

void main() {
  const uint row = gl_WorkGroupID.y, run = gl_WorkGroupID.x * group_columns;
  if (row >= count.w[0]) return;
  const uint first = row * gl_NumWorkGroups.x * group_columns + run, gate_first = row * gate_columns + run;
  const uint weight_first = kSharedWeight ? 0u : run;
  if (kQuads > 0u) {
    normalise_kept(first, gate_first, weight_first);
    return;
  }
  float sum = 0.0;
  for (uint i = gl_LocalInvocationID.x; 2u * i < group_columns; i += gl_WorkGroupSize.x) {
    vec2 y = load(x, first, i);
    if (kGateFirst) y *= silu(load(gate, gate_first, i));
    sum += dot(y, y);
  }
  float factor = 1.0 / sqrt(group_sum(sum) / float(group_columns) + eps);
  for (uint i = gl_LocalInvocationID.x; 2u * i < group_columns; i += gl_WorkGroupSize.x)
    store_pair(result, first, group_columns, i,
               load(x, first, i) * silu(load(gate, gate_first, i)) * factor * load(weight, weight_first, i), kOutDType);
}
