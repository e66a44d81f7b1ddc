// For rows whose record asks: the log-softmax of the raw logits of the row's token, into its result, and of its best
// kLogprobsMax tokens, best first, ties by lower id; of the tokens that Filter kept, where the record asks for that. One
// workgroup of up to 512 a row, two passes over the row (and one more for that).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "reduce.glsl"
#include "logits_row.glsl"
#include "row_best.glsl"

void main() {
  uint row = gl_WorkGroupID.x, me = gl_LocalInvocationID.x;
  if (row >= inputs.w[kSmpNumRecords]) return;
  uint record = inputs.w[kSmpRecords] + row * kSampleWords, flags = inputs.w[record + kRecordFlags];
  if ((flags & kSampleLogprobs) == 0u) return;
  bool of_kept = (flags & kSampleProcessed) != 0u;
  set_row(logits, row);
  row_scale = 1.0;
  // A logprob is (logit - best) / temperature - log_sum: one after the other, large logits keep their digits.
  float temperature = 1.0, best = 0.0, log_sum = 0.0;
  uint wanted = kLogprobsMax, least = kMasked;
  bool good = true;
  Overview all;
  [[dont_unroll]] for (uint pass = 0u; pass < (of_kept ? 2u : 1u); ++pass) {
    all = overview(0u, num_quads(), true, false, false);
    if (pass == 1u) break;
    good = all.key > kMasked && all.key < kInfinite;
    best = row_best;
    log_sum = log(all.sum);
    uint token = results.w[row * kResultWords];
    // Filter has told what is broken, unless the row's mask denies it.
    if (!good && me == 0u && results.w[row * kResultWords + 1u] == 0u) {
      results.w[row * kResultWords] = 0xffffffffu;
      results.w[row * kResultWords + 1u] = kResultNotFinite;
    }
    if (good && me == 0u && token < vocab_size)
      results.w[row * kResultWords + 2u] = floatBitsToUint(uintBitsToFloat(logits.w[row_first + token]) - best - log_sum);
    if (!of_kept || !good) break;
    uint state = inputs.w[record + kRecordSlot] * kRowWords, first = row * kKeptWords;
    if ((rows.w[state + kRowFlags] & kFlagProcessed) != 0u) row_words = processed;
    set_mask(record);
    temperature = uintBitsToFloat(rows.w[state + kRowTemperature]);
    good = kept.w[first + kKeptFlags] == 0u;
    least = kMasked + 1u;
    wanted = min(kLogprobsMax, kept.w[first + kKeptSupport]);
    best = uintBitsToFloat(kept.w[first + kKeptMax]);
    log_sum = uintBitsToFloat(kept.w[first + kKeptLogSum]);
  }
  uint count = good ? min(collect_best(kLogprobsMax, least, all.stripes), wanted) : 0u;
  uint first = sample_rows_max * kResultWords + row * kLogprobWords;
  for (uint i = me; i < kLogprobsMax; i += gl_WorkGroupSize.x) {
    float logprob = 0.0;
    if (i < count && temperature > 0.0) logprob = (number_of(pool[i]) - best) / temperature - log_sum;
    results.w[first + 2u * i] = i < count ? token_at(pool[kPoolMax + i]) : 0xffffffffu;
    results.w[first + 2u * i + 1u] = floatBitsToUint(logprob);
  }
}
