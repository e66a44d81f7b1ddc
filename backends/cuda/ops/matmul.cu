// matmul: out = x * W^T + bias, run by run of equal encoding, each into its columns of out [rows, N] f32. Chooses the
// kernel by rows; the kernels are in matmul_*.cu.
#include "backends/cuda/ops/matmul.h"
#include "backends/cuda/weights.h"

namespace llmrt::cuda {
namespace {

// The largest numbers of rows (of the bucket) for the kernels, measured on an H200 (docs/performance.md).
constexpr uint32_t kVectorRowsMax = 8;
constexpr uint32_t kSkinnyRowsMax = 64;  // of quantised weights; beyond, it pays to write them out in f16 for cuBLAS

Status multiply(const MatmulArgs& args, const OpContext& at) {
  const PackedMatrix& w = args.weight;
  if (args.x_dtype != DType::kF16 || w.encoding == Encoding::kF32 || !w.f16_safe || w.columns % 8 != 0)
    return matmul_exact(args, at);
  if (at.list->batch_invariant) return matmul_skinny(args, at);
  if (args.num_rows <= kVectorRowsMax) return matmul_vector(args, at);
  const bool skinny = w.encoding != Encoding::kF16 && args.num_rows <= kSkinnyRowsMax;
  if (skinny || !at.cublas) return matmul_skinny(args, at);
  return matmul_wide(args, at);
}

}  // namespace

Status run(const Matmul& op, const OpContext& at) {
  const DeviceGroup& group = at.weights->group(op.group);
  if (at.desc(op.x).columns != group.columns || at.desc(op.out).columns != group.rows)
    return make_error(ErrorCode::kInvalidArgument,
                      "matmul: group {}: expected x [, {}] and out [, {}], found {} and {}", op.group, group.columns,
                      group.rows, at.desc(op.x).columns, at.desc(op.out).columns);
  for (const GroupRun& run : group.runs) {
    const MatmulArgs args{run.matrix,
                          at.bytes(op.x),
                          at.desc(op.x).dtype,
                          group.bias ? group.bias + run.out_column : nullptr,
                          at.tensor<float>(op.out) + run.out_column,
                          group.rows,
                          at.rows_of(op.x),
                          at.live(op.x)};
    if (Status status = multiply(args, at); !status) return status;
  }
  return {};
}

}  // namespace llmrt::cuda
