// Ops that make each number of `out` from one or two numbers at a place: gated_activation, add, scale. One invocation a
// pair of numbers of the flat output, so odd widths need nothing special.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "spread.glsl"
#include "activation.glsl"

layout(constant_id = 10) const uint kOp = 0;
const uint kAdd = 2, kScale = 3;  // below them activations
layout(constant_id = 11) const uint kOutDType = kF32;

layout(push_constant) uniform Push {
  Floats a, b;
  Words result, count;
  uint columns;
  float factor;
};

float value(uint idx) {
  if (kOp == kAdd) return a.f[idx] + b.f[idx];
  if (kOp == kScale) return a.f[idx] * factor;
  uint row = idx / columns, gate_idx = row * 2u * columns + (idx - row * columns);
  float gate = a.f[gate_idx], up = a.f[gate_idx + columns];
  return activate(kOp, gate) * up;
}

void main() {
  uint num = count.w[0] * columns, pair = spread_group() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (2u * pair >= num) return;
  bool second = 2u * pair + 1u < num;
  vec2 x = vec2(value(2u * pair), second ? value(2u * pair + 1u) : 0.0);
  store_pair(result, 0u, second ? num & ~1u : num, pair, x, kOutDType);
}
