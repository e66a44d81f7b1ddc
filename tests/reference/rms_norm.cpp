// rms_norm: x += delta; out = x / sqrt(mean(x^2) + eps) * weight. qk_norm: the same per head of q and k,
// and of v where it has a weight. joined_qk_norm: of all of q, and of all of k.
#include "tests/reference/machine.h"

namespace llmrt::reference {
namespace {

double inverse_rms(const double* x, uint32_t count, double eps) {
  double sum = 0;
  for (uint32_t i = 0; i < count; ++i) sum += x[i] * x[i];
  return 1 / std::sqrt(sum / count + eps);
}

// Numbers [first, + count) of a row, in place.
void norm_run(const std::vector<float>& weight, uint32_t row, uint32_t first, uint32_t count, double eps, Tensor* x) {
  const double factor = inverse_rms(x->row(row) + first, count, eps);
  for (uint32_t i = 0; i < count; ++i) x->set(row, first + i, x->row(row)[first + i] * factor * weight[i]);
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
  const uint32_t num_normed = op.num_heads + (op.v_weight >= 0 ? 2 : 1) * op.num_kv_heads;
  for (uint32_t t = 0; t < m.live(op.qkv); ++t) {
    for (uint32_t head = 0; head < num_normed; ++head) {
      const int32_t id = head < op.num_heads                     ? op.q_weight
                         : head < op.num_heads + op.num_kv_heads ? op.k_weight
                                                                 : op.v_weight;
      norm_run(m.values_of(id), t, head * op.head_dim, op.head_dim, op.eps, &qkv);
    }
  }
  return {};
}

Status run(Machine& m, const JoinedQkNorm& op) {
  Tensor& qkv = m.tensor(op.qkv);
  const uint32_t q_columns = op.num_heads * op.head_dim, k_columns = op.num_kv_heads * op.head_dim;
  for (uint32_t t = 0; t < m.live(op.qkv); ++t) {
    norm_run(m.values_of(op.q_weight), t, 0, q_columns, op.eps, &qkv);
    if (k_columns > 0) norm_run(m.values_of(op.k_weight), t, q_columns, k_columns, op.eps, &qkv);
  }
  return {};
}

}  // namespace llmrt::reference
