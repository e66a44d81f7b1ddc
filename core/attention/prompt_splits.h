// How the prompt items of a step are cut along their keys. An item's time grows with its keys, and few items leave a
// part of a large device idle.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "core/attention/attention_group.h"
#include "core/attention/tuning.h"
#include "core/ops/step_inputs.h"

namespace llmrt {

// The first `items` prompt items of the step have so many splits each, or, where run_keys > 0, are cut as if they lay
// end to end and each workgroup had a run of so many keys, of which the one at work lacks run_left.
struct PromptSplits {
  uint32_t items = 0, splits = 1;
  uint32_t run_keys = 0, run_left = 0;

  // Cuts the keys [begin, end) of the step's next item, which has `num_tokens` tokens. `stretch`: how many of the usual
  // splits one split holds.
  void cut(uint32_t begin, uint32_t end, uint32_t num_tokens, uint32_t stretch, std::vector<uint32_t>* ends);
};

class PromptSplitter {
 public:
  explicit PromptSplitter(const AttentionTuning& tuning) : tuning_(tuning) {}

  // Items that fill rounds of the device stay whole; the rest, which would leave a part of the last round idle, is cut
  // into as many splits as are best, or into runs of equal length where that is faster.
  PromptSplits choose(std::span<const RowRecord> rows, const AttentionGroup& group);

 private:
  // An item and its share of a whole one's time a key.
  struct RunItem {
    uint32_t begin, end;
    bool fills;
    double share;
  };
  void collect_items(std::span<const RowRecord> rows, const AttentionGroup& group, uint32_t num_items);
  void try_runs(const AttentionGroup& group, double least, PromptSplits* best);
  double time_of_runs(const AttentionGroup& group, uint32_t run_keys);

  const AttentionTuning tuning_;
  std::vector<RunItem> items_;
  std::vector<std::pair<uint32_t, double>> splits_;  // keys and time of each
  std::vector<double> ends_;                         // when workgroups end
};

// Prompt items of the group that are computed at a time.
uint32_t round_items(const AttentionTuning& tuning, const AttentionGroup& group);

}  // namespace llmrt
