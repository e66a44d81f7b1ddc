// y = A x for the rows that have an adapter: a workgroup makes kRanks numbers of up to kCols rows of one item. Grid: x
// ranks, y items, z rows of an item. Invocations take octets of the columns in turn and add in f32; what they have is
// added by subgroup, then in the order of subgroups (T0: of invocations). So a row's sums depend on it alone.
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
layout(constant_id = 13) const uint kCols = 1;
layout(constant_id = 14) const uint kParts = 1;  // subgroups of a group; T0: invocations

layout(push_constant) uniform Push {
  uvec2 pool;
  Words x;
  Floats result;
  Words inputs;
  uint columns, result_columns;
  uint group, num_groups, header;
};

shared float parts[kParts * kRanks * kCols];

uint row_at(AdapterRows rows, uint c) { return inputs.w[rows.at + c * kAdapterRowWords]; }

void main() {
  AdapterRows rows = adapter_rows(inputs, header, group, num_groups, kCols);
  const uint lane = gl_LocalInvocationID.x, rank_first = gl_WorkGroupID.x * kRanks, octets = columns / 8u;
  if (rows.count == 0u) return;
  Words table = Words(pool);
  if (rank_first >= table.w[rows.entry + kEntryRank]) return;
  Words a = pool_part(pool, table.w[rows.entry + kEntryA]);

  float sums[kRanks][kCols];
  uint x_first[kCols];
  [[unroll]] for (uint c = 0; c < kCols; ++c) {
    x_first[c] = c < rows.count ? row_at(rows, c) * octets : 0u;
    [[unroll]] for (uint r = 0; r < kRanks; ++r) sums[r][c] = 0.0;
  }
  for (uint octet = lane; octet < octets; octet += gl_WorkGroupSize.x) {
    vec4 first[kRanks], second[kRanks];
    [[unroll]] for (uint r = 0; r < kRanks; ++r)
      load8(a, 2u * ((rank_first + r) * octets + octet), kPoolDType, first[r], second[r]);
    [[unroll]] for (uint c = 0; c < kCols; ++c) {
      if (c >= rows.count) break;
      vec4 x_first_half, x_second_half;
      load8(x, 2u * (x_first[c] + octet), kXDType, x_first_half, x_second_half);
      [[unroll]] for (uint r = 0; r < kRanks; ++r)
        sums[r][c] += dot(first[r], x_first_half) + dot(second[r], x_second_half);
    }
  }

#ifdef SUBGROUP
  const uint part = gl_SubgroupID;
  const bool has_part = gl_SubgroupInvocationID == 0u;
  [[unroll]] for (uint c = 0; c < kCols; ++c)
    [[unroll]] for (uint r = 0; r < kRanks; ++r) sums[r][c] = subgroupAdd(sums[r][c]);
#else
  const uint part = lane;
  const bool has_part = true;
#endif
  if (kParts == 1u) {
    if (!has_part) return;
    [[unroll]] for (uint c = 0; c < kCols; ++c) {
      if (c >= rows.count) break;
      uint to = row_at(rows, c) * result_columns + rank_first;
      [[unroll]] for (uint r = 0; r < kRanks; ++r) result.f[to + r] = sums[r][c];
    }
    return;
  }
  if (has_part) {
    [[unroll]] for (uint c = 0; c < kCols; ++c)
      [[unroll]] for (uint r = 0; r < kRanks; ++r) parts[(part * kCols + c) * kRanks + r] = sums[r][c];
  }
  barrier();
  for (uint i = lane; i < rows.count * kRanks; i += gl_WorkGroupSize.x) {
    float sum = 0.0;
    for (uint p = 0; p < kParts; ++p) sum += parts[p * kCols * kRanks + i];
    result.f[row_at(rows, i / kRanks) * result_columns + rank_first + i % kRanks] = sum;
  }
}
