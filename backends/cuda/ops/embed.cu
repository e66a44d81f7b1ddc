// embed: out[t] = weight[tokens[t]], dequantised exactly, f32 [T, D]. A block takes 256 columns of a token. A token
// that the table does not have becomes NaN: its logits are flagged as not finite and the request ends with that error.
#include "backends/cuda/choose.h"
#include "backends/cuda/dequant.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/weights.h"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    embed_kernel(const int32_t* tokens, PackedMatrix weight, float* out, const uint32_t* live) {
  grid_dependency_wait();
  const uint32_t t = blockIdx.y, column = blockIdx.x * kThreads + threadIdx.x;
  if (t >= *live || column >= weight.columns) return;
  const uint32_t token = static_cast<uint32_t>(tokens[t]);
  out[uint64_t{t} * weight.columns + column] =
      token < weight.rows ? element(weight, token, column) : __uint_as_float(0x7fc00000u);
}

}  // namespace

Status choose(const Embed& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  const uint32_t columns = inputs.tensors[static_cast<size_t>(op.weight)].columns;
  const uint32_t out_columns = list.tensors[static_cast<size_t>(op.out)].columns;
  if (out_columns != columns)
    return make_error(ErrorCode::kInvalidArgument, "embed: expected {} columns, found {}", columns, out_columns);
  KernelChoice choice{.kernel = "embed", .threads = kThreads};
  choice.grid = {ceil_div(columns, kThreads), list.rows_of(op.out)};
  add_launch(out, choice, [op](const KernelChoice& c, const OpContext& at) {
    return launch(at, c, embed_kernel, at.tensor<int32_t>(op.tokens), at.weights->tensor(op.weight),
                  at.tensor<float>(op.out), at.live(op.out));
  });
  return {};
}

}  // namespace llmrt::cuda
