// gated_activation, add, scale, soft_cap, sigmoid_gate, gather_rows.
#include "tests/reference/machine.h"

namespace llmrt::reference {
namespace {

double activate(Activation activation, double x) {
  if (activation == Activation::kSilu) return x / (1 + std::exp(-x));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

}  // namespace

double gated(Activation activation, double gate, double up) {
  if (activation == Activation::kSquaredRelu) return gate < 0 ? 0 : gate * gate;  // what is not a number stays so
  if (activation != Activation::kClampedSilu) return activate(activation, gate) * up;
  const double g = std::isnan(gate) ? gate : std::min(gate, 7.0);
  const double u = std::isnan(up) ? up : std::clamp(up, -7.0, 7.0);
  return g / (1 + std::exp(-1.702 * g)) * (u + 1);
}

Status run(Machine& m, const GatedActivation& op) {
  Tensor& out = m.tensor(op.out);
  for (uint32_t t = 0; t < m.live(op.out); ++t) {
    const double* x = m.tensor(op.x).row(t);
    const uint32_t other = has_other_half(op.activation) ? out.columns : 0;
    for (uint32_t c = 0; c < out.columns; ++c) out.set(t, c, gated(op.activation, x[c], x[other + c]));
  }
  return {};
}

Status run(Machine& m, const Add& op) {
  Tensor& out = m.tensor(op.out);
  for (uint32_t t = 0; t < m.live(op.out); ++t)
    for (uint32_t c = 0; c < out.columns; ++c) out.set(t, c, m.tensor(op.a).row(t)[c] + m.tensor(op.b).row(t)[c]);
  return {};
}

Status run(Machine& m, const Scale& op) {
  Tensor& out = m.tensor(op.out);
  for (uint32_t t = 0; t < m.live(op.out); ++t)
    for (uint32_t c = 0; c < out.columns; ++c) out.set(t, c, m.tensor(op.x).row(t)[c] * op.factor);
  return {};
}

Status run(Machine& m, const SoftCap& op) {
  Tensor& out = m.tensor(op.out);
  for (uint32_t t = 0; t < m.live(op.out); ++t)
    for (uint32_t c = 0; c < out.columns; ++c) out.set(t, c, op.cap * std::tanh(m.tensor(op.x).row(t)[c] / op.cap));
  return {};
}

Status run(Machine& m, const SigmoidGate& op) {
  Tensor& out = m.tensor(op.out);
  for (uint32_t t = 0; t < m.live(op.out); ++t)
    for (uint32_t c = 0; c < out.columns; ++c)
      out.set(t, c, m.tensor(op.x).row(t)[c] / (1 + std::exp(-m.tensor(op.gate).row(t)[c])));
  return {};
}

Status run(Machine& m, const GatherRows& op) {
  Tensor& out = m.tensor(op.out);
  const Tensor& x = m.tensor(op.x);
  for (uint32_t r = 0; r < m.live(op.out); ++r) {
    const uint32_t token = m.sample.records[r].token_idx;
    if (token >= x.rows)
      return make_error(ErrorCode::kInvalidArgument, "gather_rows: token_idx: expected below {}, found {}", x.rows,
                        token);
    for (uint32_t c = 0; c < out.columns; ++c) out.set(r, c, x.row(token)[c]);
  }
  return {};
}

}  // namespace llmrt::reference
