// gated_activation, add, scale, soft_cap, sigmoid_gate: one kernel, an invocation a pair of numbers.
#include "backends/vulkan/kernels/elementwise.h"

#include "backends/vulkan/emitter.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

// Twin: shaders/elementwise.comp; below them Activation's values.
constexpr uint32_t kAdd = 4, kScale = 5, kSoftCap = 6, kGate = 7;

Status emit_elementwise(Emitter& e, uint32_t op, TensorId a, TensorId b, TensorId out, float factor) {
  const uint32_t group_size = e.traits().cpu_kernels ? 8 : 128, columns = e.desc(out).columns;
  const View reads[] = {e.tensor(a), e.tensor(b)}, writes[] = {e.tensor(out)};
  const uint64_t pairs = ceil_div<uint64_t>(uint64_t{e.list().rows_of(out)} * columns, 2);
  const ElementwiseKernel::Push push{.a = reads[0],
                                     .b = reads[1],
                                     .result = writes[0],
                                     .count = e.live_count(out),
                                     .columns = columns,
                                     .factor = factor};
  const KernelChoice choice{
      make_kernel<ElementwiseKernel>(group_size, {.op = op, .out_dtype = static_cast<uint32_t>(e.desc(out).dtype)}),
      spread(e.traits(), ceil_div<uint64_t>(pairs, group_size))};
  e.launch(choice, PushBytes(push), reads, writes);
  return {};
}

}  // namespace

Status emit(Emitter& e, const GatedActivation& op) {
  return emit_elementwise(e, static_cast<uint32_t>(op.activation), op.x, op.x, op.out, 0);
}

Status emit(Emitter& e, const Add& op) {
  return emit_elementwise(e, kAdd, op.a, op.b, op.out, 0);
}

Status emit(Emitter& e, const Scale& op) {
  return emit_elementwise(e, kScale, op.x, op.x, op.out, op.factor);
}

Status emit(Emitter& e, const SoftCap& op) {
  return emit_elementwise(e, kSoftCap, op.x, op.x, op.out, op.cap);
}

Status emit(Emitter& e, const SigmoidGate& op) {
  return emit_elementwise(e, kGate, op.x, op.gate, op.out, 0);
}

}  // namespace llmrt::vulkan
