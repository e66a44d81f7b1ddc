// How long answers have been lately: what admission reserves for one whose end nobody knows.
#pragma once

#include <cstdint>
#include <vector>

namespace llmrt {

class OutputLengths {
 public:
  // Counts an answer that ended by itself or by its max_tokens.
  void add(uint32_t num_tokens);
  // The length that 95 of 100 answers did not pass, rounded up to 16; `otherwise` before there were 100.
  uint32_t expected(uint32_t otherwise) const { return num_answers_ < kAnswersMin ? otherwise : p95_; }

 private:
  static constexpr uint32_t kAnswersMin = 100, kAnswersMax = 4096, kBucketTokens = 16;
  std::vector<uint32_t> counts_;  // by length in buckets; all halved when there are too many
  uint32_t num_answers_ = 0, num_counted_ = 0, p95_ = 0;
};

}  // namespace llmrt
