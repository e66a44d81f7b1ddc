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

const uint kTile = 64, kStep = 32;
const uint kUnitsStep = 8 / kUnitVecs;
// [number of a row][row], 16 KB in all: four groups in 64 KB.
shared float w_tile[kStep * kTile], x_tile[kStep * kTile];

// Place of number 4 * vec of `row`; those after it are kTile apart. Each vec4 has the rows in another order, four together,
// so that lanes that store different vec4s meet different banks.
uint tile_at(uint vec, uint row) { return vec * 4u * kTile + (row ^ vec * 4u); }

void load_weights(uint row_first, uint step) {
  for (uint i = gl_LocalInvocationID.x; i < kTile * kUnitsStep; i += gl_WorkGroupSize.x) {
    uint row = i / kUnitsStep, u = i % kUnitsStep;
    uint unit = step * kUnitsStep + u;
    Unit fetched = fetch_unit(weight, row_at(min(row_first + row, num_rows - 1u), row_words), columns, unit);
    [[unroll]] for (uint v = 0; v < kUnitVecs; ++v) {
      vec4 w = unit_numbers(fetched, unit, v);
      uint at = tile_at(u * kUnitVecs + v, row);
      [[unroll]] for (uint e = 0; e < 4; ++e) w_tile[at + e * kTile] = w[e];
    }
  }
}

void load_x(uint col_first, uint num_cols, uint step) {
  for (uint i = gl_LocalInvocationID.x; i < kTile * 8u; i += gl_WorkGroupSize.x) {
    uint col = i / 8u, v = i % 8u;
    uint at = unit_x(step * kUnitsStep + v / kUnitVecs, v % kUnitVecs);
    vec4 y = load4(x, min(col_first + col, num_cols - 1u) * (columns / 4u) + at, kXDType);
    uint to = tile_at(v, col);
    [[unroll]] for (uint e = 0; e < 4; ++e) x_tile[to + e * kTile] = y[e];
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
    for (uint v = 0; v < kStep / 4u; ++v) {
      uint a = tile_at(v, row), b = tile_at(v, col);
      [[unroll]] for (uint e = 0; e < 4; ++e, a += kTile, b += kTile) {
        vec4 w = vec4(w_tile[a], w_tile[a + 1u], w_tile[a + 2u], w_tile[a + 3u]);
        [[unroll]] for (uint c = 0; c < 4; ++c) sums[c] += w * x_tile[b + c];
      }
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
