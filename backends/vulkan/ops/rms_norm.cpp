#include <algorithm>
#include <bit>

#include "backends/vulkan/recorder.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {

Status record(Recorder& r, const RmsNorm& op) {
  auto weight = r.weights().vector(op.weight);
  if (!weight) return weight.error();
  const uint32_t columns = r.desc(op.x).columns;
  const uint32_t group_size = r.traits().cpu_kernels ? 8 : std::clamp(std::bit_ceil(columns / 8), 64u, 512u);
  // A GPU's invocations keep their numbers; a processor's group is one vector, for which that would be too many.
  const uint32_t quads =
      r.traits().cpu_kernels || columns % 4 != 0 || columns > 16 * group_size ? 0 : ceil_div(columns / 4, group_size);
  const bool with_delta = op.delta != kNoTensor;
  const View x = r.tensor(op.x), delta = with_delta ? r.tensor(op.delta) : x, out = r.tensor(op.out);
  // For a matmul that leaves the norm behind it (recorder.h NormParts).
  const bool leaves_factor = !r.traits().cpu_kernels && r.list().rows_of(op.x) <= r.traits().fragment.n;
  const View factors = leaves_factor ? r.norm_parts().factors[0] : out;
  if (leaves_factor) r.norm_state().slot = 0;
  Push push;
  push.add(x).add(delta).add(*weight).add(out).add(r.live_count(op.x)).add(factors).add(columns).add(op.eps);
  const View reads[] = {x, delta, *weight};
  const View writes[] = {out, with_delta ? x : View{}, leaves_factor ? factors : View{}};
  r.dispatch({"rms_norm", group_size, {with_delta, static_cast<uint32_t>(r.desc(op.out).dtype), quads, leaves_factor}},
             push, {r.list().rows_of(op.x)}, reads, writes);
  return {};
}

}  // namespace llmrt::vulkan
