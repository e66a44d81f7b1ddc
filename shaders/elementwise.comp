// Ops that make each number of `out` from one or two numbers at a place: gated_activation, add, scale, soft_cap,
// sigmoid_gate. One invocation a pair of numbers of the flat output, so odd widths need nothing special.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "spread.glsl"
#include "activation.glsl"
#include "gated.glsl"

layout(constant_id = 10) const uint kOp = 0;
const uint kAdd = 4, kScale = 5, kSoftCap = 6, kGate = 7;  // below them activations
layout(constant_id = 11) const uint kOutDType = kF32;

layout(push_constant) uniform Push {
  Floats a, b;
  Words result, count;
  uint columns;
  float factor;  // soft_cap: the cap
};

// Through exp of a negative number, so that nothing overflows; near 0, where 1 - e loses digits, by its series.
float tanh_of(float y) {
  float e = exp(-2.0 * abs(y)), square = y * y;
  if (abs(y) < 0.1) return y * (1.0 - square * (1.0 / 3.0 - square * (2.0 / 15.0 - square * (17.0 / 315.0))));
  return sign(y) * (1.0 - e) / (1.0 + e);
}

float value(uint idx) {
  if (kOp == kAdd) return a.f[idx] + b.f[idx];
  if (kOp == kScale) return a.f[idx] * factor;
  if (kOp == kSoftCap) return factor * tanh_of(a.f[idx] / factor);
  if (kOp == kGate) return a.f[idx] / (1.0 + exp(-b.f[idx]));
  if (kOp == kSquaredRelu) return squared_relu(a.f[idx]);
  uint row = idx / columns, gate_idx = row * 2u * columns + (idx - row * columns);
  return gated(kOp, a.f[gate_idx], a.f[gate_idx + columns]);
}

void main() {
  uint num = count.w[0] * columns, pair = spread_group() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (2u * pair >= num) return;
  bool second = 2u * pair + 1u < num;
  vec2 x = vec2(value(2u * pair), second ? value(2u * pair + 1u) : 0.0);
  store_pair(result, 0u, second ? num & ~1u : num, pair, x, kOutDType);
}
