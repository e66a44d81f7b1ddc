#include "core/schedule/arrivals.h"

#include <algorithm>

namespace llmrt {

Status Arrivals::check(const Request& request) const {
  const SchedulerConfig& config = parts_.config;
  const uint64_t num_prompt = request.prompt.size();
  if (num_prompt + request.max_tokens > config.context_max) {
    return make_error(ErrorCode::kContextLength, "context length: expected at most {} tokens, found {} prompt + {} new",
                      config.context_max, num_prompt, request.max_tokens);
  }
  if (request.sampling.has_penalties() && config.penalty_rows_max == 0) {
    return make_error(ErrorCode::kUnsupported, "penalties: this engine keeps no token counts (penalty rows: 0)");
  }
  if (request.beam && request.n + ends_of(request).size() > kBeamCandidatesMax) {
    return make_error(ErrorCode::kUnsupported, "use_beam_search: expected at most {} beams, found {}",
                      kBeamCandidatesMax - ends_of(request).size(), request.n);
  }
  // What was learnt since changes when it starts, not whether it ever can.
  const uint32_t output = reserves_all(config.on_exhaustion)
                              ? request.max_tokens
                              : std::min(request.max_tokens, config.reserve_output_tokens);
  const uint32_t positions =
      static_cast<uint32_t>(std::min(num_prompt + request.begun.size() + output, num_prompt + request.max_tokens - 1));
  const KvSpace& kv = parts_.kv;
  for (uint32_t g = 0; g < kv.num_groups(); ++g) {
    const uint32_t blocks = kv.blocks_for(g, positions);
    if (blocks <= kv.num_blocks(g)) continue;
    return make_error(
        ErrorCode::kNeverFits,
        "never fits: {} prompt tokens with an expected output of {} need {} KV blocks of {}, the pool has {}",
        num_prompt, output, blocks, config.kv_pools[g].block_tokens, kv.num_blocks(g));
  }
  return {};
}

void Arrivals::add(Request request, TimeNs now) {
  std::optional<Error> refusal = parts_.limits.queue_full(request, {});
  if (!refusal) refusal = parts_.limits.too_late(request, now);
  if (refusal) parts_.journal.note_rejected();
  parts_.pace.note_asked(lane_of(request.request_class), now);
  std::shared_ptr<BeamSearch> search;
  if (request.beam)
    search = std::make_shared<BeamSearch>(request.n, *request.beam, request.max_tokens, ends_of(request));
  const uint64_t first_bytes = held_bytes(request) - (request.n - 1) * kBranchBytes;
  std::shared_ptr<const std::vector<int32_t>> prompt;
  if (request.n > 1) {
    prompt = std::make_shared<std::vector<int32_t>>(std::move(request.prompt));
    request.prompt.clear();
  }
  for (uint32_t branch = 0, n = request.n; branch < n; ++branch) {
    Request own = branch + 1 < n ? Request(request) : std::move(request);
    own.id += branch;
    own.sampling.branch += branch;
    auto sequence = std::make_unique<Sequence>(std::move(own), branch, prompt);
    sequence->beam.search = search;
    sequence->beam.rank = branch;
    sequence->ticket.start_bytes = branch == 0 ? first_bytes : kBranchBytes;
    add_branch(std::move(sequence), refusal, now);
  }
}

void Arrivals::add_branch(std::unique_ptr<Sequence> owned, const std::optional<Error>& refusal, TimeNs now) {
  LLMRT_CHECK(owned->num_prompt > 0, "a request has a prompt");
  Sequence& sequence = parts_.branches.add(std::move(owned));
  parts_.journal.note_arrival(sequence, now);
  parts_.timeouts.set(sequence);
  parts_.prefixes.set_origin(sequence);
  if (refusal) {
    parts_.exits.end(sequence, RequestState::kRejected, {{.error = refusal}}, FinishReason::kError, now);
    return;
  }
  const bool is_nothing_to_do = sequence.request.max_tokens == 0 && sequence.progress.scored == sequence.num_prompt;
  if (!is_nothing_to_do) {
    parts_.waiting.add(sequence);
    return;
  }
  TokenEvent event;
  if (sequence.wants_scores()) {
    sequence.take_prompt();
    event.token = sequence.tokens[0];
    event.is_prompt = true;
  }
  parts_.exits.end(sequence, RequestState::kStreaming, std::move(event), FinishReason::kLength, now);
}

const std::vector<int32_t>& Arrivals::ends_of(const Request& request) const {
  static const std::vector<int32_t> kNone;
  return request.stop.ignore_eos ? kNone : parts_.config.end_of_generation;
}

}  // namespace llmrt
