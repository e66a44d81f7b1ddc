// out = x * W^T + bias by tiles of 64 weight rows (grid x) by 64 rows of x (grid y), f32 arithmetic, no matrix units. 256
// invocations of 4 x 4 sums. A step takes 8 vec4 of every row: whole units, in the units' own order of numbers.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "dequant.glsl"

layout(constant_id = 11) const uint kXDType = kF32;
layout(constant_id = 12) const bool kBias = false;

layout(push_constant) uniform Push {
  Words x, weight;
  Floats bias, result;
  Words count;
  uint columns, row_words, num_rows;
  uint result_first, result_columns;
};

const uint kTile = 64, kStep = 32, kStride = kTile + 4;
const uint kUnitsStep = 8 / kUnitVecs;
shared float w_tile[kStep * kStride], x_tile[kStep * kStride];

void load_weights(uint row_first, uint step) {
  for (uint i = gl_LocalInvocationID.x; i < kTile * kUnitsStep; i += gl_WorkGroupSize.x) {
    uint row = i / kUnitsStep, u = i % kUnitsStep;
    vec4 w[kUnitsMaxVecs];
    dequant_unit(weight, min(row_first + row, num_rows - 1u) * row_words, columns, step * kUnitsStep + u, w);
    [[unroll]] for (uint v = 0; v < kUnitVecs; ++v)
      [[unroll]] for (uint e = 0; e < 4; ++e) w_tile[((u * kUnitVecs + v) * 4u + e) * kStride + row] = w[v][e];
  }
}

void load_x(uint col_first, uint num_cols, uint step) {
  for (uint i = gl_LocalInvocationID.x; i < kTile * 8u; i += gl_WorkGroupSize.x) {
    uint col = i / 8u, v = i % 8u;
    uint at = unit_x(step * kUnitsStep + v / kUnitVecs, v % kUnitVecs);
    vec4 y = load4(x, min(col_first + col, num_cols - 1u) * (columns / 4u) + at, kXDType);
    [[unroll]] for (uint e = 0; e < 4; ++e) x_tile[(v * 4u + e) * kStride + col] = y[e];
  }
}

void main() {
  uint num_cols = count.w[0], row_first = gl_WorkGroupID.x * kTile, col_first = gl_WorkGroupID.y * kTile;
  if (col_first >= num_cols) return;
  uint row = gl_LocalInvocationID.x % 16u * 4u, col = gl_LocalInvocationID.x / 16u * 4u;
  vec4 sums[4] = vec4[](vec4(0), vec4(0), vec4(0), vec4(0));  // by column
  for (uint step = 0; step < columns / kStep; ++step) {
    load_weights(row_first, step);
    load_x(col_first, num_cols, step);
    barrier();
    for (uint k = 0; k < kStep; ++k) {
      uint a = k * kStride + row, b = k * kStride + col;
      vec4 w = vec4(w_tile[a], w_tile[a + 1u], w_tile[a + 2u], w_tile[a + 3u]);
      [[unroll]] for (uint c = 0; c < 4; ++c) sums[c] += w * x_tile[b + c];
    }
    barrier();
  }
  [[unroll]] for (uint c = 0; c < 4; ++c) {
    [[unroll]] for (uint r = 0; r < 4; ++r) {
      uint n = row_first + row + r, t = col_first + col + c;
      if (n >= num_rows || t >= num_cols) continue;
      float sum = sums[c][r];
      if (kBias) sum += bias.f[result_first + n];
      result.f[t * result_columns + result_first + n] = sum;
    }
  }
}
