// A barrier of the workgroup that also hands memory on: what its invocations wrote before is visible to whoever learns of
// it by an atomic of the queue family behind it, and what others handed on before such an atomic is visible after it.
void group_and_memory_barrier() {
  controlBarrier(gl_ScopeWorkgroup, gl_ScopeQueueFamily, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared,
                 gl_SemanticsAcquireRelease | gl_SemanticsMakeAvailable | gl_SemanticsMakeVisible);
}
