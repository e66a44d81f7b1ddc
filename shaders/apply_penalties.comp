// Copies a row of logits that asks for penalties or bias, repetition, presence and frequency penalties applied. The groups
// of x walk the row together, y = r.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "step_inputs.glsl"

layout(push_constant) uniform Push {
  Floats logits, processed;
  Words inputs, rows, counts;
  uint vocab_size;
};

void main() {
  uint r = gl_WorkGroupID.y;
  if (r >= inputs.w[kSmpNumRecords]) return;
  uint state = inputs.w[inputs.w[kSmpRecords] + r * kSampleWords] * kRowWords, flags = rows.w[state + kRowFlags];
  if ((flags & kFlagProcessed) == 0u) return;
  uint record = inputs.w[kSmpRecords] + r * kSampleWords, num_drafts = inputs.w[record + kRecordFlags] >> kSampleRunShift;
  for (uint v = gl_GlobalInvocationID.x; v < vocab_size; v += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    float l = logits.f[r * vocab_size + v];
    if ((flags & kFlagPenalties) != 0u) {
      uint seen = counts.w[rows.w[state + kRowPenaltySlot] * vocab_size + v], in_output = seen & ~kCountPrompt;
      for (uint i = 1u; i <= num_drafts; ++i)
        if (inputs.w[record - i * kSampleWords + kRecordForced] == v) ++in_output;
      float repetition = uintBitsToFloat(rows.w[state + kRowRepetition]);
      if ((seen | in_output) != 0u) l = l > 0.0 ? l / repetition : l * repetition;
      if (in_output != 0u)
        l -= uintBitsToFloat(rows.w[state + kRowPresence]) +
             uintBitsToFloat(rows.w[state + kRowFrequency]) * float(in_output);
    }
    processed.f[r * vocab_size + v] = l;
  }
}
