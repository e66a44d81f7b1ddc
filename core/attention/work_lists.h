// The rows of a step become the work lists of attention over one KV group: prompt items, decode items, and what merges
// their partial results.
#pragma once

#include <span>
#include <vector>

#include "core/attention/decode_splits.h"
#include "core/attention/prompt_splits.h"

namespace llmrt {

class WorkLists {
 public:
  explicit WorkLists(const AttentionTuning& tuning) : tuning_(tuning), prompt_splitter_(tuning) {}

  // Partial results of one step and group that there is room for.
  void set_partials_max(uint32_t partials_max) { partials_max_ = partials_max; }

  // Replaces `work`. Where the partial results would not fit, all splits are made longer, by the least power of two.
  // Batch-invariant: every token's keys are cut by its position alone, and all rows go to the decode kernel.
  void make(std::span<const RowRecord> rows, const AttentionGroup& group, bool batch_invariant, AttentionWork* work);

 private:
  void add_items(const RowRecord& row, uint32_t stretch, PromptSplits* prompt, DecodeSplits* decode);
  void add_prompt_items(const RowRecord& row, uint32_t stretch, PromptSplits* prompt);
  uint32_t invariant_run(const RowRecord& row, uint32_t i) const;
  void add_decode_items(const RowRecord& row, uint32_t i, uint32_t count, uint32_t begin, uint32_t length);

  const AttentionTuning tuning_;
  uint32_t partials_max_ = ~0u;
  PromptSplitter prompt_splitter_;
  const AttentionGroup* group_ = nullptr;  // at work
  AttentionWork* work_ = nullptr;
  uint32_t item_tokens_ = 1;          // of decode items, at most
  std::vector<uint32_t> split_ends_;  // of the prompt item at work
};

// Partial results of a step that decodes rows of at most `context_max` tokens which hold at most `kv_tokens_max` tokens
// together.
uint32_t decode_partials_max(uint32_t step_tokens_max, uint32_t rows_max, uint32_t context_max, uint64_t kv_tokens_max);
// Packed words of a group's lists, without headers.
uint64_t work_words_max(uint32_t step_tokens_max, uint32_t rows_max, uint32_t partials_max);

}  // namespace llmrt
