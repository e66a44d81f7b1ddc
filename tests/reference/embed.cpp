// embed: out[t] = weight[tokens[t]]. Only the rows in use are dequantised.
#include "tests/reference/dequant.h"
#include "tests/reference/machine.h"

namespace llmrt::reference {

Status run(Machine& m, const Embed& op) {
  const WeightTensor& weight = m.weights.tensors[static_cast<size_t>(op.weight)];
  Tensor& out = m.tensor(op.out);
  std::vector<float> values(weight.columns);
  for (uint32_t t = 0; t < m.live(op.out); ++t) {
    const double token = m.tensor(op.tokens).row(t)[0];
    if (token < 0 || token >= static_cast<double>(weight.rows))
      return make_error(ErrorCode::kInvalidArgument, "embed: token: expected below {}, found {}", weight.rows, token);
    dequantize_row(weight.encoding, weight.data + static_cast<uint64_t>(token) * weight.bytes_row(), weight.columns,
                   values.data());
    for (uint32_t c = 0; c < out.columns; ++c) out.set(t, c, values[c]);
  }
  return {};
}

}  // namespace llmrt::reference
