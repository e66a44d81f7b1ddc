// Reductions over a workgroup with a fixed tree; every invocation gets the result. Built twice: with SUBGROUP (T1) lanes
// of a subgroup reduce in registers and one word a subgroup goes through shared memory; without, all of it does.
// Every invocation of the group must call, in uniform control flow.
#ifdef SUBGROUP
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif

#ifdef SUBGROUP
shared uint reduce_a[128];  // subgroups of a group
#else
shared uint reduce_a[1024];  // invocations of a group: a power of two
#endif

// For all groups a barrier but those of one subgroup: these are vectors of a processor, which go in step, and each barrier
// is a coroutine's suspension there (slow to run, slower to compile).
void group_barrier() {
#ifdef SUBGROUP
  if (gl_WorkGroupSize.x <= kSubgroup) {
    subgroupMemoryBarrierShared();
    return;
  }
#endif
  barrier();
}

#ifdef SUBGROUP
#define GROUP_REDUCE(TYPE, NAME, SUBGROUP_OP, COMBINE, TO_BITS, FROM_BITS)            \
  TYPE NAME(TYPE x) {                                                                 \
    x = SUBGROUP_OP(x);                                                               \
    if (gl_WorkGroupSize.x > kSubgroup) {                                             \
      barrier();                                                                      \
      if (gl_SubgroupInvocationID == 0) reduce_a[gl_SubgroupID] = TO_BITS(x);         \
      barrier();                                                                      \
      x = FROM_BITS(reduce_a[0]);                                                     \
      for (uint s = 1; s < gl_NumSubgroups; ++s) x = COMBINE(x, FROM_BITS(reduce_a[s])); \
    }                                                                                 \
    return x;                                                                         \
  }
#else
#define GROUP_REDUCE(TYPE, NAME, SUBGROUP_OP, COMBINE, TO_BITS, FROM_BITS)            \
  TYPE NAME(TYPE x) {                                                                 \
    uint me = gl_LocalInvocationID.x;                                                 \
    barrier();                                                                        \
    reduce_a[me] = TO_BITS(x);                                                        \
    barrier();                                                                        \
    for (uint step = gl_WorkGroupSize.x / 2; step > 0; step /= 2) {                   \
      if (me < step)                                                                  \
        reduce_a[me] = TO_BITS(COMBINE(FROM_BITS(reduce_a[me]), FROM_BITS(reduce_a[me + step]))); \
      barrier();                                                                      \
    }                                                                                 \
    return FROM_BITS(reduce_a[0]);                                                    \
  }
#endif
#define ADD_OF(a, b) ((a) + (b))
#define OR_OF(a, b) ((a) | (b))
#define SAME_OF(a) (a)
GROUP_REDUCE(float, group_sum, subgroupAdd, ADD_OF, floatBitsToUint, uintBitsToFloat)
GROUP_REDUCE(float, group_max, subgroupMax, max, floatBitsToUint, uintBitsToFloat)
GROUP_REDUCE(uint, group_sum_uint, subgroupAdd, ADD_OF, SAME_OF, SAME_OF)
GROUP_REDUCE(uint, group_or, subgroupOr, OR_OF, SAME_OF, SAME_OF)
GROUP_REDUCE(uint, group_min_uint, subgroupMin, min, SAME_OF, SAME_OF)
GROUP_REDUCE(uint, group_max_uint, subgroupMax, max, SAME_OF, SAME_OF)
