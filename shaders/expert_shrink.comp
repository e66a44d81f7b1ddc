// y = A x for the routed rows whose row has an adapter that changes their expert: a workgroup makes kRanks numbers of
// one routed row. Grid: x ranks by the routed rows of a row, y items, z rows of an item. Invocations take octets of the
// columns in turn and add in f32; what they have is added by subgroup, then in the order of subgroups (T0: of
// invocations). So a routed row's sums depend on it alone.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference_uvec2 : require
#include "types.glsl"
#include "adapters.glsl"
#ifdef SUBGROUP
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif

layout(constant_id = 10) const uint kXDType = kF32;
layout(constant_id = 11) const uint kPoolDType = kF32;
layout(constant_id = 12) const uint kRanks = 1;  // a divisor of 8
layout(constant_id = 13) const uint kParts = 1;  // subgroups of a group; T0: invocations

layout(push_constant) uniform Push {
  uvec2 pool;
  Words x;
  Floats result;
  Words inputs, ids;
  uint columns, result_columns;
  uint group, num_groups, header;
  uint per_row, x_per_row;  // routed rows of a live one, of a row of x
};

shared float parts[kParts * kRanks];

void main() {
  AdapterRows rows = adapter_rows(inputs, header, group, num_groups, 1);
  const uint lane = gl_LocalInvocationID.x, rank_first = gl_WorkGroupID.x / per_row * kRanks, octets = columns / 8u;
  if (rows.count == 0u) return;
  Words table = Words(pool);
  if (rank_first >= table.w[rows.entry + kEntryRank]) return;
  const uint k = inputs.w[rows.at] * per_row + gl_WorkGroupID.x % per_row;
  const uint expert = ids.w[k] - table.w[rows.entry + kEntryExpertFirst];  // wraps below 0
  if (expert >= table.w[rows.entry + kEntryExperts]) return;
  Words a = pool_part(pool, table.w[rows.entry + kEntryA] + expert * table.w[rows.entry + kEntryAStride]);
  const uint x_first = k / x_per_row * octets;

  float sums[kRanks];
  [[unroll]] for (uint r = 0; r < kRanks; ++r) sums[r] = 0.0;
  for (uint octet = lane; octet < octets; octet += gl_WorkGroupSize.x) {
    vec4 x_first_half, x_second_half;
    load8(x, 2u * (x_first + octet), kXDType, x_first_half, x_second_half);
    [[unroll]] for (uint r = 0; r < kRanks; ++r) {
      vec4 first, second;
      load8(a, 2u * ((rank_first + r) * octets + octet), kPoolDType, first, second);
      sums[r] += dot(first, x_first_half) + dot(second, x_second_half);
    }
  }

#ifdef SUBGROUP
  const uint part = gl_SubgroupID;
  const bool has_part = gl_SubgroupInvocationID == 0u;
  [[unroll]] for (uint r = 0; r < kRanks; ++r) sums[r] = subgroupAdd(sums[r]);
#else
  const uint part = lane;
  const bool has_part = true;
#endif
  const uint to = k * result_columns + rank_first;
  if (kParts == 1u) {
    if (!has_part) return;
    [[unroll]] for (uint r = 0; r < kRanks; ++r) result.f[to + r] = sums[r];
    return;
  }
  if (has_part) {
    [[unroll]] for (uint r = 0; r < kRanks; ++r) parts[part * kRanks + r] = sums[r];
  }
  barrier();
  for (uint r = lane; r < kRanks; r += gl_WorkGroupSize.x) {
    float sum = 0.0;
    for (uint p = 0; p < kParts; ++p) sum += parts[p * kRanks + r];
    result.f[to + r] = sum;
  }
}
