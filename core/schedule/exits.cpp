#include "core/schedule/exits.h"

#include <algorithm>

namespace llmrt {
namespace {

// The answer is as long as it was to be.
bool is_whole(FinishReason finish) {
  return finish == FinishReason::kEos || finish == FinishReason::kStopToken || finish == FinishReason::kStopString ||
         finish == FinishReason::kLength;
}

}  // namespace

bool is_spoilt(const std::optional<Error>& error) {
  return error && (error->code == ErrorCode::kNotFinite || error->code == ErrorCode::kInternal);
}

void Exits::end(Sequence& sequence, RequestState state, TokenEvent event, FinishReason finish, TimeNs now) {
  if (is_whole(finish)) parts_.reservations.learn(sequence.request, sequence.num_known() - sequence.num_prompt);
  const Batches::Left left = parts_.batches.leave(sequence);
  parts_.journal.note_useful(left.computed, left.padding);
  if (sequence.runs()) {
    const uint32_t reserved = sequence.residency.reserved_tokens;
    parts_.journal.note_unused_reservation(reserved - std::min(reserved, sequence.progress.computed));
    const bool forget = is_spoilt(event.error) || parts_.config.prefix_cache == PrefixCacheKind::kOff;
    is_broken_ ? parts_.running.abandon(sequence) : parts_.yields.stop(sequence, forget);
  } else if (sequence.waits()) {
    parts_.waiting.remove(sequence);
  }
  if (parts_.config.adapters != nullptr && sequence.request.adapter_id != 0)
    parts_.config.adapters->forget(sequence.request.id);
  parts_.timeouts.erase(sequence);
  sequence.move_to(state);

  event.finish = finish;
  parts_.journal.tell(sequence, std::move(event), now);
  parts_.journal.note_end(sequence, finish, now);

  if (is_terminal(state)) {
    parts_.journal.trace(sequence);
    parts_.branches.erase(sequence);
  } else {
    parts_.branches.keep_streaming();
    sequence.release_memory();
  }
}

void Exits::end_all(Sequence& sequence, RequestState state, const TokenEvent& event, FinishReason finish, TimeNs now) {
  if (!sequence.beam.search) {
    end(sequence, state, event, finish, now);
    return;
  }
  for (Sequence* beam : parts_.branches.of_same(sequence)) end(*beam, state, event, finish, now);
}

void Exits::end_exhausted(Sequence& sequence, uint32_t positions, TimeNs now) {
  const KvSpace& kv = parts_.kv;
  LLMRT_CHECK(!kv.can_hold(positions), "a sequence that the pools hold finds its blocks");
  uint32_t g = 0;
  while (kv.blocks_for(g, positions) <= kv.num_blocks(g)) ++g;
  Error error = make_error(ErrorCode::kPoolExhausted,
                           "pool exhausted: request {} alone: {} tokens need {} KV blocks of {}, the pool has {}",
                           sequence.request.id, positions, kv.blocks_for(g, positions),
                           parts_.config.kv_pools[g].block_tokens, kv.num_blocks(g));
  parts_.journal.note_pool_exhausted();
  end_all(sequence, RequestState::kStreaming, {{.error = std::move(error)}}, FinishReason::kError, now);
}

void Exits::reject(const Sequence& sequence, const Error& error, TimeNs now) {
  parts_.journal.note_rejected();
  for (Sequence* branch : parts_.branches.of_same(sequence))
    end(*branch, RequestState::kRejected, {{.error = error}}, FinishReason::kError, now);
}

void Exits::refuse(Sequence& sequence, const Error& error, TimeNs now) {
  const bool never_ran = sequence.state() == RequestState::kQueued;
  end_all(sequence, never_ran ? RequestState::kRejected : RequestState::kStreaming, {{.error = error}},
          FinishReason::kError, now);
}

void Exits::expire(TimeNs now) {
  while (const std::optional<RequestId> id = parts_.timeouts.due(now)) {
    Sequence& sequence = *parts_.branches.find(*id);
    end(sequence, RequestState::kCancelled, {{.error = timed_out(sequence, now)}}, FinishReason::kTimeout, now);
  }
}

void Exits::fail_all(const Error& error, TimeNs now) {
  is_broken_ = error.code == ErrorCode::kInternal;
  std::vector<Sequence*> all(parts_.running.rows().begin(), parts_.running.rows().end());
  for (const Waiting::Queue& queue : parts_.waiting.queues())
    for (const auto& [place, sequence] : queue) all.push_back(sequence);
  for (Sequence* sequence : all) {
    const bool never_ran = sequence->state() == RequestState::kQueued;
    end(*sequence, never_ran ? RequestState::kRejected : RequestState::kStreaming, {{.error = error}},
        FinishReason::kError, now);
  }
}

void Exits::let_go(Sequence& sequence, RequestState state, const SentTimes& sent) {
  sequence.move_to(state);
  sequence.record.times.sent = sent;
  parts_.journal.trace(sequence);
  parts_.branches.drop_streaming(sequence);
}

}  // namespace llmrt
