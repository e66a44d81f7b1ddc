#include "core/schedule/chunks.h"

#include <algorithm>

namespace llmrt {

// Ending where a checkpoint may stand, what yields there leaves its state as one. A prompt's end comes at once.
uint32_t Chunks::up_to_place(uint32_t begin, uint32_t count) const {
  const uint32_t place_tokens = kv_.place_tokens();
  const uint32_t beyond = place_tokens == 0 ? 0 : (begin + count) % place_tokens;
  return beyond < count ? count - beyond : count;
}

// Admission has promised the blocks; rows that decode beyond their reservation may have taken them for a while, then
// the row waits for those to end or to yield.
void Chunks::take(Sequence& sequence) {
  const uint32_t taken = sequence.take.tokens;
  const uint32_t end = sequence.progress.computed + taken;
  const uint32_t capacity = kv_.capacity_tokens(sequence.residency.tables);
  const uint32_t room = capacity > end ? capacity - end : 0;
  const uint32_t rest = sequence.gap() - taken, chunk = draft_.chunk_tokens();
  const bool ends = pace_.ends_prompt(sequence.lane(), rest, chunk, draft_.tokens_left(), running_.has_patient_rows());
  const uint32_t count = std::min(ends ? rest : std::min(rest, chunk), room);
  if (count == 0) return;
  const uint32_t fits = draft_.count_that_fits(sequence, count);
  const uint32_t within = fits == rest ? fits : up_to_place(end, fits);
  LLMRT_CHECK(kv_.grow(sequence.residency.tables, end + within), "capacity_tokens said so");
  fairness_.charge(sequence.lane(), within);
  pace_.note_computed(within);
  draft_.take_of_chunk(sequence, within);
}

}  // namespace llmrt
