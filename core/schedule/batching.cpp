#include "core/schedule/batching.h"

#include "core/schedule/scheduler_impl.h"

namespace llmrt {
namespace {

constexpr TimeNs kMsNs = 1'000'000;

}  // namespace

// Where nobody of a batch is left and the next one may begin.
void Scheduler::Impl::make_batch(TimeNs now) {
  if (config.batching == Batching::kContinuous || batch.num_left > 0 || waiting.size() == 0) return;
  if (config.batching == Batching::kDynamic && waiting.size() < config.sequences_max) {
    TimeNs first_ns = now;
    for (const auto& queue : waiting.queues())
      for (const auto& [place, sequence] : queue) first_ns = std::min(first_ns, sequence->record.times.added_ns);
    if (now - first_ns < config.batch_wait_ms * kMsNs) return;
  }
  batch = {.number = batch.number + 1};
  const Sequence* last = nullptr;
  for (const auto& queue : waiting.queues()) {
    for (const auto& [place, sequence] : queue) {
      const bool is_beam_of_last = last != nullptr && last->beam.search && last->beam.search == sequence->beam.search;
      if (batch.num_left >= config.sequences_max && !is_beam_of_last) return;
      sequence->ticket.batch = batch.number;
      ++batch.num_left;
      last = sequence;
    }
  }
}

// All that run belong to the batch.
bool Scheduler::Impl::somebody_may_start() const {
  return config.batching == Batching::kContinuous || running.size() < batch.num_left;
}

bool Scheduler::Impl::may_start(const Sequence& sequence) const {
  return config.batching == Batching::kContinuous || sequence.ticket.batch == batch.number;
}

// Before its slot is given back. The last token of an answer is never computed; what is in flight behind an end is not
// counted.
void Scheduler::Impl::leave_batch(const Sequence& sequence) {
  const bool has_started = sequence.residency.admission > 0, is_of_batch = sequence.ticket.batch > 0;
  uint32_t computed = 0;
  if (has_started) {
    const uint32_t known = static_cast<uint32_t>(sequence.tokens.size()) - 1;
    computed = sequence.runs() ? std::min(sequence.progress.computed, known) : known;
    const uint32_t prompt_tokens = std::min(computed, sequence.num_prompt);
    if (is_of_batch) batch.add_row(prompt_tokens, computed - prompt_tokens);
  }
  const bool is_last = is_of_batch && --batch.num_left == 0;
  journal.note_useful(computed, is_last ? batch.padding() : 0);
}

}  // namespace llmrt
