// For rows whose record asks: the log-softmax of the raw logits of the row's token, into its result, and of its best
// kLogprobsMax tokens, best first, ties by lower id. One workgroup of up to 512 a row, two passes over the row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "reduce.glsl"
#include "logits_row.glsl"
#include "row_best.glsl"

void main() {
  uint row = gl_WorkGroupID.x, me = gl_LocalInvocationID.x;
  if (row >= inputs.w[kSmpNumRecords]) return;
  if ((inputs.w[inputs.w[kSmpRecords] + row * kSampleWords + kRecordFlags] & kSampleLogprobs) == 0u) return;
  row_first = row * vocab_size;
  row_words = logits;
  row_scale = 1.0;
  Overview all = overview(true, false);
  bool good = all.key > kMasked && all.key < kInfinite;
  uint count = 0u;
  float log_sum = 0.0;  // beside row_best: subtracted one after the other, large logits keep their digits
  if (good) {
    count = min(collect_best(kLogprobsMax, kMasked, all.stripes), kLogprobsMax);
    log_sum = log(all.sum);
    uint token = results.w[row * kResultWords];
    if (me == 0u && token < vocab_size)
      results.w[row * kResultWords + 2u] = floatBitsToUint(uintBitsToFloat(logits.w[row_first + token]) - row_best - log_sum);
  }
  uint first = sample_rows_max * kResultWords + row * kLogprobWords;
  for (uint i = me; i < kLogprobsMax; i += gl_WorkGroupSize.x) {
    results.w[first + 2u * i] = i < count ? pool[kPoolMax + i] : 0xffffffffu;
    results.w[first + 2u * i + 1u] = i < count ? floatBitsToUint(number_of(pool[i]) - row_best - log_sum) : 0u;
  }
}
