// The first num_tokens tokens of blocks to others, k and v of every head, in one memory or between two: x walks the words
// of a block, y the moves, z is the layer. Run once for data (words a token: those of head_dim numbers) and once for
// scales (words a token: those of a vector).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "step_inputs.glsl"

layout(push_constant) uniform Push {
  Words inputs, from, to;
  uint count_word, array_word;  // of the inputs' header: how many moves, and where
  uint block_tokens, token_words, num_runs;  // num_runs: k and v times heads
  uint from_layer_words, to_layer_words;
  uint kv_group;  // moves of others are passed over
};

void main() {
  uint num_moves = inputs.w[count_word], run_words = block_tokens * token_words;
  for (uint m = gl_WorkGroupID.y; m < num_moves; m += gl_NumWorkGroups.y) {
    uint move = inputs.w[array_word] + m * kCopyWords;
    if (inputs.w[move + 3u] != kv_group) continue;
    uint used = min(inputs.w[move + 2u], block_tokens) * token_words;
    uint source = gl_WorkGroupID.z * from_layer_words + inputs.w[move] * num_runs * run_words;
    uint target = gl_WorkGroupID.z * to_layer_words + inputs.w[move + 1u] * num_runs * run_words;
    for (uint i = gl_GlobalInvocationID.x; i < num_runs * run_words; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x)
      if (i % run_words < used) to.w[target + i] = from.w[source + i];
  }
}
