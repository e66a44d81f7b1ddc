// processed[r][token] += bias for the step's entries of each row; a row's entries name different tokens. One workgroup a
// row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "step_inputs.glsl"

const uint kBiasFirst = 5, kNumBias = 6;  // words of a SampleRecord
const uint kBiasWords = 2;                // BiasEntry: token, bias

layout(push_constant) uniform Push {
  Floats processed;
  Words inputs, rows;
  uint vocab_size;
};

void main() {
  uint r = gl_WorkGroupID.x;
  if (r >= inputs.w[kSmpNumRecords]) return;
  uint record = inputs.w[kSmpRecords] + r * kSampleWords;
  if ((rows.w[inputs.w[record] * kRowWords + kRowFlags] & kFlagBias) == 0u) return;
  uint first = inputs.w[kSmpBias] + inputs.w[record + kBiasFirst] * kBiasWords, num_bias = inputs.w[record + kNumBias];
  for (uint i = gl_LocalInvocationID.x; i < num_bias; i += gl_WorkGroupSize.x) {
    uint token = inputs.w[first + i * kBiasWords];
    if (token < vocab_size) processed.f[r * vocab_size + token] += uintBitsToFloat(inputs.w[first + i * kBiasWords + 1u]);
  }
}
