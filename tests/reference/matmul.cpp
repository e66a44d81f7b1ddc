// matmul: out = x * W^T + bias. The weights are dequantised once and kept as floats; sums are double, in eight fixed
// lanes so that a compiler may use vector registers.
#include "tests/reference/machine.h"

namespace llmrt::reference {

double dot(const double* x, const float* w, uint64_t count) {
  double lanes[8] = {};
  uint64_t k = 0;
  for (; k + 8 <= count; k += 8)
    for (int lane = 0; lane < 8; ++lane) lanes[lane] += x[k + lane] * w[k + lane];
  for (; k < count; ++k) lanes[0] += x[k] * w[k];
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

Status run(Machine& m, const Matmul& op) {
  const WeightGroup& group = m.weights.groups[static_cast<size_t>(op.group)];
  const Tensor& x = m.tensor(op.x);
  Tensor& out = m.tensor(op.out);
  const uint32_t live = m.live(op.x);
  const float* bias = group.bias < 0 ? nullptr : m.values_of(group.bias).data();
  uint64_t out_first = 0;
  for (const RowSegment& segment : group.segments) {
    const float* values = m.values_of(segment.tensor).data() + segment.row_begin * group.columns;
    parallel_for(m.num_threads, segment.num_rows, [&](uint64_t begin, uint64_t end) {
      for (uint64_t n = begin; n < end; ++n) {
        const uint32_t column = static_cast<uint32_t>(out_first + n);
        for (uint32_t r = 0; r < live; ++r)
          out.set(r, column, dot(x.row(r), values + n * group.columns, group.columns) + (bias ? bias[column] : 0));
      }
    });
    out_first += segment.num_rows;
  }
  return {};
}

}  // namespace llmrt::reference
