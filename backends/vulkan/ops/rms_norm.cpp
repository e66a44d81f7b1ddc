#include <algorithm>
#include <bit>
#include <utility>

#include "backends/vulkan/recorder.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {

namespace {
// A group may have no more than 32 subgroups of 8 lanes (maxComputeWorkgroupSubgroups of lavapipe).
uint32_t norm_group_size(const Traits& traits, uint32_t columns) {
  const uint32_t most = traits.tier >= Tier::kSubgroup && traits.subgroup_size < 16 ? 256 : 512;
  return traits.cpu_kernels ? 8 : std::clamp(std::bit_ceil(columns / 8), 64u, most);
}
}  // namespace

// A GPU's invocations keep their numbers; a processor's group is one vector, for which that would be too many.
uint32_t norm_quads(const Traits& traits, uint32_t columns) {
  const uint32_t group_size = norm_group_size(traits, columns);
  return traits.cpu_kernels || columns % 4 != 0 || columns > 16 * group_size ? 0 : ceil_div(columns / 4, group_size);
}

Status record(Recorder& r, const RmsNorm& op) {
  auto weight = r.weights().vector(op.weight);
  if (!weight) return weight.error();
  const uint32_t columns = r.desc(op.x).columns;
  PartsState deltas = std::exchange(r.parts_state(), {});
  if (op.delta == kNoTensor)
    deltas = {kNoTensor, r.tensor(op.x), 0};
  else if (deltas.of != op.delta)
    deltas = {op.delta, r.tensor(op.delta), 1};
  const View x = r.tensor(op.x), out = r.tensor(op.out);
  // For a matmul that leaves the norm behind it (recorder.h NormParts).
  const bool leaves_factor = !r.traits().cpu_kernels && r.list().rows_of(op.x) <= r.traits().fragment.n;
  const View factors = leaves_factor ? r.norm_parts().factors[0] : out;
  if (leaves_factor) r.norm_state().slot = 0;
  Push push;
  push.add(x).add(deltas.parts).add(*weight).add(out).add(r.live_count(op.x)).add(factors).add(columns).add(op.eps);
  const View reads[] = {x, deltas.parts, *weight};
  const View writes[] = {out, deltas.count > 0 ? x : View{}, leaves_factor ? factors : View{}};
  r.dispatch(
      {"rms_norm",
       norm_group_size(r.traits(), columns),
       {deltas.count, static_cast<uint32_t>(r.desc(op.out).dtype), norm_quads(r.traits(), columns), leaves_factor}},
      push, {r.list().rows_of(op.x)}, reads, writes);
  return {};
}

}  // namespace llmrt::vulkan
