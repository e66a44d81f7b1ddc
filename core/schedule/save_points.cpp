#include "core/schedule/save_points.h"

#include <algorithm>

#include "core/base/checked_math.h"

namespace llmrt {

SavePoints::SavePoints(uint32_t place_tokens, uint32_t interval)
    : place_tokens_(place_tokens), interval_(place_tokens == 0 ? 0 : round_up(std::max(1u, interval), place_tokens)) {}

// The last token of a prompt is computed by everyone.
uint32_t SavePoints::next_in_prompt(const Sequence& sequence, uint32_t begin) const {
  if (place_tokens_ == 0) return 0;
  const uint32_t in_prompt = sequence.num_prompt - 1, last = in_prompt - in_prompt % place_tokens_;
  uint32_t next = begin < last ? last : 0;
  if (const uint32_t split = sequence.found.split; split > begin && (next == 0 || split < next)) next = split;
  const uint64_t at_interval = uint64_t{begin} - begin % interval_ + interval_;
  return at_interval < next ? static_cast<uint32_t>(at_interval) : next;
}

CheckpointKind SavePoints::kind_in_prompt(const Sequence& sequence, uint32_t at) const {
  if (at == sequence.found.split && sequence.found.is_split_shared) return CheckpointKind::kShared;
  return sequence.num_prompt - at <= place_tokens_ ? CheckpointKind::kPrompt : CheckpointKind::kPassage;
}

void SavePoints::find(const Sequence& sequence, uint32_t begin, uint32_t end, std::vector<Point>* points) const {
  points->clear();
  if (place_tokens_ == 0 || end / place_tokens_ == begin / place_tokens_) return;
  for (uint32_t at = next_in_prompt(sequence, begin); at != 0 && at <= end; at = next_in_prompt(sequence, at))
    points->push_back({at, kind_in_prompt(sequence, at)});
  const uint32_t last = end - end % place_tokens_;
  if (last >= sequence.num_prompt && last > begin && (points->empty() || points->back().position < last))
    points->push_back({last, CheckpointKind::kAnswer});
}

}  // namespace llmrt
