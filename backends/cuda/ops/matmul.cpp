// Where a launch of a product finds its arguments, and which kernel its choice names.
#include "backends/cuda/ops/matmul_source.h"

#include "backends/cuda/weights.h"

namespace llmrt::cuda {

MatmulArgs args_of(const MatmulSource& source, const MatmulResult result, const OpContext& at) {
  const Matmul& op = source.matmul;
  const DeviceGroup& group = at.weights->group(op.group);
  const GroupRun& run = group.runs[source.run];
  MatmulArgs args;
  args.weight = source.from_f16 ? run.f16 : run.matrix;
  args.x = at.bytes(op.x);
  args.x_dtype = at.desc(op.x).dtype;
  args.bias = group.bias ? group.bias + run.out_column : nullptr;
  const uint64_t number_bytes = result == MatmulResult::kF16 ? 2 : 4;
  args.out = reinterpret_cast<float*>(at.bytes(source.out) + run.out_column * number_bytes);
  args.out_stride = result == MatmulResult::kGated ? group.rows / 2 : group.rows;
  args.num_rows = at.rows_of(op.x);
  args.live = at.live(op.x);
  args.activation = source.activation;
  if (const std::optional<RmsNorm>& norm = source.made)
    args.norm = {at.tensor<float>(norm->x), at.weight_vector(norm->weight), norm->eps};
  return args;
}

Status launch_matmul(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at) {
  constexpr Status (*kLaunches[])(const MatmulChoice&, const MatmulArgs&, const OpContext&) = {
      matmul_exact, matmul_vector, matmul_skinny, matmul_stream, matmul_batch, matmul_decoded, matmul_gated};
  return kLaunches[static_cast<size_t>(choice.which)](choice, args, at);
}

}  // namespace llmrt::cuda
