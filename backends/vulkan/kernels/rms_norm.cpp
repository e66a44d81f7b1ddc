#include "backends/vulkan/kernels/rms_norm.h"

#include <algorithm>
#include <bit>

#include "backends/vulkan/emitter.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {

// A group may have no more than 32 subgroups of 8 lanes (maxComputeWorkgroupSubgroups of lavapipe).
uint32_t norm_group_size(const Traits& traits, uint32_t columns) {
  const uint32_t most = traits.tier >= Tier::kSubgroup && traits.subgroup_size < 16 ? 256 : 512;
  return traits.cpu_kernels ? 8 : std::clamp(std::bit_ceil(columns / 8), 64u, most);
}

// A GPU's invocations keep their numbers; a processor's group is one vector, for which that would be too many.
uint32_t norm_quads(const Traits& traits, uint32_t columns) {
  const uint32_t group_size = norm_group_size(traits, columns);
  return traits.cpu_kernels || columns % 4 != 0 || columns > 16 * group_size ? 0 : ceil_div(columns / 4, group_size);
}

Status emit(Emitter& e, const NormStep& step) {
  const RmsNorm& op = e.op<RmsNorm>(step.norm);
  auto weight = e.weights().vector(op.weight);
  if (!weight) return weight.error();
  const uint32_t columns = e.desc(op.x).columns, rows = e.list().rows_of(op.x);
  const View x = e.tensor(op.x), out = e.tensor(op.out);
  const View delta = step.parts == 0   ? x
                     : step.parts == 1 ? e.tensor(op.delta)
                                       : e.resources().products.part(0, step.parts * e.list().bytes_of(op.delta));
  const View factors = step.leaves_factor ? norm_parts(e.resources()).factors[0] : out;
  const RmsNormKernel::Push push{.x = x,
                                 .delta = delta,
                                 .weight = *weight,
                                 .result = out,
                                 .count = e.live_count(op.x),
                                 .factors = factors,
                                 .columns = columns,
                                 .eps = op.eps};
  const View reads[] = {x, delta, *weight};
  const View writes[] = {out, step.parts > 0 ? x : View{}, step.leaves_factor ? factors : View{}};
  const KernelChoice choice{make_kernel<RmsNormKernel>(norm_group_size(e.traits(), columns),
                                                       {.deltas = step.parts,
                                                        .out_dtype = static_cast<uint32_t>(e.desc(op.out).dtype),
                                                        .quads = norm_quads(e.traits(), columns),
                                                        .leaves_factor = step.leaves_factor}),
                            {rows}};
  e.launch(choice, PushBytes(push), reads, writes);
  return {};
}

}  // namespace llmrt::vulkan
