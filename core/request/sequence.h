// One branch of an accepted request as the scheduler keeps it: its text, and a part for each owner of its state.
// Positions are token indexes from the start of the prompt.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/request/branch_constraint.h"
#include "core/request/request.h"
#include "core/request/request_state.h"
#include "core/request/sequence_parts.h"

namespace llmrt {

struct Sequence {
  // `from` has the branch's own id and sampling, and a prompt unless it is one that branches share.
  explicit Sequence(Request from, uint32_t branch_idx = 0, std::shared_ptr<const std::vector<int32_t>> shared = {});

  Request request;        // its prompt has moved into `tokens`
  const uint32_t branch;  // which of the request's n
  // The prompt until `tokens` has it, then null.
  std::shared_ptr<const std::vector<int32_t>> shared_prompt;
  TimeNs times_out_ns = 0;  // 0 = never
  bool is_paused = false;   // its client can take no more for now: no step computes it

  // The parts, by owner (sequence_parts.h). Every step of a running sequence reads those from `tokens` on, so they
  // stand together.
  WaitTicket ticket;
  PrefixFound found;
  KvOrigin origin;
  DiskWait disk;
  std::vector<int32_t> tokens;  // prompt, then sampled ones, as far as the host knows them; take_prompt()
  uint32_t num_prompt;
  Progress progress;
  RowTake take;
  Drafts drafts;
  Residency residency;
  BeamPlace beam;
  BranchRecord record;
  std::unique_ptr<BranchConstraint> constraint;  // null: any token may be drawn

  RequestState state() const { return state_; }
  // The only way a state changes: an illegal move is our own fault and stops the process.
  void move_to(RequestState state);

  bool runs() const { return residency.slot >= 0; }
  bool waits() const { return ticket.queued_tokens > 0; }

  // A branch that waits for others has no copy of what they share. To be called before its `tokens` are read.
  void take_prompt();
  uint32_t num_known() const { return shared_prompt ? num_prompt : static_cast<uint32_t>(tokens.size()); }

  // Leading tokens whose keys and values may come from elsewhere: the last one must be computed, and so must positions
  // whose hidden states score prompt tokens.
  uint32_t reusable() const;

  // So many first positions have the same adapter, or none, in both.
  uint32_t same_adapter_until(const Sequence& other) const;
  bool is_branch_of_same(const Sequence& other) const { return request.id - branch == other.request.id - other.branch; }
  Lane lane() const { return lane_of(request.request_class); }
  bool wants_scores() const { return request.sampling.prompt_logprobs; }
  uint32_t num_tokens() const { return static_cast<uint32_t>(tokens.size()) + progress.in_flight.max; }
  uint32_t num_output() const { return num_tokens() - num_prompt; }  // in flight included
  bool may_sample() const { return num_output() < request.max_tokens; }
  // Positions to compute before the sequence needs news: up to its last token when that yields another one, else short
  // of it.
  uint32_t wanted() const { return may_sample() ? num_tokens() : num_tokens() - 1; }
  uint32_t gap() const { return wanted() - progress.computed; }
  // The most positions it can ever occupy: the last token is never computed.
  uint32_t positions_max() const { return num_prompt + request.max_tokens - 1; }
  // Sampled rows (drawn or forced) that the next `count` positions need.
  uint32_t samples_for(uint32_t count) const;
  // Whether the next `count` positions end in a token that is drawn (or asked for, with beam search).
  bool draws(uint32_t count) const { return count > 0 && progress.computed + count == wanted() && may_sample(); }
  // The changes of its next token depend on a token in flight: they are found when that one is known, for the tail of
  // the step.
  bool changes_come_late() const { return reads_newest_ && !progress.in_flight.is_empty(); }
  // Behind the tokens that are known, all processors can tell them, and so can the constraint its mask.
  bool changes_are_ready() const;
  // The changes of the next token's logits. To be called only where changes_are_ready(), and where they do not come
  // late or are found for the tail.
  const std::vector<TokenBias>& logit_changes(std::span<const int32_t> end_of_generation);
  // ---- drafts, of one that wants some and whose tokens are all known ----
  // Whether its text is likely to give some once the token behind `tokens` is known.
  bool expects_text_drafts();
  // The most that its answer has room for: its last token is drawn, never drafted.
  uint32_t draft_room() const { return request.max_tokens - num_output() - 1; }
  // It has none, of its text.
  void begin_drafts();
  // What was proposed is cut to what may be verified together: at most `most`, none that its answer has no room for,
  // none behind which its changes are not ready; with a constraint none that may not stand, and the text that is fixed.
  void complete_drafts(uint32_t most, std::span<const int32_t> end_of_generation);
  // The largest count <= `count` with samples_for(count) <= samples_max.
  uint32_t count_within(uint32_t count, uint32_t samples_max) const;
  // It has ended: lets go of all that only a running or waiting sequence needs, however long its receiver takes.
  void release_memory();

 private:
  uint32_t changes_key() const;

  RequestState state_ = RequestState::kQueued;
  // What is added to the logits of the next token, found when it was first asked for (logit_changes.h).
  bool reads_newest_;  // the changes depend on the newest token
  std::vector<TokenBias> changes_;
  uint32_t changes_key_ = 0;
};

}  // namespace llmrt
