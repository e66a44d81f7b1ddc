#include "core/schedule/output_lengths.h"

#include "core/base/checked_math.h"

namespace llmrt {

void OutputLengths::add(uint32_t num_tokens) {
  const uint32_t bucket = ceil_div(num_tokens, kBucketTokens);
  if (bucket >= counts_.size()) counts_.resize(bucket + 1);
  ++counts_[bucket];
  ++num_counted_;
  if (num_answers_ < kAnswersMin) ++num_answers_;
  if (num_counted_ > kAnswersMax) {
    num_counted_ = 0;
    for (uint32_t& count : counts_) num_counted_ += count /= 2;
  }
  uint32_t seen = 0, i = 0;
  while (uint64_t{100} * (seen += counts_[i]) < uint64_t{95} * num_counted_) ++i;
  p95_ = i * kBucketTokens;
}

}  // namespace llmrt
