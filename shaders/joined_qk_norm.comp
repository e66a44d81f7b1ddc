// In place: RMS norm of all numbers of q, and of all those of k. One workgroup a part (x: q, then k) of a row of qkv (y);
// sums in f32.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "reduce.glsl"

layout(push_constant) uniform Push {
  Floats qkv, q_weight, k_weight;
  Words count;
  uint q_columns, k_columns, columns;
  float eps;
};

void main() {
  bool is_k = gl_WorkGroupID.x == 1u;
  uint t = gl_WorkGroupID.y;
  if (t >= count.w[0]) return;
  uint first = t * columns + (is_k ? q_columns : 0u), num = is_k ? k_columns : q_columns;
  float sum = 0.0;
  for (uint i = gl_LocalInvocationID.x; i < num; i += gl_WorkGroupSize.x) sum += qkv.f[first + i] * qkv.f[first + i];
  float factor = 1.0 / sqrt(group_sum(sum) / float(num) + eps);
  for (uint i = gl_LocalInvocationID.x; i < num; i += gl_WorkGroupSize.x)
    qkv.f[first + i] *= factor * (is_k ? k_weight.f[i] : q_weight.f[i]);
}
