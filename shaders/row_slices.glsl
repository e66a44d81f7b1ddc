// A pass over a row by several workgroups (y of the grid), each a slice of its quads. Each leaves what it found in
// `candidates`, which holds nothing yet; the last to arrive puts it together, in the order of the slices.
#include "memory_barrier.glsl"

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Slices { queuefamilycoherent uint w[]; };

const uint kSliceWords = 8;

shared bool is_last;

// The slice's quads: begin, end.
uvec2 slice_quads() {
  uint slices = gl_NumWorkGroups.y, slice = gl_WorkGroupID.y;
  return num_quads() * uvec2(slice, slice + 1u) / slices;
}

uint slice_word(uint row, uint slice) { return 2u * kListMax * row + kSliceWords * slice; }

// Whether this group is the last of the row's; then what all groups wrote to their slices before is visible.
bool arrives_last(uint row) {
  group_and_memory_barrier();
  if (gl_LocalInvocationIndex == 0u) {
    is_last = atomicAdd(arrivals.w[row], 1u, gl_ScopeQueueFamily, gl_StorageSemanticsBuffer,
                        gl_SemanticsAcquireRelease) == gl_NumWorkGroups.y - 1u;
    if (is_last) arrivals.w[row] = 0u;
  }
  group_and_memory_barrier();
  return is_last;
}
