// rope: pairs of each head of q and k turned by positions[t] * freqs[i]; kInterleaved pairs (2i, 2i + 1), kHalves pairs
// (i, i + rope_dim / 2). Numbers from rope_dim on stay.
#include "tests/reference/machine.h"

namespace llmrt::reference {

Status run(Machine& m, const Rope& op) {
  Tensor& qkv = m.tensor(op.qkv);
  const std::vector<float>& freqs = m.values_of(op.freqs);
  for (uint32_t t = 0; t < m.live(op.qkv); ++t) {
    const double position = m.tensor(op.positions).row(t)[0];
    for (uint32_t head = 0; head < op.num_heads + op.num_kv_heads; ++head) {
      for (uint32_t i = 0; i < op.rope_dim / 2; ++i) {
        const bool halves = op.pairing == RopePairing::kHalves;
        const uint32_t a = head * op.head_dim + (halves ? i : 2 * i);
        const uint32_t b = halves ? a + op.rope_dim / 2 : a + 1;
        const double cosine = std::cos(position * freqs[i]) * op.magnitude;
        const double sine = std::sin(position * freqs[i]) * op.magnitude;
        const double xa = qkv.row(t)[a], xb = qkv.row(t)[b];
        qkv.set(t, a, xa * cosine - xb * sine);
        qkv.set(t, b, xa * sine + xb * cosine);
      }
    }
  }
  return {};
}

}  // namespace llmrt::reference
