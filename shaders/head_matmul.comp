// Each head's numbers times a matrix of its own: out[t, h] = W_h x[t, h]. An invocation has two neighbouring rows of a
// head's matrix and kCols tokens (grid: x pairs of rows, y head, z tokens): rows are short, so that sharing one would
// leave lanes idle. Sums in f32, in the order of the columns.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "dequant.glsl"

layout(constant_id = 11) const uint kCols = 1;
layout(constant_id = 12) const uint kXDType = kF32;
layout(constant_id = 13) const uint kOutDType = kF32;

layout(push_constant) uniform Push {
  Words x, weight, result, count;
  uint columns, row_words, num_rows;  // num_rows: of a head
  uint num_heads, x_stride, out_stride;
};

const uint kRows = 2;
const uint kAhead = 4;  // units of a row under way: rows are short, and little else runs

void main() {
  uint pair = gl_GlobalInvocationID.x, head = gl_WorkGroupID.y, first = gl_WorkGroupID.z * kCols, live = count.w[0];
  if (first >= live || 2u * pair >= num_rows) return;
  uint rows[kRows], x_first[kCols];
  float sums[kRows][kCols];
  [[unroll]] for (uint r = 0; r < kRows; ++r)
    rows[r] = row_at(head * num_rows + min(2u * pair + r, num_rows - 1u), row_words);
  [[unroll]] for (uint c = 0; c < kCols; ++c) {
    x_first[c] = (min(first + c, live - 1u) * num_heads + head) * (x_stride / 4u);
    [[unroll]] for (uint r = 0; r < kRows; ++r) sums[r][c] = 0.0;
  }
  uint units = num_units(columns);
  for (uint unit_first = 0; unit_first < units; unit_first += kAhead) {
    Unit ahead[kRows][kAhead];
    [[unroll]] for (uint a = 0; a < kAhead; ++a)
      [[unroll]] for (uint r = 0; r < kRows; ++r)
        ahead[r][a] = fetch_unit(weight, rows[r], columns, min(unit_first + a, units - 1u));
    [[unroll]] for (uint a = 0; a < kAhead; ++a) {
      uint unit = unit_first + a;
      if (unit >= units) break;
      [[unroll]] for (uint i = 0; i < kUnitVecs; ++i) {
        vec4 w[kRows];
        [[unroll]] for (uint r = 0; r < kRows; ++r) w[r] = unit_numbers(ahead[r][a], unit, i);
        [[unroll]] for (uint c = 0; c < kCols; ++c) {
          vec4 y = load4(x, x_first[c] + unit_x(unit, i), kXDType);
          [[unroll]] for (uint r = 0; r < kRows; ++r) sums[r][c] += dot(w[r], y);
        }
      }
    }
  }
  [[unroll]] for (uint c = 0; c < kCols; ++c) {
    if (first + c >= live) break;
    uint to = ((first + c) * num_heads + head) * out_stride;
    store_pair(result, to, num_rows, pair, vec2(sums[0][c], sums[1][c]), kOutDType);
  }
}
