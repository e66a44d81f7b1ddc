// activation(gate, up), the clamped one too. Needs activation.glsl. Twin: core/ops/ops.h Activation.
float gated(uint activation, float gate, float up) {
  if (activation != kClampedSilu) return activate(activation, gate) * up;
  // gpt-oss; comparisons keep what is not a number.
  float g = gate > 7.0 ? 7.0 : gate, u = up > 7.0 ? 7.0 : up < -7.0 ? -7.0 : up;
  return g / (1.0 + exp(-1.702 * g)) * (u + 1.0);
}

// Without another half; what is not a number stays so.
float squared_relu(float x) { return x < 0.0 ? 0.0 : x * x; }
