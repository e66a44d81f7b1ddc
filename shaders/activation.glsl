// Twin: core/ops/ops.h Activation.
const uint kSilu = 0, kGelu = 1, kClampedSilu = 2, kSquaredRelu = 3;

float activate(uint activation, float gate) {
  if (activation == kSilu) return gate / (1.0 + exp(-gate));
  // tanh through exp of a negative number, so that nothing overflows.
  float y = 0.797884560802865 * (gate + 0.044715 * gate * gate * gate), e = exp(-2.0 * abs(y));
  float tanh_y = sign(y) * (1.0 - e) / (1.0 + e);
  return 0.5 * gate * (1.0 + tanh_y);
}
