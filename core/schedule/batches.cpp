#include "core/schedule/batches.h"

namespace llmrt {
namespace {

constexpr TimeNs kMsNs = 1'000'000;

}  // namespace

void Batches::make(const Waiting& waiting, TimeNs now) {
  const uint32_t num_waiting = waiting.size();
  if (config_.batching == Batching::kContinuous || batch_.num_left > 0 || num_waiting == 0) return;
  if (config_.batching == Batching::kDynamic && num_waiting < config_.sequences_max) {
    TimeNs first_ns = now;
    for (const auto& queue : waiting.queues())
      for (const auto& [place, sequence] : queue) first_ns = std::min(first_ns, sequence->record.times.added_ns);
    if (now - first_ns < config_.batch_wait_ms * kMsNs) return;
  }
  batch_ = {.number = batch_.number + 1};
  const Sequence* last = nullptr;
  for (const auto& queue : waiting.queues()) {
    for (const auto& [place, sequence] : queue) {
      const bool is_beam_of_last = last != nullptr && last->beam.search && last->beam.search == sequence->beam.search;
      if (batch_.num_left >= config_.sequences_max && !is_beam_of_last) return;
      sequence->ticket.batch = batch_.number;
      ++batch_.num_left;
      last = sequence;
    }
  }
}

bool Batches::may_start(const Sequence& sequence) const {
  return config_.batching == Batching::kContinuous || sequence.ticket.batch == batch_.number;
}

// The last token of an answer is never computed; what is in flight behind an end is not counted.
Batches::Left Batches::leave(const Sequence& sequence) {
  const bool has_started = sequence.residency.admission > 0, is_of_batch = sequence.ticket.batch > 0;
  Left left;
  if (has_started) {
    const uint32_t known = static_cast<uint32_t>(sequence.tokens.size()) - 1;
    const uint32_t computed = sequence.runs() ? std::min(sequence.progress.computed, known) : known;
    const uint32_t prompt_tokens = std::min(computed, sequence.num_prompt);
    if (is_of_batch) batch_.add_row(prompt_tokens, computed - prompt_tokens);
    left.computed = computed;
  }
  if (is_of_batch && --batch_.num_left == 0) left.padding = batch_.padding();
  return left;
}

Status Batches::check(const Running& running, const Waiting& waiting) const {
  const auto is_of_batch = [this](const Sequence* sequence) { return sequence->ticket.batch == batch_.number; };
  size_t num_of_batch = static_cast<size_t>(std::ranges::count_if(running.rows(), is_of_batch));
  if (num_of_batch != running.size())
    return broken_books("batch {}: {} run, {} of them belong to it", batch_.number, running.size(), num_of_batch);
  for (const Waiting::Queue& queue : waiting.queues())
    for (const auto& [place, sequence] : queue) num_of_batch += is_of_batch(sequence);
  if (batch_.number > 0 && num_of_batch != batch_.num_left)
    return broken_books("batch {}: expected {} that have not ended, found {}", batch_.number, batch_.num_left,
                        num_of_batch);
  return {};
}

}  // namespace llmrt
