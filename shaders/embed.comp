// out[t] = weight[tokens[t]], dequantised. One invocation a unit of a row; y = token. A weight cut in pieces is run once a
// piece, and tokens of other pieces are left alone.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "dequant.glsl"

layout(push_constant) uniform Push {
  Ints tokens;
  Words weight;
  Vec4s result;
  Words count;
  uint columns, row_words, row_begin, num_rows;
};

void main() {
  uint unit = gl_GlobalInvocationID.x, t = gl_WorkGroupID.y;
  if (t >= count.w[0] || unit >= num_units(columns)) return;
  uint row = uint(tokens.i[t]) - row_begin;
  if (row >= num_rows) return;
  vec4 x[kUnitsMaxVecs];
  dequant_unit(weight, row_at(row, row_words), columns, unit, x);
  [[unroll]] for (uint i = 0; i < kUnitVecs; ++i) result.v[t * (columns / 4u) + unit_x(unit, i)] = x[i];
}
