// out[c] = x[c] * W^T + bias for a few rows of x (kCols of them). Lanes of a team (a subgroup; without subgroups the whole
// group) stride over the 16-byte units of kRows weight rows at once, so that many loads are in flight and every weight
// is read and dequantised once for all columns. Sums in f32.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "reduce.glsl"
#include "dequant.glsl"

layout(constant_id = 11) const uint kRows = 2;
layout(constant_id = 12) const uint kCols = 1;
layout(constant_id = 13) const uint kXDType = kF32;
layout(constant_id = 14) const bool kBias = false;
layout(constant_id = 15) const uint kUnroll = 1;  // units of each row that a lane loads before it multiplies

layout(push_constant) uniform Push {
  Words x, weight;
  Floats bias, result;
  Words count;
  uint columns, row_words, num_rows;     // of this piece of the group
  uint result_first, result_columns;     // its place in a row of out
};

float team_sum(float sum) {
#ifdef SUBGROUP
  return subgroupAdd(sum);
#else
  return group_sum(sum);
#endif
}

uint rows[kRows];  // first words
float sums[kRows][kCols];

// Adds the products of one unit of every row; its vec4s lie in pairs (f32: alone).
void multiply(uint unit, vec4 w[kRows][kUnitsMaxVecs]) {
  [[unroll]] for (uint c = 0; c < kCols; ++c) {
    uint from = c * (columns / 4u);
    if (kUnitVecs == 1) {
      vec4 y = load4(x, from + unit_x(unit, 0u), kXDType);
      [[unroll]] for (uint r = 0; r < kRows; ++r) sums[r][c] += dot(w[r][0], y);
      continue;
    }
    [[unroll]] for (uint i = 0; i < kUnitVecs; i += 2) {
      vec4 y, z;
      load8(x, from + unit_x(unit, i), kXDType, y, z);
      [[unroll]] for (uint r = 0; r < kRows; ++r) sums[r][c] += dot(w[r][i], y) + dot(w[r][i + 1], z);
    }
  }
}

// Units first, first + stride, ... (kCount of them), all weights loaded ahead of all products.
#define ACCUMULATE(kCount, first, stride)                                       \
  {                                                                             \
    vec4 w[kCount][kRows][kUnitsMaxVecs];                                       \
    [[unroll]] for (uint u = 0; u < kCount; ++u)                                \
      [[unroll]] for (uint r = 0; r < kRows; ++r)                               \
        dequant_unit(weight, rows[r], columns, (first) + u * (stride), w[u][r]); \
    [[unroll]] for (uint u = 0; u < kCount; ++u) multiply((first) + u * (stride), w[u]); \
  }

void main() {
#ifdef SUBGROUP
  uint lane = gl_SubgroupInvocationID, num_lanes = kSubgroup;
  uint team = gl_WorkGroupID.x * (gl_WorkGroupSize.x / kSubgroup) + gl_SubgroupID;
#else
  uint lane = gl_LocalInvocationID.x, num_lanes = gl_WorkGroupSize.x, team = gl_WorkGroupID.x;
#endif
  if (count.w[0] == 0u || team * kRows >= num_rows) return;
  [[unroll]] for (uint r = 0; r < kRows; ++r) {
    rows[r] = min(team * kRows + r, num_rows - 1u) * row_words;
    [[unroll]] for (uint c = 0; c < kCols; ++c) sums[r][c] = 0.0;
  }
  uint units = num_units(columns), batch = kUnroll * num_lanes, whole = units / batch * batch;
  for (uint unit = lane; unit < whole; unit += batch) ACCUMULATE(kUnroll, unit, num_lanes)
  for (uint unit = whole + lane; unit < units; unit += num_lanes) ACCUMULATE(1, unit, 0)
  [[unroll]] for (uint r = 0; r < kRows; ++r) {
    uint row = team * kRows + r;
    [[unroll]] for (uint c = 0; c < kCols; ++c) {
      float sum = team_sum(sums[r][c]);
      if (lane != 0u || row >= num_rows) continue;
      if (kBias) sum += bias.f[result_first + row];
      result.f[c * result_columns + result_first + row] = sum;
    }
  }
}
