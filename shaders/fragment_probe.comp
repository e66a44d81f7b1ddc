// Where this device puts the elements of matrices: writes a matrix of each factor that lanes have filled as
// matmul_fragment does. Element (row m, k) of the first and (k, column n) of the second are m * kK + and n * kK + the
// number of k that the lane had in mind; (row, column) of a matrix of sums is row * kN + column. One subgroup.
#version 460
#pragma use_vulkan_memory_model
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "types.glsl"

layout(constant_id = 10) const uint kM = 16;
layout(constant_id = 11) const uint kN = 8;
layout(constant_id = 12) const uint kK = 16;
layout(constant_id = 13) const uint kRowLanes = 4;
layout(constant_id = 14) const uint kSumRun = 2;

layout(push_constant) uniform Push { Words result; };  // f16 [kM, kK], [kN, kK], then f32 [kM, kN]

const uint kRunRows = kSubgroup / kRowLanes;
const uint kLaneRows = kM / kRunRows, kLaneCols = kN / kRunRows, kLaneNumbers = kK / kRowLanes;
const uint kRowWords = kK / 2, kFirstWords = kM * kRowWords, kWords = kFirstWords + kN * kRowWords;
const uint kSumLanes = kN / kSumRun, kSumRunRows = kSubgroup / kSumLanes, kLaneSums = kM / kSumRunRows;
shared uint words[kWords];
shared float sums[kM * kN];

void main() {
  uint lane = gl_SubgroupInvocationID;
  coopmat<float16_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA> a;
  coopmat<float16_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB> b;
  [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j) {
    uint number = lane % kRowLanes * kLaneNumbers + j;
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
      a[r * kLaneNumbers + j] = float16_t(float((r * kRunRows + lane / kRowLanes) * kK + number));
    [[unroll]] for (uint c = 0; c < kLaneCols; ++c)
      b[c * kLaneNumbers + j] = float16_t(float((c * kRunRows + lane / kRowLanes) * kK + number));
  }
  coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> c;
  [[unroll]] for (uint r = 0; r < kLaneSums; ++r)
    [[unroll]] for (uint j = 0; j < kSumRun; ++j)
      c[r * kSumRun + j] = float((r * kSumRunRows + lane / kSumLanes) * kN + lane % kSumLanes * kSumRun + j);
  coopMatStore(c, sums, 0, kN, gl_CooperativeMatrixLayoutRowMajor);
  coopMatStore(a, words, 0, kRowWords, gl_CooperativeMatrixLayoutRowMajor);
  coopMatStore(b, words, kFirstWords, kRowWords, gl_CooperativeMatrixLayoutColumnMajor);
  barrier();
  for (uint i = lane; i < kWords; i += kSubgroup) result.w[i] = words[i];
  for (uint i = lane; i < kM * kN; i += kSubgroup) result.w[kWords + i] = floatBitsToUint(sums[i]);
}
