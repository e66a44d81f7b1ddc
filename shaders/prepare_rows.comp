// Tokens, positions, row slots and KV places of the step's T tokens, from row records and row state; places in the pool of
// each KV group. One invocation a token; padding tokens get token 0, position 0, slot -1, place -1.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "step_inputs.glsl"

layout(push_constant) uniform Push {
  Words inputs, rows, tables;  // tables: [group][slots_max][blocks_row_max]
  Ints tokens, positions, row_slots;
  Ints kv_slots[kKvGroupsMax];
  uint block_tokens[kKvGroupsMax];  // 0: no pool
  uint num_tokens, blocks_row_max, group_words;  // group_words: of the tables of one group
  uint wanted_groups;  // bit g: kv_slots[g] is there
};

void main() {
  uint t = gl_GlobalInvocationID.x;
  if (t >= num_tokens) return;
  int token = 0, position = 0, slot = -1;
  if (t < inputs.w[kFwdNumTokens]) {
    uint record = inputs.w[kFwdRows] + inputs.w[inputs.w[kFwdTokenRows] + t] * kRecordWords;
    slot = int(inputs.w[record]);
    token = int(inputs.w[inputs.w[kFwdTokens] + t]);
    // A slot whose last draw was an error has no last token: its row is about to end.
    if (token < 0) token = max(int(rows.w[uint(slot) * kRowWords + kRowLastToken]), 0);
    position = int(inputs.w[record + 1u] + (t - inputs.w[record + 3u]));
  }
  for (uint group = 0u; wanted_groups >> group > 0u; ++group) {
    if ((wanted_groups >> group & 1u) == 0u) continue;
    int kv_slot = -1;
    if (slot >= 0 && block_tokens[group] > 0u) {
      uint at = uint(position), tokens_block = block_tokens[group];
      int block = int(tables.w[group * group_words + uint(slot) * blocks_row_max + at / tokens_block]);
      kv_slot = block < 0 ? -1 : block * int(tokens_block) + int(at % tokens_block);
    }
    kv_slots[group].i[t] = kv_slot;
  }
  tokens.i[t] = token;
  positions.i[t] = position;
  row_slots.i[t] = slot;
}
