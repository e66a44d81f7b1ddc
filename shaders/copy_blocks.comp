// The first num_tokens tokens of a block to another, k and v of every head: x walks the words of a block, y the copies, z
// is the layer. Run once for data (words a token: those of head_dim numbers) and once for scales (one word a token).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "step_inputs.glsl"

layout(push_constant) uniform Push {
  Words inputs, plane;
  uint block_tokens, token_words, num_runs, layer_words;  // num_runs: k and v times heads
};

void main() {
  uint num_copies = inputs.w[kFwdNumCopies], run_words = block_tokens * token_words;
  for (uint c = gl_WorkGroupID.y; c < num_copies; c += gl_NumWorkGroups.y) {
    uint copy = inputs.w[kFwdCopies] + c * kCopyWords, used = inputs.w[copy + 2u] * token_words;
    uint layer = gl_WorkGroupID.z * layer_words;
    uint source = layer + inputs.w[copy] * num_runs * run_words;
    uint target = layer + inputs.w[copy + 1u] * num_runs * run_words;
    for (uint i = gl_GlobalInvocationID.x; i < num_runs * run_words; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x)
      if (i % run_words < used) plane.w[target + i] = plane.w[source + i];
  }
}
