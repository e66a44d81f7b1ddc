// processed[r][token] += bias for the step's entries of each row, in order where a token comes twice. One invocation a
// row: entries are few.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "step_inputs.glsl"

layout(push_constant) uniform Push {
  Floats processed;
  Words inputs, rows;
  uint vocab_size;
};

void main() {
  uint r = gl_GlobalInvocationID.x;
  if (r >= inputs.w[kSmpNumRecords]) return;
  uint record = inputs.w[kSmpRecords] + r * kSampleWords;
  if ((rows.w[inputs.w[record] * kRowWords + kRowFlags] & kFlagBias) == 0u) return;
  uint entry = inputs.w[kSmpBias] + 2u * inputs.w[record + 5u], num_bias = inputs.w[record + 6u];
  for (uint i = 0; i < num_bias; ++i) {
    uint token = inputs.w[entry + 2u * i];
    if (token < vocab_size) processed.f[r * vocab_size + token] += uintBitsToFloat(inputs.w[entry + 2u * i + 1u]);
  }
}
