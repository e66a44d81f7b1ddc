// out[r] = x[sample_records[r].token_idx]. x of the grid walks the row, y = r.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "step_inputs.glsl"

layout(push_constant) uniform Push {
  Words x, result, inputs;  // inputs: of the sample list
  uint columns;
};

void main() {
  uint c = gl_GlobalInvocationID.x, r = gl_WorkGroupID.y;
  if (r >= inputs.w[kSmpNumRecords] || c >= columns) return;
  uint token_idx = inputs.w[inputs.w[kSmpRecords] + r * kSampleWords + 1u];
  result.w[r * columns + c] = x.w[token_idx * columns + c];
}
