// The step's RowUpdate commands, in order: one workgroup, a barrier between commands, payloads copied side by side.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "step_inputs.glsl"

layout(push_constant) uniform Push {
  Words inputs, rows, tables, counts;  // tables: [num_kv_groups][slots_max][blocks_row_max]
  uint blocks_row_max, vocab_size, num_kv_groups, group_words;  // group_words: of the tables of one group
};

// What a row parameter is before anything is set; twin: RowSampling's defaults.
uint default_word(uint i) {
  if (i == kRowTemperature || i == kRowTopP || i == kRowRepetition) return 0x3f800000u;
  return i == kRowPenaltySlot || i >= kRowLastToken ? 0xffffffffu : 0u;
}

void run(uint command) {
  uint kind = inputs.w[command], slot = inputs.w[command + 1u], arg0 = inputs.w[command + 2u];
  uint arg1 = inputs.w[command + 3u], payload = inputs.w[kFwdPayload] + inputs.w[command + 4u];
  uint payload_words = inputs.w[command + 5u];
  uint row = slot * kRowWords, table = slot * blocks_row_max;
  uint first = gl_LocalInvocationID.x, step = gl_WorkGroupSize.x;
  if (kind == kUpdateSet) {
    for (uint i = first; i < kRowWords; i += step)
      rows.w[row + i] = i < kRowLastToken ? inputs.w[payload + i] : 0xffffffffu;
  } else if (kind == kUpdatePatchTable) {
    if (arg1 >= num_kv_groups) return;
    for (uint i = first; i < payload_words; i += step)
      tables.w[arg1 * group_words + table + arg0 + i] = inputs.w[payload + i];
  } else if (kind == kUpdateCopySlot) {
    for (uint i = first; i < kRowWords; i += step) rows.w[row + i] = rows.w[arg0 * kRowWords + i];
    for (uint group = 0u; group < num_kv_groups; ++group)
      for (uint i = first; i < blocks_row_max; i += step)
        tables.w[group * group_words + table + i] = tables.w[group * group_words + arg0 * blocks_row_max + i];
  } else if (kind == kUpdateRecount) {
    for (uint i = first; i < vocab_size; i += step) counts.w[arg0 * vocab_size + i] = 0u;
    memoryBarrierBuffer();
    barrier();
    for (uint i = first; i < payload_words; i += step) {
      uint idx = arg0 * vocab_size + inputs.w[payload + i];
      if (i < arg1)
        atomicOr(counts.w[idx], kCountPrompt);
      else
        atomicAdd(counts.w[idx], 1u);
    }
  } else if (kind == kUpdateCount) {
    for (uint i = first; i < payload_words; i += step)
      atomicAdd(counts.w[arg0 * vocab_size + inputs.w[payload + i]], 1u);
  } else {
    for (uint i = first; i < kRowWords; i += step) rows.w[row + i] = default_word(i);
    for (uint group = 0u; group < num_kv_groups; ++group)
      for (uint i = first; i < blocks_row_max; i += step) tables.w[group * group_words + table + i] = 0xffffffffu;
  }
}

void main() {
  uint num_updates = inputs.w[kFwdNumUpdates], first = inputs.w[kFwdUpdates];
  for (uint u = 0; u < num_updates; ++u) {
    run(first + u * kUpdateWords);
    memoryBarrierBuffer();
    barrier();
  }
}
