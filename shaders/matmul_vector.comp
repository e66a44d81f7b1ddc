// out[c] = x[c] * W^T + bias for a few rows of x (kCols of them). Lanes of a team (a subgroup; without subgroups the whole
// group) stride over the 16-byte units of kRows weight rows at once, so that many loads are in flight and every weight
// is read and dequantised once for all columns. Sums in f32.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "spread.glsl"
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

// Scales are applied to sums of products, not to numbers, where that is less work: offsets then need sums of x.
const bool kFewCols = kCols <= 2, kSavesWork = kFewCols || kIsBytes, kLateScale = kSavesWork && !kIsFloat;

// Adds the products of one unit of every row, two of its vec4s at a time (f32: the only one), so that few numbers of it
// are there at once.
void multiply(uint unit, Unit units[kRows]) {
  float parts[kRows][kCols], x_sums[kCols];
  [[unroll]] for (uint i = 0; i < kUnitVecs; i += 2) {
    [[unroll]] for (uint c = 0; c < kCols && i % kScaleRun == 0; ++c) {
      x_sums[c] = 0.0;
      [[unroll]] for (uint r = 0; r < kRows; ++r) parts[r][c] = 0.0;
    }
    vec4 w[kRows][2];
    [[unroll]] for (uint r = 0; r < kRows; ++r) {
      w[r][0] = unit_quants(units[r], unit, i);
      w[r][1] = kUnitVecs > 1 ? unit_quants(units[r], unit, i + 1u) : vec4(0.0);
      if (kIsFloat || kLateScale) continue;
      vec2 scale = unit_scale(units[r], unit, i);
      w[r][0] = scale.x * w[r][0] + scale.y;
      w[r][1] = scale.x * w[r][1] + scale.y;
    }
    [[unroll]] for (uint c = 0; c < kCols; ++c) {
      uint at = c * (columns / 4u) + unit_x(unit, i);
      vec4 y, z = vec4(0.0);
      if (kUnitVecs == 1)
        y = load4(x, at, kXDType);
      else
        load8(x, at, kXDType, y, z);
      [[unroll]] for (uint r = 0; r < kRows; ++r) {
        float product = dot(w[r][0], y);
        if (kUnitVecs > 1) product += dot(w[r][1], z);
        if (kLateScale)
          parts[r][c] += product;
        else
          sums[r][c] += product;
      }
      if (kLateScale && kHasOffset) x_sums[c] += dot(y + z, vec4(1.0));
    }
    if (!kLateScale || (i + 2) % kScaleRun != 0) continue;
    [[unroll]] for (uint r = 0; r < kRows; ++r) {
      vec2 scale = unit_scale(units[r], unit, i);
      [[unroll]] for (uint c = 0; c < kCols; ++c) {
        sums[r][c] += scale.x * parts[r][c];
        if (kHasOffset) sums[r][c] += scale.y * x_sums[c];
      }
    }
  }
}

// Units first, first + stride, ... (kCount of them), all weights loaded ahead of all products.
#define ACCUMULATE(kCount, first, stride)                                       \
  {                                                                             \
    Unit u[kCount][kRows];                                                      \
    [[unroll]] for (uint n = 0; n < kCount; ++n)                                \
      [[unroll]] for (uint r = 0; r < kRows; ++r)                               \
        u[n][r] = fetch_unit(weight, rows[r], columns, (first) + n * (stride)); \
    [[unroll]] for (uint n = 0; n < kCount; ++n) multiply((first) + n * (stride), u[n]); \
  }

void main() {
#ifdef SUBGROUP
  uint lane = gl_SubgroupInvocationID, num_lanes = kSubgroup;
  uint team = spread_group() * (gl_WorkGroupSize.x / kSubgroup) + gl_SubgroupID;
#else
  uint lane = gl_LocalInvocationID.x, num_lanes = gl_WorkGroupSize.x, team = spread_group();
#endif
  if (count.w[0] == 0u || team * kRows >= num_rows) return;
  [[unroll]] for (uint r = 0; r < kRows; ++r) {
    rows[r] = row_at(min(team * kRows + r, num_rows - 1u), row_words);
    [[unroll]] for (uint c = 0; c < kCols; ++c) sums[r][c] = 0.0;
  }
  uint units = num_units(columns), batch = kUnroll * num_lanes, whole = kUnroll > 1 ? units / batch * batch : 0u;
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
