// The matrices of experts by the few rows that go to each: a workgroup has an item (grid y) and a run of outputs (grid x).
// Lanes of a team (a subgroup; without subgroups the whole group) stride over the 16-byte units of the weight rows of
// kOutputs outputs, so that many loads are in flight and a weight is read and expanded once for all rows of the item. Sums in
// f32, in an order that depends on the columns alone.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "reduce.glsl"
#include "dequant.glsl"
#include "activation.glsl"
#include "gated.glsl"
#include "expert_items.glsl"
#include "expert_ends.glsl"

layout(constant_id = 19) const uint kOutputs = 2;  // even
layout(constant_id = 20) const uint kCols = 1;     // most rows of an item

const uint kRows = kGated ? 2 * kOutputs : kOutputs;
uint rows[kRows], x_rows[kCols];
float sums[kRows][kCols];

void multiply(uint unit) {
  Unit units[kRows];
  [[unroll]] for (uint r = 0; r < kRows; ++r) {
    if (kGated && r >= kOutputs)
      units[r] = fetch_unit(up, rows[r], columns, unit);
    else
      units[r] = fetch_unit(weight, rows[r], columns, unit);
  }
  [[unroll]] for (uint i = 0; i < kUnitVecs; ++i) {
    vec4 w[kRows];
    [[unroll]] for (uint r = 0; r < kRows; ++r) w[r] = unit_numbers(units[r], unit, i);
    [[unroll]] for (uint c = 0; c < kCols; ++c) {
      vec4 y = x_vec4(x_rows[c], unit_x(unit, i));
      [[unroll]] for (uint r = 0; r < kRows; ++r) sums[r][c] += dot(w[r], y);
    }
  }
}

void main() {
#ifdef SUBGROUP
  uint lane = gl_SubgroupInvocationID, num_lanes = kSubgroup;
  uint team = gl_WorkGroupID.x * (gl_WorkGroupSize.x / kSubgroup) + gl_SubgroupID;
#else
  uint lane = gl_LocalInvocationID.x, num_lanes = gl_WorkGroupSize.x, team = gl_WorkGroupID.x;
#endif
  Item item = take_item(gl_WorkGroupID.y, kCols);
  uint first = team * kOutputs;
  if (item.num_rows == 0u || first >= num_outputs) return;
  [[unroll]] for (uint r = 0; r < kOutputs; ++r) {
    uint row = gate_row(item, first + r);
    rows[r] = row_at(row, row_words);
    if (kGated) rows[kRows - kOutputs + r] = row_at(row + up_first, row_words);
  }
  [[unroll]] for (uint c = 0; c < kCols; ++c) {
    x_rows[c] = row_of(item, min(c, item.num_rows - 1u)) / x_per_row;
    [[unroll]] for (uint r = 0; r < kRows; ++r) sums[r][c] = 0.0;
  }
  uint units = all_units();
  for (uint unit = lane; unit < units; unit += num_lanes) multiply(unit);
  // Without subgroups a sum is many barriers, which a processor's compiler is slow at: one place for all.
#ifdef SUBGROUP
  [[unroll]] for (uint c = 0; c < kCols; ++c) {
    [[unroll]] for (uint r = 0; r < kRows; ++r) sums[r][c] = subgroupAdd(sums[r][c]);
  }
#else
  [[dont_unroll]] for (uint i = 0; i < kRows * kCols; ++i) sums[i / kCols][i % kCols] = group_sum(sums[i / kCols][i % kCols]);
#endif
  if (lane != 0u) return;
  [[unroll]] for (uint c = 0; c < kCols; ++c) {
    if (c >= item.num_rows) break;
    uint row = row_of(item, c), to = row * result_columns;
    [[unroll]] for (uint r = 0; r < kOutputs; r += 2) {
      vec2 pair;
      [[unroll]] for (uint e = 0; e < 2; ++e)
        pair[e] = output_of(item, row, min(first + r + e, num_outputs - 1u), sums[r + e][c], sums[kRows - kOutputs + r + e][c]);
      if (first + r < num_outputs) store_pair(result, to, result_columns, (first + r) / 2u, pair, kOutDType);
    }
  }
}
