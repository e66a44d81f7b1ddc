// gated_activation, add, scale: one kernel, an invocation a pair of numbers.
#include "backends/vulkan/recorder.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

constexpr uint32_t kAdd = 2, kScale = 3;  // twin: shaders/elementwise.comp; below them Activation's values

void record_elementwise(Recorder& r, uint32_t op, TensorId a, TensorId b, TensorId out, float factor) {
  const uint32_t group_size = r.traits().cpu_kernels ? 8 : 128;
  const View reads[] = {r.tensor(a), r.tensor(b)}, writes[] = {r.tensor(out)};
  const uint64_t pairs = ceil_div<uint64_t>(uint64_t{r.list().rows_of(out)} * r.desc(out).columns, 2);
  Push push;
  push.add(reads[0]).add(reads[1]).add(writes[0]).add(r.live_count(out)).add(r.desc(out).columns).add(factor);
  r.dispatch({"elementwise", group_size, {op, static_cast<uint32_t>(r.desc(out).dtype)}}, push,
             spread(r.traits(), ceil_div<uint64_t>(pairs, group_size)), reads, writes);
}

}  // namespace

Status record(Recorder& r, const GatedActivation& op) {
  record_elementwise(r, static_cast<uint32_t>(op.activation), op.x, op.x, op.out, 0);
  return {};
}

Status record(Recorder& r, const Add& op) {
  record_elementwise(r, kAdd, op.a, op.b, op.out, 0);
  return {};
}

Status record(Recorder& r, const Scale& op) {
  record_elementwise(r, kScale, op.x, op.x, op.out, op.factor);
  return {};
}

}  // namespace llmrt::vulkan
