// rms_norm: x += delta; out = x / sqrt(mean(x^2) + eps) * weight. qk_norm: the same per head of q and k.
#include "tests/reference/machine.h"

namespace llmrt::reference {
namespace {

double inverse_rms(const double* x, uint32_t count, double eps) {
  double sum = 0;
  for (uint32_t i = 0; i < count; ++i) sum += x[i] * x[i];
  return 1 / std::sqrt(sum / count + eps);
}

}  // namespace

Status run(Machine& m, const RmsNorm& op) {
  Tensor &x = m.tensor(op.x), &out = m.tensor(op.out);
  const std::vector<float>& weight = m.values_of(op.weight);
  for (uint32_t r = 0; r < m.live(op.x); ++r) {
    if (op.delta != kNoTensor)
      for (uint32_t c = 0; c < x.columns; ++c) x.set(r, c, x.row(r)[c] + m.tensor(op.delta).row(r)[c]);
    const double factor = inverse_rms(x.row(r), x.columns, op.eps);
    for (uint32_t c = 0; c < x.columns; ++c) out.set(r, c, x.row(r)[c] * factor * weight[c]);
  }
  return {};
}

Status run(Machine& m, const QkNorm& op) {
  Tensor& qkv = m.tensor(op.qkv);
  const std::vector<float>&q_weight = m.values_of(op.q_weight), &k_weight = m.values_of(op.k_weight);
  for (uint32_t t = 0; t < m.live(op.qkv); ++t) {
    for (uint32_t head = 0; head < op.num_heads + op.num_kv_heads; ++head) {
      const std::vector<float>& weight = head < op.num_heads ? q_weight : k_weight;
      const uint32_t first = head * op.head_dim;
      const double factor = inverse_rms(qkv.row(t) + first, op.head_dim, op.eps);
      for (uint32_t i = 0; i < op.head_dim; ++i) qkv.set(t, first + i, qkv.row(t)[first + i] * factor * weight[i]);
    }
  }
  return {};
}

}  // namespace llmrt::reference
