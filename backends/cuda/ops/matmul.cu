// matmul: out = x * W^T + bias, run by run of equal encoding, each into its columns of out [rows, N] f32. Chooses the
// kernel by rows; the kernels are in matmul_*.cu.
#include "backends/cuda/ops/matmul.h"

#include <algorithm>

#include "backends/cuda/weights.h"

namespace llmrt::cuda {
namespace {

// The largest numbers of rows (of the bucket) for the kernels, measured on an H200 (docs/performance.md).
constexpr uint32_t kVectorRowsMax = 8;
constexpr uint32_t kDecodedRowsMax = 256;                   // of quantised weights
constexpr uint32_t kSkinnyRowsMax = kF16CopiesRowsMin - 1;  // beyond, it pays to make f16 for cuBLAS, too

// Quantised weights that are decoded inside the kernel that multiplies.
bool by_batch(const PackedMatrix& weight, uint32_t rows, const OpContext& at) {
  return is_quantized(weight.encoding) && rows > kVectorRowsMax && can_batch(weight, rows, at);
}
bool by_warpgroups(const PackedMatrix& weight, uint32_t rows, const OpContext& at) {
  return at.has_warpgroups && is_quantized(weight.encoding) && rows > kVectorRowsMax && rows <= kDecodedRowsMax;
}

bool has_f16_form(const PackedMatrix& weight, DType x) {
  return x == DType::kF16 && (weight.encoding == Encoding::kF16 || is_quantized(weight.encoding)) &&
         weight.columns % 8 == 0;
}

// Other results than f32 where is_few or is_wide says so.
Status multiply(const MatmulArgs& args, MatmulResult result, const OpContext& at) {
  const PackedMatrix& w = args.weight;
  if (!has_f16_form(w, args.x_dtype)) return matmul_exact(args, at);
  if (at.list->batch_invariant) return matmul_skinny(args, at);
  if (can_stream(w, args.num_rows, at)) return matmul_stream(args, result, at);
  if (args.num_rows <= kVectorRowsMax) return matmul_vector(args, at);
  if (by_batch(w, args.num_rows, at)) return matmul_batch(args, result, at);
  if (by_warpgroups(w, args.num_rows, at)) return matmul_decoded(args, result, at);
  const bool is_skinny = w.encoding != Encoding::kF16 && args.num_rows <= kSkinnyRowsMax;
  if (is_skinny || !at.cublas) return matmul_skinny(args, at);
  return matmul_wide(args, result, at);
}

// The run's numbers in f16 where that is there and faster.
const PackedMatrix& form_of(const GroupRun& run, const Matmul& op, const OpContext& at) {
  const bool is_faster = at.rows_of(op.x) >= kF16CopiesRowsMin && !at.list->batch_invariant;
  return run.f16.rows > 0 && is_faster && has_f16_form(run.matrix, at.desc(op.x).dtype) ? run.f16 : run.matrix;
}

MatmulArgs args_of(const Matmul& op, const DeviceGroup& group, const GroupRun& run, const OpContext& at) {
  MatmulArgs args{form_of(run, op, at),
                  at.bytes(op.x),
                  at.desc(op.x).dtype,
                  group.bias ? group.bias + run.out_column : nullptr,
                  at.tensor<float>(op.out) + run.out_column,
                  group.rows,
                  at.rows_of(op.x),
                  at.live(op.x),
                  {},
                  {}};
  if (at.norm) args.norm = {at.tensor<float>(at.norm->x), at.weight_vector(at.norm->weight), at.norm->eps};
  return args;
}

Status check(const Matmul& op, const OpContext& at) {
  const DeviceGroup& group = at.weights->group(op.group);
  if (at.desc(op.x).columns == group.columns && at.desc(op.out).columns == group.rows) return {};
  return make_error(ErrorCode::kInvalidArgument, "matmul: group {}: expected x [, {}] and out [, {}], found {} and {}",
                    op.group, group.columns, group.rows, at.desc(op.x).columns, at.desc(op.out).columns);
}

// Whether kernels of one kind make all of it, those for few rows or those for prompts: they can do more with the
// results.
bool all_runs(const Matmul& op, const OpContext& at, auto is_one) {
  const auto& runs = at.weights->group(op.group).runs;
  return !at.list->batch_invariant && std::all_of(runs.begin(), runs.end(), [&](const GroupRun& run) {
    return has_f16_form(run.matrix, at.desc(op.x).dtype) && is_one(run.matrix);
  });
}
bool is_few(const Matmul& op, const OpContext& at) {
  const uint32_t rows = at.rows_of(op.x);
  return all_runs(
      op, at, [&](const PackedMatrix& weight) { return can_stream(weight, rows, at) || by_batch(weight, rows, at); });
}
bool is_wide(const Matmul& op, const OpContext& at) {
  return at.cublas && at.rows_of(op.x) > kSkinnyRowsMax && all_runs(op, at, [](const PackedMatrix&) { return true; });
}

// All of it, to `out`.
Status multiply_into(const Matmul& op, std::byte* out, MatmulResult result, const OpContext& at) {
  if (Status status = check(op, at); !status) return status;
  const DeviceGroup& group = at.weights->group(op.group);
  for (const GroupRun& run : group.runs) {
    MatmulArgs args = args_of(op, group, run, at);
    args.out = reinterpret_cast<float*>(out + uint64_t{run.out_column} * (result == MatmulResult::kF16 ? 2 : 4));
    if (Status status = multiply(args, result, at); !status) return status;
  }
  return {};
}

// The gate and what it lets through, all of one encoding.
bool is_one_gate(const Matmul& op, const OpContext& at) {
  const DeviceGroup& group = at.weights->group(op.group);
  return group.runs.size() == 1 && group.rows % 2 == 0;
}
bool is_few_gate(const Matmul& op, const OpContext& at) {
  return is_few(op, at) && is_one_gate(op, at);
}
// Where matmul_gated makes both.
bool is_wide_gate(const Matmul& op, const OpContext& at) {
  const DeviceGroup& group = at.weights->group(op.group);
  return is_one_gate(op, at) && !group.bias && all_runs(op, at, [](const PackedMatrix&) { return true; }) &&
         can_gate(form_of(group.runs[0], op, at), at.rows_of(op.x), at);
}

}  // namespace

Status run(const Matmul& op, const OpContext& at) {
  return multiply_into(op, at.bytes(op.out), MatmulResult::kF32, at);
}

bool can_fuse(const Matmul& matmul, const GatedActivation& activation, const OpContext& at) {
  return activation.x == matmul.out && at.desc(activation.out).dtype == DType::kF16 &&
         (is_few_gate(matmul, at) || is_wide_gate(matmul, at) ||
          (!at.weights->group(matmul.group).bias && is_wide(matmul, at)));
}

Status run_fused(const Matmul& matmul, const GatedActivation& activation, const OpContext& at) {
  const bool is_many = is_wide_gate(matmul, at);
  if (is_many || is_few_gate(matmul, at)) {
    if (Status status = check(matmul, at); !status) return status;
    const DeviceGroup& group = at.weights->group(matmul.group);
    MatmulArgs args = args_of(matmul, group, group.runs[0], at);
    args.out = at.tensor<float>(activation.out);
    args.out_stride = group.rows / 2;
    args.activation = activation.activation;
    return is_many ? matmul_gated(args, at) : multiply(args, MatmulResult::kGated, at);
  }
  if (Status status = multiply_into(matmul, at.bytes(matmul.out), MatmulResult::kF16, at); !status) return status;
  return run_from_f16(activation, at);
}

bool can_fuse(const Matmul& matmul, const RmsNorm& norm, const OpContext& at) {
  return norm.delta == matmul.out && at.desc(norm.x).columns == at.desc(matmul.out).columns &&
         (is_few(matmul, at) || is_wide(matmul, at));
}

Status run_added(const Matmul& matmul, const RmsNorm& norm, const OpContext& at) {
  return multiply_into(matmul, at.bytes(norm.x), MatmulResult::kAdded, at);
}

Status run_fused(const Matmul& matmul, const RmsNorm& norm, const OpContext& at) {
  if (Status status = run_added(matmul, norm, at); !status) return status;
  RmsNorm rest = norm;
  rest.delta = kNoTensor;
  return run(rest, at);
}

// (With a kernel for each of several runs the first ends before the next one's norm begins: slower than a norm apart.)
bool can_fuse(const RmsNorm& norm, const Matmul& matmul, const OpContext& at) {
  const DeviceGroup& group = at.weights->group(matmul.group);
  return matmul.x == norm.out && at.rows_of(matmul.x) == 1 && at.desc(norm.out).columns == group.columns &&
         group.runs.size() == 1 &&
         all_runs(matmul, at, [&](const PackedMatrix& weight) { return can_stream_normed(weight, at); });
}

}  // namespace llmrt::cuda
