// A barrier of a subgroup for what it keeps in shared memory. Subgroups of 8 are vectors that run in step. There lavapipe
// takes a control barrier for one of the whole group, and subgroups pass different numbers of them.
void sync_subgroup() {
  if (kSubgroup > 8u)
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
  else
    memoryBarrier(gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
}
