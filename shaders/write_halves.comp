// Rows of quantised weights as f16, woven (dequant.glsl), for matmul_wide. A group expands kUnits units of eight rows,
// which then lie together; they pass through shared memory, so that neighbours write what is side by side. Numbers are
// those of kernels that expand weights themselves.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "dequant.glsl"
#include "halves.glsl"

layout(push_constant) uniform Push {
  Words weight;
  Quads result;
  uint columns, row_words;
  uint first, num_first, second;  // row r is the weight's row first + r, from num_first on second + r - num_first
};

const uint kUnits = 32, kLanes = 8 * kUnits;  // a lane each
const uint kUnitOctets = kUnitVecs / 2;
shared uvec4 octets[kLanes * kUnitOctets];

void main() {
  uint in_eight = gl_LocalInvocationIndex % 8u, unit = gl_WorkGroupID.x * kUnits + gl_LocalInvocationIndex / 8u;
  uint row = gl_WorkGroupID.y * 8u + in_eight, from = row < num_first ? first + row : second + row - num_first;
  uint begin = gl_WorkGroupID.x * kUnits * kUnitOctets, num_octets = columns / 8u - begin;
  if (unit < num_units(columns)) {
    f16vec2 pairs[2 * kUnitsMaxVecs];
    expand_pairs(fetch_unit(weight, row_at(from, row_words), columns, unit), unit, pairs);
    [[unroll]] for (uint i = 0; i < kUnitVecs; i += 2) {
      uint octet = unit_x(unit, i) / 2u - begin;
      octets[woven_at(in_eight, 0u, octet, 4u)] =
          uvec4(quad_of(pairs[2 * i], pairs[2 * i + 1]), quad_of(pairs[2 * i + 2], pairs[2 * i + 3]));
    }
  }
  barrier();
  uint target = gl_WorkGroupID.y * columns + begin * 8u;
  [[unroll]] for (uint i = 0; i < kUnitOctets; ++i) {
    uint at = i * kLanes + gl_LocalInvocationIndex;
    if (at < num_octets * 8u) result.q[target + at] = octets[at];
  }
}
