// What adapters add to experts' products, of the routed rows whose row has an adapter that changes their expert. An
// invocation makes one number, sums in f32 in the order of the ranks, by kMode:
// - kClear: zeros in all live routed rows of what kTerm writes a part of. Grid: x numbers of a row, y rows.
// - kTerm: B y of a routed row, scaled. Grid: x numbers by the routed rows of a row, y items, z rows of an item.
// - kJoin: to a row's number the sum of its routed rows' B y by their weights, in their order. Grid: x numbers, y
//   items, z rows of an item.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference_uvec2 : require
#include "types.glsl"
#include "adapters.glsl"

const uint kClear = 0, kTerm = 1, kJoin = 2;  // twin: backends/vulkan/kernels/adapters.h
layout(constant_id = 10) const uint kPoolDType = kF32;
layout(constant_id = 11) const uint kMode = kClear;

layout(push_constant) uniform Push {
  uvec2 pool;
  Vec4s y;
  Floats result, weights;
  Words inputs, ids, count;
  uint y_columns, result_columns;
  uint group, num_groups, header;
  uint per_row;
};

// B y of number n of routed row k, with the part's scale.
float expanded(Words table, uint entry, uint expert, uint k, uint n) {
  const uint num_parts = table.w[entry + kEntryParts];
  uint p = 0, rank_begin = 0, row_begin = 0;
  while (p + 1u < num_parts && n >= table.w[entry + kEntryRowEnd + p]) {
    rank_begin = table.w[entry + kEntryRankEnd + p];
    row_begin = table.w[entry + kEntryRowEnd + p];
    ++p;
  }
  const uint octets = (table.w[entry + kEntryRankEnd + p] - rank_begin) / 8u;
  if (octets == 0u) return 0.0;
  Words b = pool_part(pool, table.w[entry + kEntryB + p] + expert * table.w[entry + kEntryBStride + p]);
  const uint y_first = (k * y_columns + rank_begin) / 4u;
  float sum = 0.0;
  for (uint octet = 0; octet < octets; ++octet) {
    vec4 first, second;
    load8(b, 2u * ((n - row_begin) * octets + octet), kPoolDType, first, second);
    sum += dot(first, y.v[y_first + 2u * octet]) + dot(second, y.v[y_first + 2u * octet + 1u]);
  }
  return uintBitsToFloat(table.w[entry + kEntryScale + p]) * sum;
}

void main() {
  const uint i = gl_GlobalInvocationID.x;
  if (kMode == kClear) {
    if (i < per_row * result_columns && gl_WorkGroupID.y < count.w[0])
      result.f[gl_WorkGroupID.y * per_row * result_columns + i] = 0.0;
    return;
  }
  AdapterRows rows = adapter_rows(inputs, header, group, num_groups, 1);
  if (rows.count == 0u) return;
  Words table = Words(pool);
  if (table.w[rows.entry + kEntryRank] == 0u) return;
  const uint row = inputs.w[rows.at], first = table.w[rows.entry + kEntryExpertFirst];
  const uint num_experts = table.w[rows.entry + kEntryExperts];
  const float scale = uintBitsToFloat(inputs.w[rows.at + 1u]);
  if (kMode == kTerm) {
    if (i >= per_row * result_columns) return;
    const uint k = row * per_row + i / result_columns, n = i % result_columns;
    const uint expert = ids.w[k] - first;  // wraps below 0
    if (expert < num_experts) result.f[k * result_columns + n] = scale * expanded(table, rows.entry, expert, k, n);
    return;
  }
  if (i >= result_columns) return;
  float sum = 0.0;
  for (uint k = row * per_row; k < (row + 1u) * per_row; ++k) {
    const uint expert = ids.w[k] - first;
    if (expert < num_experts) sum += weights.f[k] * expanded(table, rows.entry, expert, k, i);
  }
  result.f[row * result_columns + i] += scale * sum;
}
