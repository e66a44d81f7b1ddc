// What workgroups of one dispatch hand to each other.

#ifndef IS_LAST  // where arrives_last keeps its answer, in shared memory
shared bool is_last;
#define IS_LAST is_last
#define SET_LAST(last) is_last = last
#endif

// A barrier of the workgroup that also hands memory on: what its invocations wrote before is visible to whoever learns of
// it by an atomic of the queue family behind it, and what others handed on before such an atomic is visible after it.
void group_and_memory_barrier() {
  controlBarrier(gl_ScopeWorkgroup, gl_ScopeQueueFamily, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared,
                 gl_SemanticsAcquireRelease | gl_SemanticsMakeAvailable | gl_SemanticsMakeVisible);
}

// The same by subgroups, for memory that is queuefamilycoherent: what a subgroup's lanes wrote before the first is visible
// behind the second to subgroups that learn of it by an atomic in between. Subgroups of 8 as in sync_subgroup.
void sync_subgroup_buffers() {
  if (kSubgroup > 8u)
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
  else
    memoryBarrier(gl_ScopeSubgroup, gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
}
void release_subgroup() {
  sync_subgroup_buffers();
  memoryBarrier(gl_ScopeQueueFamily, gl_StorageSemanticsBuffer, gl_SemanticsRelease);
}
void acquire_subgroup() {
  memoryBarrier(gl_ScopeQueueFamily, gl_StorageSemanticsBuffer, gl_SemanticsAcquire);
  sync_subgroup_buffers();
}

// Whether this is the last of `count` workgroups that count themselves in word `at`; then what the others wrote before is
// visible, and the word is 0 again.
bool arrives_last(Words arrivals, uint at, uint count) {
  group_and_memory_barrier();
  if (gl_LocalInvocationIndex == 0u) {
    SET_LAST(atomicAdd(arrivals.w[at], 1u, gl_ScopeQueueFamily, gl_StorageSemanticsBuffer,
                       gl_SemanticsAcquireRelease) == count - 1u);
    if (IS_LAST) arrivals.w[at] = 0u;
  }
  group_and_memory_barrier();
  return IS_LAST;
}
