// Routed rows by expert: items of at most kRowsMax rows of one expert each, as expert_items.glsl has them, made by the first
// workgroup from the experts' ids. Which place a row has among its expert's is not fixed, and no number depends on it. The
// other workgroups, if any, round what the experts' first matrices read to f16, eight numbers an invocation.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "expert_items.glsl"

layout(constant_id = 10) const uint kRowsMax = 1;

layout(push_constant) uniform Push {
  Words ids, items, count, x, halves;
  uint num_experts, per_row, rows_first, row_octets;
};

const uint kExpertsMax = 1024, kLanesMax = 256;  // twins: core/ops/ops.h; group size
shared uint places[kExpertsMax];                 // rows of an expert; then the place of its next
shared uint row_sums[kLanesMax], item_sums[kLanesMax];

void round_octet(uint octet) {
  if (octet >= count.w[0] * row_octets) return;
  vec4 a = Vec4s(x).v[2u * octet], b = Vec4s(x).v[2u * octet + 1u];
  Quads(halves).q[octet] = uvec4(pack16(a.xy, kF16), pack16(a.zw, kF16), pack16(b.xy, kF16), pack16(b.zw, kF16));
}

void main() {
  if (gl_WorkGroupID.x > 0u) {
    round_octet((gl_WorkGroupID.x - 1u) * gl_WorkGroupSize.x + gl_LocalInvocationID.x);
    return;
  }
  uint lane = gl_LocalInvocationID.x, lanes = gl_WorkGroupSize.x, rows = count.w[0] * per_row;
  for (uint e = lane; e < num_experts; e += lanes) places[e] = 0u;
  barrier();
  for (uint k = lane; k < rows; k += lanes) atomicAdd(places[ids.w[k]], 1u);
  barrier();
  // A lane has a run of experts.
  uint run = (num_experts + lanes - 1u) / lanes, begin = min(lane * run, num_experts), end = min(begin + run, num_experts);
  uint own_rows = 0u, own_items = 0u;
  for (uint e = begin; e < end; ++e) {
    own_rows += places[e];
    own_items += (places[e] + kRowsMax - 1u) / kRowsMax;
  }
  row_sums[lane] = own_rows;
  item_sums[lane] = own_items;
  barrier();
  for (uint d = 1; d < lanes; d *= 2) {
    uint more_rows = lane >= d ? row_sums[lane - d] : 0u, more_items = lane >= d ? item_sums[lane - d] : 0u;
    barrier();
    row_sums[lane] += more_rows;
    item_sums[lane] += more_items;
    barrier();
  }
  uint first = row_sums[lane] - own_rows, item = item_sums[lane] - own_items;
  for (uint e = begin; e < end; ++e) {
    uint num = places[e];
    places[e] = first;
    for (uint done = 0; done < num; done += kRowsMax, ++item) {
      uint at = kItemsFirst + item * kItemWords4;
      items.w[at] = e;
      items.w[at + 1u] = first + done;
      items.w[at + 2u] = min(num - done, kRowsMax);
    }
    first += num;
  }
  if (lane == lanes - 1u) items.w[0] = item_sums[lane];
  barrier();
  for (uint k = lane; k < rows; k += lanes) items.w[rows_first + atomicAdd(places[ids.w[k]], 1u)] = k;
}
