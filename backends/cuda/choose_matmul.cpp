// Which kernel multiplies, for which rows and weights, and what it does beside.
#include <algorithm>

#include "backends/cuda/choose.h"
#include "backends/cuda/choose_matmul_run.h"

namespace llmrt::cuda {
namespace {

const DeviceGroup& group_of(const Matmul& op, const CompileInputs& inputs) {
  return inputs.groups[static_cast<size_t>(op.group)];
}
const TensorDesc& desc_of(TensorId id, const OpList& list) {
  return list.tensors[static_cast<size_t>(id)];
}

bool has_f16_form(const PackedMatrix& weight, DType x) {
  return x == DType::kF16 && (weight.encoding == Encoding::kF16 || is_quantized(weight.encoding)) &&
         weight.columns % 8 == 0;
}

// Quantised weights that are decoded inside the kernel that multiplies.
bool by_batch(const PackedMatrix& weight, uint32_t rows, const CompileInputs& inputs) {
  return is_quantized(weight.encoding) && !weight.is_beyond_f16 && rows > inputs.tuning.vector_rows_max &&
         can_batch(weight, rows, inputs.device);
}
bool by_decoded(const PackedMatrix& weight, uint32_t rows, const CompileInputs& inputs) {
  return inputs.device.has_warpgroups && is_quantized(weight.encoding) && rows > inputs.tuning.vector_rows_max &&
         rows <= inputs.tuning.decoded_rows_max;
}

// The kernel for a run; nothing: cuBLAS.
std::optional<MatmulKernel> kernel_for(const MatmulShape& shape, const CompileInputs& inputs) {
  const PackedMatrix& weight = shape.weight;
  const uint32_t rows = shape.num_rows;
  if (!has_f16_form(weight, shape.x_dtype)) return MatmulKernel::kExact;
  if (weight.is_beyond_f16) {  // what scales sums in f32, in an order that does not depend on the rows
    const bool streams = !shape.batch_invariant && can_stream(weight, rows, inputs);
    return streams ? MatmulKernel::kStream : MatmulKernel::kVector;
  }
  if (shape.batch_invariant) return MatmulKernel::kSkinny;
  if (can_stream(weight, rows, inputs)) return MatmulKernel::kStream;
  if (rows <= inputs.tuning.vector_rows_max) return MatmulKernel::kVector;
  if (by_batch(weight, rows, inputs)) return MatmulKernel::kBatch;
  if (by_decoded(weight, rows, inputs)) return MatmulKernel::kDecoded;
  const bool is_skinny = weight.encoding != Encoding::kF16 && rows <= inputs.tuning.skinny_rows_max;
  if (is_skinny || !inputs.device.has_cublas) return MatmulKernel::kSkinny;
  return std::nullopt;
}

// Whether the run is read in f16, from the copy of it that is there and faster.
bool reads_f16_copy(const GroupRun& run, const Matmul& op, const OpList& list, const CompileInputs& inputs) {
  const bool is_faster = list.rows_of(op.x) >= inputs.tuning.f16_copies_rows_min && !list.batch_invariant;
  return run.f16.rows > 0 && is_faster && has_f16_form(run.matrix, desc_of(op.x, list).dtype);
}
const PackedMatrix& form_of(const GroupRun& run, const Matmul& op, const OpList& list, const CompileInputs& inputs) {
  return reads_f16_copy(run, op, list, inputs) ? run.f16 : run.matrix;
}

// ---- what kernels can do beside multiplying ------------------------------------------------------------------------

// Whether kernels of one kind make all runs. Those for few rows and those for prompts can do more with their results.
bool all_runs(const Matmul& op, const OpList& list, const CompileInputs& inputs, auto is_one) {
  const auto& runs = group_of(op, inputs).runs;
  return !list.batch_invariant && std::all_of(runs.begin(), runs.end(), [&](const GroupRun& run) {
    return has_f16_form(run.matrix, desc_of(op.x, list).dtype) && is_one(run.matrix);
  });
}
bool is_few(const Matmul& op, const OpList& list, const CompileInputs& inputs) {
  const uint32_t rows = list.rows_of(op.x);
  return all_runs(op, list, inputs, [&](const PackedMatrix& weight) {
    return can_stream(weight, rows, inputs) || by_batch(weight, rows, inputs);
  });
}
bool is_wide(const Matmul& op, const OpList& list, const CompileInputs& inputs) {
  return inputs.device.has_cublas && list.rows_of(op.x) > inputs.tuning.skinny_rows_max &&
         all_runs(op, list, inputs, [](const PackedMatrix& weight) { return !weight.is_beyond_f16; });
}
// Gate and other half are one run.
bool is_one_gate(const Matmul& op, const CompileInputs& inputs) {
  const DeviceGroup& group = group_of(op, inputs);
  return group.runs.size() == 1 && group.rows % 2 == 0;
}
bool is_few_gate(const Matmul& op, const OpList& list, const CompileInputs& inputs) {
  return is_few(op, list, inputs) && is_one_gate(op, inputs);
}
// Where matmul_gated makes both.
bool is_wide_gate(const Matmul& op, const OpList& list, const CompileInputs& inputs) {
  const DeviceGroup& group = group_of(op, inputs);
  return is_one_gate(op, inputs) && !group.bias &&
         all_runs(op, list, inputs, [](const PackedMatrix&) { return true; }) &&
         can_gate(form_of(group.runs[0], op, list, inputs), list.rows_of(op.x), inputs);
}

MatmulShape shape_of(const MatmulSource& source, const OpList& list, const CompileInputs& inputs) {
  const GroupRun& run = group_of(source.matmul, inputs).runs[source.run];
  return {source.from_f16 ? run.f16 : run.matrix, list.rows_of(source.matmul.x), desc_of(source.matmul.x, list).dtype,
          source.made.has_value(), list.batch_invariant};
}

// ---- all runs ------------------------------------------------------------------------------------------------------

Status check(const Matmul& op, const OpList& list, const CompileInputs& inputs) {
  const DeviceGroup& group = group_of(op, inputs);
  const uint32_t x_columns = desc_of(op.x, list).columns, out_columns = desc_of(op.out, list).columns;
  if (x_columns == group.columns && out_columns == group.rows) return {};
  return make_error(ErrorCode::kInvalidArgument, "matmul: group {}: expected x [, {}] and out [, {}], found {} and {}",
                    op.group, group.columns, group.rows, x_columns, out_columns);
}

// Results other than f32 where is_few or is_wide says so.
Status multiply(MatmulSource source, MatmulResult result, const OpList& list, const CompileInputs& inputs,
                Launches* out) {
  if (Status status = check(source.matmul, list, inputs); !status) return status;
  const DeviceGroup& group = group_of(source.matmul, inputs);
  for (source.run = 0; source.run < group.runs.size(); ++source.run) {
    source.from_f16 = reads_f16_copy(group.runs[source.run], source.matmul, list, inputs);
    const MatmulShape shape = shape_of(source, list, inputs);
    if (const std::optional<MatmulKernel> kernel = kernel_for(shape, inputs))
      add_kernel(*kernel, result, shape, source, inputs, out);
    else if (Status status = add_wide(shape, result, source, group.bias != nullptr, inputs, out); !status)
      return status;
  }
  return {};
}

}  // namespace

bool has_gated_kernel(const Matmul& matmul, const GatedActivation& activation, const OpList& list,
                      const CompileInputs& inputs) {
  const bool is_known = activation.activation == Activation::kSilu || activation.activation == Activation::kGelu;
  return desc_of(activation.out, list).dtype == DType::kF16 && is_known &&
         (is_few_gate(matmul, list, inputs) || is_wide_gate(matmul, list, inputs) ||
          (!group_of(matmul, inputs).bias && is_wide(matmul, list, inputs)));
}

bool has_added_kernel(const Matmul& matmul, const RmsNorm& norm, const OpList& list, const CompileInputs& inputs) {
  return desc_of(norm.x, list).columns == desc_of(matmul.out, list).columns &&
         (is_few(matmul, list, inputs) || is_wide(matmul, list, inputs));
}

// With several runs the first kernel would end before the next one's norm begins: slower than a norm of its own.
bool has_normed_kernel(const RmsNorm& norm, const Matmul& matmul, const OpList& list, const CompileInputs& inputs) {
  const DeviceGroup& group = group_of(matmul, inputs);
  return list.rows_of(matmul.x) == 1 && desc_of(norm.out, list).columns == group.columns && group.runs.size() == 1 &&
         all_runs(matmul, list, inputs, [&](const PackedMatrix& weight) { return can_stream_normed(weight, inputs); });
}

Status choose(const Matmul& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  return multiply({op, {}, op.out}, MatmulResult::kF32, list, inputs, out);
}

Status choose(const NormedMatmul& step, const OpList& list, const CompileInputs& inputs, Launches* out) {
  return multiply({step.matmul, step.norm, step.matmul.out}, MatmulResult::kF32, list, inputs, out);
}

Status choose(const GatedMatmul& step, const OpList& list, const CompileInputs& inputs, Launches* out) {
  const Matmul& matmul = step.matmul;
  MatmulSource source{matmul, step.made, step.activation.out, step.activation.activation};
  if (is_wide_gate(matmul, list, inputs)) {
    if (Status status = check(matmul, list, inputs); !status) return status;
    source.from_f16 = reads_f16_copy(group_of(matmul, inputs).runs[0], matmul, list, inputs);
    add_kernel(MatmulKernel::kGated, MatmulResult::kGated, shape_of(source, list, inputs), source, inputs, out);
    return {};
  }
  if (is_few_gate(matmul, list, inputs)) return multiply(source, MatmulResult::kGated, list, inputs, out);
  source.out = matmul.out;
  if (Status status = multiply(source, MatmulResult::kF16, list, inputs, out); !status) return status;
  return choose_from_f16(step.activation, list, inputs, out);
}

Status choose(const AddedMatmul& step, const OpList& list, const CompileInputs& inputs, Launches* out) {
  const MatmulSource source{step.matmul, step.made, step.norm.x};
  if (Status status = multiply(source, MatmulResult::kAdded, list, inputs, out); !status || step.sum_alone)
    return status;
  RmsNorm rest = step.norm;
  rest.delta = kNoTensor;
  return choose(rest, list, inputs, out);
}

}  // namespace llmrt::cuda
