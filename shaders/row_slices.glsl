// A pass over a row by several workgroups (y of the grid), each a slice of its quads. Each leaves what it found in
// `candidates`, which holds nothing yet; the last to arrive puts it together, in the order of the slices.
#include "arrival.glsl"

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Slices { queuefamilycoherent uint w[]; };

const uint kSliceWords = 8;

// The slice's quads: begin, end.
uvec2 slice_quads() {
  uint slices = gl_NumWorkGroups.y, slice = gl_WorkGroupID.y;
  return num_quads() * uvec2(slice, slice + 1u) / slices;
}

uint slice_word(uint row, uint slice) { return 2u * kListMax * row + kSliceWords * slice; }
