// One branch of an accepted request as the scheduler keeps it: tokens, counts, tables. Positions are token indexes from
// the start of the prompt.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/kv/kv_space.h"
#include "core/request/beam_search.h"
#include "core/request/request.h"
#include "core/request/request_state.h"
#include "core/request/request_trace.h"

namespace llmrt {

// In which order requests of one lane are looked at.
struct QueuePlace {
  bool is_new = false;  // preempted ones come first, the last one at the front
  TimeNs due_ns = 0;
  uint64_t number = 0;

  auto operator<=>(const QueuePlace&) const = default;
};

struct Sequence {
  // `from` has the branch's own id and sampling, and a prompt unless it is one that branches share.
  explicit Sequence(Request from, uint32_t branch_idx = 0, std::shared_ptr<const std::vector<int32_t>> shared = {});

  // The prompt until `tokens` has it, then null.
  std::shared_ptr<const std::vector<int32_t>> shared_prompt;
  Request request;              // its prompt has moved into `tokens`
  const uint32_t branch;        // which of the request's n
  std::vector<int32_t> tokens;  // prompt, then sampled ones, as far as the host knows them; take_prompt()
  uint32_t num_prompt;
  uint32_t computed = 0;  // positions scheduled, in flight included; means nothing while it waits
  uint32_t pending = 0;   // sampled tokens in flight: they follow `tokens`
  uint32_t scored;        // prompt positions below this have been scheduled for scoring (position 0 never is)

  // Beam search, else null: one for all branches of the request.
  std::shared_ptr<BeamSearch> search;
  uint32_t rank = 0;                   // which of its beams this is now
  bool is_asked = false;               // what may follow `tokens` is known or in flight: nothing to compute now
  std::vector<TopLogprob> candidates;  // what may follow, once it is known

  std::vector<BlockTable> tables;  // by KV group; empty unless running
  Digest identity = {};            // of its blocks in the prefix cache, beside their tokens
  bool has_salt = false;           // of its request: only they share parts of blocks with others
  uint64_t root = 0;               // of these blocks (KvSpace::root), once there are some
  uint64_t copied_root = 0;        // of another text's first block, whose first tokens it has copied
  int32_t slot = -1;               // row state on the device; -1 unless running
  int32_t penalty_slot = -1;
  bool row_is_set = false;       // the device has this slot's parameters
  uint64_t admission = 0;        // counts up: the largest is the newest
  uint64_t batch = 0;            // of a baseline, 0 = none yet
  uint32_t reserved_tokens = 0;  // positions that admission counted on
  uint32_t step_tokens = 0;      // taken in the plan that is being made

  // What is added to the logits of the next token, found when it was first asked for (logit_changes.h).
  const bool reads_newest;  // the changes depend on the newest token
  std::vector<TokenBias> changes;
  uint32_t changes_key = 0;

  // A block of somebody else whose first tokens are copied in the plan that is being made.
  BlockId copy_source = kNoBlock;
  uint32_t copy_tokens = 0;
  uint32_t cached_tokens = 0;  // of the first branch: that the prefix cache spared when it was first admitted

  // For its trace.
  uint32_t num_preemptions = 0;
  uint32_t kv_blocks_peak = 0;
  uint32_t num_answered = 0;  // tokens of the answer; at its end
  FinishReason finish = FinishReason::kNone;
  BranchTimes times;
  TimeNs times_out_ns = 0;  // 0 = never

  // While it waits.
  uint64_t waiting_bytes = 0;  // that it holds before it starts
  uint64_t queued_bytes = 0;   // what it added to the queue's sums, and
  uint32_t queued_tokens = 0;
  uint32_t prefix_blocks = 0;  // found in the prefix cache when it was last looked up; decides the order alone
  uint32_t host_blocks = 0;    // of these, in the host tier
  uint32_t blocks_needed = 0;  // at that time; it is not looked up again before there are as many, or
  uint64_t needed_at = 0;      // others were admitted behind this one, which may hold blocks that it shares
  uint32_t num_overtaken = 0;  // by requests that came later
  uint64_t held_since = 0;     // plan in which it first waited for another's prefix; 0 = never
  bool is_held = false;        // it did so when it was last asked
  bool is_looked_up = false;
  uint64_t tried_in = 0;  // last round of admission in which it was its turn
  QueuePlace queue_place;

  RequestState state() const { return state_; }
  // The only way a state changes: an illegal move is our own fault and stops the process.
  void move_to(RequestState state);

  // A branch that waits for others has no copy of what they share. To be called before its `tokens` are read.
  void take_prompt();
  uint32_t num_known() const { return shared_prompt ? num_prompt : static_cast<uint32_t>(tokens.size()); }

  // Leading tokens whose keys and values may come from elsewhere: the last one must be computed, and so must positions
  // whose hidden states score prompt tokens.
  uint32_t reusable() const;

  bool is_branch_of_same(const Sequence& other) const { return request.id - branch == other.request.id - other.branch; }
  Lane lane() const { return lane_of(request.request_class); }
  bool wants_scores() const { return request.sampling.prompt_logprobs; }
  uint32_t num_tokens() const { return static_cast<uint32_t>(tokens.size()) + pending; }
  uint32_t num_output() const { return num_tokens() - num_prompt; }  // in flight included
  bool may_sample() const { return num_output() < request.max_tokens; }
  // Positions to compute before the sequence needs news: up to its last token when that yields another one, else short
  // of it.
  uint32_t wanted() const { return may_sample() ? num_tokens() : num_tokens() - 1; }
  uint32_t gap() const { return wanted() - computed; }
  // The most positions it can ever occupy: the last token is never computed.
  uint32_t positions_max() const { return num_prompt + request.max_tokens - 1; }
  // Sampled rows (drawn or forced) that the next `count` positions need.
  uint32_t samples_for(uint32_t count) const;
  // Whether the next `count` positions end in a token that is drawn (or asked for, with beam search).
  bool draws(uint32_t count) const { return count > 0 && computed + count == wanted() && may_sample(); }
  // It cannot go on before the token in flight is known.
  bool waits_for_token() const { return reads_newest && pending > 0; }
  const std::vector<TokenBias>& logit_changes(std::span<const int32_t> end_of_generation);
  // The largest count <= `count` with samples_for(count) <= samples_max.
  uint32_t count_within(uint32_t count, uint32_t samples_max) const;

 private:
  RequestState state_ = RequestState::kQueued;
};

}  // namespace llmrt
