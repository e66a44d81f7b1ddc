#include "core/schedule/starts.h"

namespace llmrt {

void Starts::start(Sequence& sequence, const PrefixMatch& match, std::span<Sequence* const> passed_over, TimeNs now) {
  const bool is_first = sequence.state() == RequestState::kQueued;
  stop_waiting(sequence, passed_over);
  parts_.running.admit(sequence, now);
  sequence.residency.reserved_tokens = parts_.reservations.positions(sequence);
  if (is_first) {
    // All that it will ever hold, so that nothing is allocated while it runs.
    sequence.residency.tables = parts_.kv.make_tables(sequence.positions_max());
    sequence.tokens.reserve(size_t{sequence.num_prompt} + sequence.request.max_tokens);
    if (sequence.request.max_tokens > 1) sequence.record.times.inter_token = std::make_unique<LatencySketch>();
  }
  if (is_first && sequence.branch == 0) {
    sequence.record.cached_tokens = sequence.progress.computed;
    parts_.pace.note_spared(sequence.record.cached_tokens);
    parts_.journal.note_start(sequence, parts_.config.prefix_cache != PrefixCacheKind::kOff,
                              uint64_t{parts_.kv.block_tokens()} * match.host_blocks.size(),
                              uint64_t{parts_.kv.block_tokens()} * parts_.kv.num_from_disk(match));
  }
  parts_.prefixes.take_over(sequence, match);
}

void Starts::stop_waiting(Sequence& sequence, std::span<Sequence* const> passed_over) {
  parts_.start_order.count_overtaken(sequence, passed_over);
  parts_.waiting.remove(sequence);
  sequence.move_to(RequestState::kPrefilling);
  if (!sequence.beam.search) {
    parts_.timeouts.set(sequence);
    return;
  }
  for (Sequence* beam : parts_.branches.of_same(sequence)) {
    beam->request.start_by_ns = 0;  // they start together
    parts_.timeouts.set(*beam);
  }
}

}  // namespace llmrt
