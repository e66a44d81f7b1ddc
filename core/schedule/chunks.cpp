#include "core/schedule/chunks.h"

#include <algorithm>

namespace llmrt {

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
  const uint32_t within = kv_.chunk_end(end, end + draft_.count_that_fits(sequence, count)) - end;
  LLMRT_CHECK(kv_.grow(sequence.residency.tables, end + within), "capacity_tokens said so");
  fairness_.charge(sequence.lane(), within);
  pace_.note_computed(within);
  draft_.take_of_chunk(sequence, within);
}

}  // namespace llmrt
