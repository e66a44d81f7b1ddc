// Tokens, positions, row slots and KV places of the step's T tokens, from row records and row state. One invocation a
// token; padding tokens get token 0, position 0, slot -1, place -1.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "step_inputs.glsl"

layout(push_constant) uniform Push {
  Words inputs, rows, tables;
  Ints tokens, positions, row_slots, kv_slots;
  uint num_tokens, blocks_row_max, block_tokens;  // block_tokens 0: there is no pool
};

void main() {
  uint t = gl_GlobalInvocationID.x;
  if (t >= num_tokens) return;
  int token = 0, position = 0, slot = -1, kv_slot = -1;
  if (t < inputs.w[kFwdNumTokens]) {
    uint record = inputs.w[kFwdRows] + inputs.w[inputs.w[kFwdTokenRows] + t] * kRecordWords;
    slot = int(inputs.w[record]);
    token = int(inputs.w[inputs.w[kFwdTokens] + t]);
    // A slot whose last draw was an error has no last token: its row is about to end.
    if (token < 0) token = max(int(rows.w[uint(slot) * kRowWords + kRowLastToken]), 0);
    uint at = inputs.w[record + 1u] + (t - inputs.w[record + 3u]);
    position = int(at);
    if (block_tokens > 0u) {
      int block = int(tables.w[uint(slot) * blocks_row_max + at / block_tokens]);
      kv_slot = block < 0 ? -1 : block * int(block_tokens) + int(at % block_tokens);
    }
  }
  tokens.i[t] = token;
  positions.i[t] = position;
  row_slots.i[t] = slot;
  kv_slots.i[t] = kv_slot;
}
