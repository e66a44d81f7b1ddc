// What is told about the scheduling: figures of each plan, times of each sequence, and the record of each branch that
// is over. No decision reads any of it.
#include <algorithm>

#include "core/schedule/scheduler_impl.h"

namespace llmrt {
namespace {

double seconds_between(TimeNs begin, TimeNs end) {
  return static_cast<double>(end - begin) * 1e-9;
}

}  // namespace

void Scheduler::Impl::note_plan(const IterationPlan& plan, TimeNs now) {
  stats.step_rows.add(static_cast<double>(plan.rows.size()));
  stats.step_tokens.add(static_cast<double>(plan.work.tokens));

  stats.table_slots = stats.table_tokens = 0;
  for (Sequence* sequence : running) {
    if (sequence->record.times.admitted_ns == 0) {
      sequence->record.times.admitted_ns = now;
      stats.queue_s.add(seconds_between(sequence->request.arrival_ns, now));
      if (sequence->branch == 0) stats.prompt_tokens_hist.add(sequence->num_prompt);
    }
    uint32_t num_blocks = 0;
    for (uint32_t g = 0; g < kv.num_groups(); ++g) {
      const auto blocks = static_cast<uint32_t>(sequence->residency.tables[g].blocks.size());
      num_blocks += blocks;
      stats.table_slots += uint64_t{blocks} * config.kv_pools[g].block_tokens;
      stats.table_tokens += sequence->progress.computed;
    }
    sequence->record.kv_blocks_peak = std::max(sequence->record.kv_blocks_peak, num_blocks);
  }
}

void Scheduler::Impl::note_first_token(const Sequence& sequence, TimeNs now) {
  const TimeNs wait_ns = now - sequence.request.arrival_ns;
  stats.ttft_s.add(static_cast<double>(wait_ns) * 1e-9);
  const TimeNs first_ns = sequence.record.times.first_token_ns;  // of a beam, which is told at the end
  stats.prefill_s.add(seconds_between(sequence.record.times.admitted_ns, first_ns != 0 ? first_ns : now));
  stats.num_ttft_late += static_cast<double>(wait_ns) * 1e-6 > config.slo.ttft_ms;
}

void Scheduler::Impl::note_token(Sequence& sequence, TimeNs now) {
  if (sequence.record.times.first_token_ns == 0) {
    note_first_token(sequence, now);
    ++stats.num_answering;
  } else {
    stats.itl_s.add(seconds_between(sequence.record.times.last_token_ns, now));
  }
  sequence.record.times.add_token(now);
}

void Scheduler::Impl::note_end(Sequence& sequence, FinishReason finish, TimeNs now) {
  sequence.record.times.ended_ns = now;
  sequence.record.finish = finish;
  if (!sequence.beam.search) sequence.record.num_answered = sequence.num_known() - sequence.num_prompt;
  stats.in_system.depart(sequence.record.times.added_ns, now);
  if (!sequence.beam.search && sequence.record.times.first_token_ns != 0) --stats.num_answering;
  if (sequence.record.times.first_token_ns != 0)
    stats.decode_s.add(seconds_between(sequence.record.times.first_token_ns, sequence.record.times.last_token_ns));
  if (sequence.record.num_answered > 0) stats.answer_tokens_hist.add(sequence.record.num_answered);
  if (const auto tpot_ms = sequence.record.times.tpot_ms()) {
    stats.tpot_s.add(*tpot_ms * 1e-3);
    stats.num_tpot_late += *tpot_ms > config.slo.tpot_ms;
  }
}

void Scheduler::Impl::trace(const Sequence& sequence) {
  const Request& request = sequence.request;
  RequestTrace record{.id = request.id,
                      .name = request.name,
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
  traces.push_back(std::move(record));
}

}  // namespace llmrt
