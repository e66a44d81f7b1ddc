// out[n] += scales * sum over j of B[n][j] y[j] for the rows that have an adapter: an invocation makes one number of up
// to kCols rows of one item. Grid: x numbers, y items, z rows of an item. Sums in f32, in the order of the ranks.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference_uvec2 : require
#include "types.glsl"
#include "adapters.glsl"

layout(constant_id = 10) const uint kPoolDType = kF32;
layout(constant_id = 11) const uint kCols = 1;

layout(push_constant) uniform Push {
  uvec2 pool;
  Vec4s y;
  Floats result;
  Words inputs;
  uint y_columns, result_columns;
  uint group, num_groups, header;
};

void main() {
  AdapterRows rows = adapter_rows(inputs, header, group, num_groups, kCols);
  const uint n = gl_GlobalInvocationID.x;
  if (rows.count == 0u || n >= result_columns) return;
  Words table = Words(pool);
  if (table.w[rows.entry + kEntryRank] == 0u) return;
  // The part that has row n, its ranks and its rows.
  const uint num_parts = table.w[rows.entry + kEntryParts];
  uint p = 0, rank_begin = 0, row_begin = 0;
  while (p + 1u < num_parts && n >= table.w[rows.entry + kEntryRowEnd + p]) {
    rank_begin = table.w[rows.entry + kEntryRankEnd + p];
    row_begin = table.w[rows.entry + kEntryRowEnd + p];
    ++p;
  }
  const uint octets = (table.w[rows.entry + kEntryRankEnd + p] - rank_begin) / 8u;
  if (octets == 0u) return;
  Words b = pool_part(pool, table.w[rows.entry + kEntryB + p]);
  const float part_scale = uintBitsToFloat(table.w[rows.entry + kEntryScale + p]);

  float sums[kCols];
  uint y_first[kCols];
  [[unroll]] for (uint c = 0; c < kCols; ++c) {
    sums[c] = 0.0;
    y_first[c] = c < rows.count ? (inputs.w[rows.at + c * kAdapterRowWords] * y_columns + rank_begin) / 4u : 0u;
  }
  for (uint octet = 0; octet < octets; ++octet) {
    vec4 first, second;
    load8(b, 2u * ((n - row_begin) * octets + octet), kPoolDType, first, second);
    [[unroll]] for (uint c = 0; c < kCols; ++c) {
      if (c >= rows.count) break;
      sums[c] += dot(first, y.v[y_first[c] + 2u * octet]) + dot(second, y.v[y_first[c] + 2u * octet + 1u]);
    }
  }
  [[unroll]] for (uint c = 0; c < kCols; ++c) {
    if (c >= rows.count) break;
    uint row = rows.at + c * kAdapterRowWords, to = inputs.w[row] * result_columns + n;
    result.f[to] += uintBitsToFloat(inputs.w[row + 1u]) * part_scale * sums[c];
  }
}
