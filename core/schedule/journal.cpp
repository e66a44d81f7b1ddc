#include "core/schedule/journal.h"

#include <algorithm>

namespace llmrt {
namespace {

StateStats state_stats(const KvSpace& kv) {
  StateStats states;
  for (uint32_t g = 0; g < kv.num_groups(); ++g) {
    if (!kv.is_state(g)) continue;
    const CheckpointCounts counts = kv.checkpoint_counts(g);
    states.records_total += kv.num_blocks(g);
    states.records_used += kv.num_blocks(g) - kv.num_free(g);
    states.checkpoints += kv.num_cached(g);
    states.num_kept += counts.num_kept;
    states.num_evicted += counts.num_evicted;
    states.num_hits += counts.num_hits;
  }
  return states;
}

double seconds_between(TimeNs begin, TimeNs end) {
  return static_cast<double>(end - begin) * 1e-9;
}

}  // namespace

void Journal::note_arrival(Sequence& sequence, TimeNs now) {
  sequence.record.times.added_ns = now;
  stats_.in_system.arrive(now);
  if (AdapterUse* use = sequence.request.adapter_use.get()) {
    ++use->num_in_system;
    if (sequence.branch == 0) ++use->counts->num_requests;
  }
}

void Journal::note_start(const Sequence& sequence, bool has_cache, uint64_t host_tokens, uint64_t disk_tokens) {
  stats_.prompt_tokens += sequence.num_prompt;
  if (AdapterUse* use = sequence.request.adapter_use.get()) use->counts->prompt_tokens += sequence.num_prompt;
  if (has_cache) stats_.prefix_queries += sequence.num_prompt;
  stats_.prefix_hits += sequence.record.cached_tokens;
  stats_.prefix_host_hits += host_tokens - disk_tokens;
  stats_.prefix_disk_hits += disk_tokens;
}

void Journal::note_plan(const IterationPlan& plan, std::span<Sequence* const> running,
                        std::span<const KvPoolSize> pools, TimeNs now) {
  stats_.step_rows.add(static_cast<double>(plan.rows.size()));
  stats_.step_tokens.add(static_cast<double>(plan.work.tokens));
  stats_.blocks_stored += plan.block_stores.size();
  stats_.blocks_loaded += plan.block_loads.size();

  stats_.table_slots = stats_.table_tokens = 0;
  for (Sequence* sequence : running) {
    BranchRecord& record = sequence->record;
    if (record.times.admitted_ns == 0) {
      record.times.admitted_ns = now;
      if (!record.goes_on) stats_.queue_s.add(seconds_between(sequence->request.arrival_ns, now));
      if (sequence->branch == 0) stats_.prompt_tokens_hist.add(sequence->num_prompt);
    }
    uint32_t num_blocks = 0;
    for (size_t g = 0; g < pools.size(); ++g) {
      const auto blocks = static_cast<uint32_t>(sequence->residency.tables[g].blocks.size());
      num_blocks += blocks;
      stats_.table_slots += uint64_t{blocks} * pools[g].block_tokens;
      stats_.table_tokens += sequence->progress.computed;
    }
    record.kv_blocks_peak = std::max(record.kv_blocks_peak, num_blocks);
  }
}

void Journal::note_preemption(const Preemption& preemption, bool outgrew_reservation) {
  preemptions_.push_back(preemption);
  ++stats_.num_preemptions;
  stats_.num_outgrown += outgrew_reservation;
  stats_.num_swaps += preemption.swapped;
}

void Journal::note_first_token(const Sequence& sequence, TimeNs now) {
  if (sequence.record.goes_on) return;
  const TimeNs wait_ns = now - sequence.request.arrival_ns;
  stats_.ttft_s.add(static_cast<double>(wait_ns) * 1e-9);
  const TimeNs first_ns = sequence.record.times.first_token_ns;  // of a beam, which is told at the end
  stats_.prefill_s.add(seconds_between(sequence.record.times.admitted_ns, first_ns != 0 ? first_ns : now));
  stats_.num_ttft_late += static_cast<double>(wait_ns) * 1e-6 > slo_.ttft_ms;
}

void Journal::note_token(Sequence& sequence, TimeNs now) {
  ++stats_.generated_tokens;
  if (AdapterUse* use = sequence.request.adapter_use.get()) ++use->counts->generated_tokens;
  if (sequence.record.times.first_token_ns == 0) {
    note_first_token(sequence, now);
    ++stats_.num_answering;
  } else {
    stats_.itl_s.add(seconds_between(sequence.record.times.last_token_ns, now));
  }
  sequence.record.times.add_token(now);
}

void Journal::note_answer(Sequence& beam, uint32_t num_tokens, TimeNs now) {
  stats_.generated_tokens += num_tokens;
  if (AdapterUse* use = beam.request.adapter_use.get()) use->counts->generated_tokens += num_tokens;
  beam.record.num_answered = num_tokens;
  note_first_token(beam, now);
}

void Journal::note_end(Sequence& sequence, FinishReason finish, TimeNs now) {
  sequence.record.times.ended_ns = now;
  sequence.record.finish = finish;
  if (!sequence.beam.search) sequence.record.num_answered = sequence.num_known() - sequence.num_prompt;
  ++stats_.finished[static_cast<size_t>(finish)];
  stats_.e2e_s.add(seconds_between(sequence.request.arrival_ns, now));
  stats_.in_system.depart(sequence.record.times.added_ns, now);
  if (AdapterUse* use = sequence.request.adapter_use.get()) --use->num_in_system;
  if (!sequence.beam.search && sequence.record.times.first_token_ns != 0) --stats_.num_answering;
  if (sequence.record.times.first_token_ns != 0)
    stats_.decode_s.add(seconds_between(sequence.record.times.first_token_ns, sequence.record.times.last_token_ns));
  if (sequence.record.num_answered > 0) stats_.answer_tokens_hist.add(sequence.record.num_answered);
  if (const auto tpot_ms = sequence.record.times.tpot_ms()) {
    stats_.tpot_s.add(*tpot_ms * 1e-3);
    stats_.num_tpot_late += *tpot_ms > slo_.tpot_ms;
  }
}

void Journal::trace(const Sequence& sequence) {
  const Request& request = sequence.request;
  RequestTrace record{.id = request.id,
                      .names = request.names,
                      .branch = sequence.branch,
                      .adapter_id = request.adapter_id,
                      .request_class = request.request_class,
                      .prompt_tokens = sequence.num_prompt,
                      .cached_tokens = sequence.record.cached_tokens,
                      .output_tokens = sequence.record.num_answered,
                      .reserved_kv_tokens = sequence.residency.reserved_tokens,
                      .kv_blocks_peak = sequence.record.kv_blocks_peak,
                      .num_preemptions = sequence.record.num_preemptions,
                      .finish = sequence.record.finish};
  record.set_times(request.arrival_ns, sequence.record.times);
  traces_.push_back(std::move(record));
}

void Journal::tell(const Sequence& sequence, TokenEvent event, TimeNs now) {
  event.request_id = sequence.request.id;
  event.branch = sequence.branch;
  event.cached_tokens = sequence.record.cached_tokens;
  event.time_ns = now;
  events_.push_back(std::move(event));
}

void Journal::take_events(std::vector<TokenEvent>* out) {
  if (out->empty()) {
    out->swap(events_);
    return;
  }
  for (TokenEvent& event : events_) out->push_back(std::move(event));
  events_.clear();
}

void Journal::take_preemptions(std::vector<Preemption>* out) {
  out->insert(out->end(), preemptions_.begin(), preemptions_.end());
  preemptions_.clear();
}

void Journal::take_traces(std::vector<RequestTrace>* out) {
  for (RequestTrace& trace : traces_) out->push_back(std::move(trace));
  traces_.clear();
}

const EngineStats& Journal::stats(const BranchCounts& counts, const KvSpace& kv) {
  if (counts.num_running == 0) stats_.table_slots = stats_.table_tokens = 0;
  stats_.num_running = counts.num_running;
  stats_.num_waiting = counts.num_waiting;
  stats_.num_streaming = counts.num_streaming;
  stats_.queue_tokens = counts.queue_tokens;
  stats_.drafts = counts.drafts;
  stats_.blocks_total = stats_.blocks_free = stats_.blocks_cached = 0;
  stats_.kv_groups.resize(kv.num_groups());
  for (uint32_t g = 0; g < kv.num_groups(); ++g) {
    stats_.kv_groups[g] = {kv.window(g), kv.num_blocks(g), kv.num_free(g), kv.num_held_most(g)};
    stats_.blocks_total += kv.num_blocks(g);
    stats_.blocks_free += kv.num_free(g);
    stats_.blocks_cached += kv.num_cached(g);
  }
  stats_.states = state_stats(kv);
  if (const HostTier* host = kv.host()) {
    stats_.host_blocks_total = host->num_blocks();
    stats_.host_blocks_used = host->num_used();
  }
  return stats_;
}

}  // namespace llmrt
