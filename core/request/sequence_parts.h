// The parts of a Sequence, each named for the owner in core/schedule that writes it. Other owners may read a part; none
// writes another's, except where a field says so.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/kv/kv_space.h"
#include "core/request/beam_search.h"
#include "core/request/request.h"
#include "core/request/request_trace.h"
#include "core/speculate/drafter.h"

namespace llmrt {

// Sampled tokens on the device that the host does not know yet: at least `min` of them will follow `tokens`, at most
// `max`. A draw is one, and one more for each of its drafts that turns out right.
struct InFlight {
  uint32_t min = 0, max = 0;

  bool is_empty() const { return max == 0; }
  void add_draw(uint32_t num_drafts = 0) { ++min, max += 1 + num_drafts; }
  // One has become known, or will not be drawn.
  void drop_draw(uint32_t num_drafts = 0) { --min, max -= 1 + num_drafts; }
  bool is_certain() const { return min == max; }
  bool operator==(const InFlight&) const = default;
};

// How far the scheduler has planned it.
struct Progress {
  uint32_t computed = 0;  // positions scheduled, in flight included; means nothing while it waits
  InFlight in_flight;
  uint32_t scored = 0;  // prompt positions below this have been scheduled for scoring (position 0 never is)
  // So many positions from `computed` on have been computed for nothing, and have their blocks: that of a row which was
  // parked, whose token was not drawn, and those of drafts that were wrong. They are computed again.
  uint32_t undone = 0;

  // Of what has been computed, so much is of the answer.
  void set_computed(uint32_t positions) {
    undone = undone + computed - positions;
    computed = positions;
  }
};

// What it holds while it runs.
struct Residency {
  std::vector<BlockTable> tables;  // by KV group; empty unless running
  int32_t slot = -1;               // row state on the device; -1 unless running
  int32_t penalty_slot = -1;
  uint32_t adapter_slot = 0;  // of the adapter pool + 1; 0 = none
  bool row_is_set = false;    // the device has this slot's parameters
  // The last tokens, of a run, that the device's counts for its penalties lack; a row that resumes is counted anew.
  uint32_t uncounted = 0;
  uint64_t admission = 0;        // counts up: the largest is the newest; 0 = it has never run
  uint32_t reserved_tokens = 0;  // positions that admission counted on
  // A block of another sequence whose first tokens are copied in the plan that is being made.
  BlockId copy_source = kNoBlock;
  uint32_t copy_tokens = 0;
};

// What it takes of the step that is being made.
struct RowTake {
  uint32_t tokens = 0;
  uint32_t drafts = 0;  // behind these, the first of Drafts::tokens
};

// Of the last drafts that were verified, fading: how many were right, and how many were told right or wrong.
struct DraftsTold {
  double num_right = 0, num_told = 0;
};

// The drafts of its next tokens.
struct Drafts {
  std::unique_ptr<Drafter> drafter;   // null: none from its text
  bool by_model = false;              // the draft model is asked where the drafter has none
  std::unique_ptr<DraftPlace> place;  // the draft model's, once it was asked
  std::vector<int32_t> tokens;        // proposed for the step that is being made
  DraftOrigin origin = DraftOrigin::kText;
  // What the logits behind each of them are changed by; empty where that is what they are changed by in any case.
  std::vector<std::vector<TokenBias>> changes;
  std::array<DraftsTold, kNumDraftOrigins> told = {};

  bool are_wanted() const { return drafter || by_model; }
};

// What its keys and values depend on, and whose blocks they began with.
struct KvOrigin {
  Digest identity = {};      // of its blocks in the prefix cache, beside their tokens
  bool has_salt = false;     // of its request: only then it shares parts of blocks with others
  bool may_last = false;     // its blocks may go to a disk, or to the exchange
  bool reads_below = false;  // it waits for what is there
  uint64_t root = 0;         // of its cached blocks (KvSpace::root), once there are some
  uint64_t copied_root = 0;  // of another text's first block, whose first tokens it has copied
};

// In which order requests of one lane are looked at.
struct QueuePlace {
  bool is_new = false;  // preempted ones come first, the last one at the front
  TimeNs due_ns = 0;
  uint64_t number = 0;

  auto operator<=>(const QueuePlace&) const = default;
};

// Its place in the queue, and what has happened to it there.
struct WaitTicket {
  QueuePlace place;
  uint64_t start_bytes = 0;    // that it holds before it first starts
  uint64_t queued_bytes = 0;   // what it added to the sums of those that wait, and
  uint32_t queued_tokens = 0;  // the same in tokens; 0 = it does not wait
  uint32_t num_overtaken = 0;  // times that a later request was admitted before it
  uint64_t held_since = 0;     // plan in which it first waited for another's prefix; 0 = never
  bool is_held = false;        // it waited for one when it was last asked
  uint64_t tried_in = 0;       // last round of admission in which it was its turn
  uint64_t batch = 0;          // of a baseline, 0 = none yet
};

// What was found of its prefix when it was last looked up. It decides the order, and what is looked up again.
struct PrefixFound {
  bool is_known = false;
  uint32_t prefix_blocks = 0;
  uint32_t host_blocks = 0;    // of these, in the host tier
  uint32_t blocks_needed = 0;  // at that time; it is not looked up again before there are as many, or
  uint64_t needed_at = 0;      // others were admitted behind this one, which may hold blocks that it shares
  uint32_t needed_group = 0;   // the KV group of these blocks
  // Where its path parts from what the cache has, or from what another one is computing, if it cannot go on from there:
  // the states that it passes there are what it has in common with others. 0: nowhere.
  uint32_t split = 0;
  bool is_split_shared = false;  // others have gone on from there with other tokens, or will
};

// What a disk reads for it before it starts.
struct DiskWait {
  uint64_t batch = 0;    // DiskBatch; 0: nothing has been asked yet
  TimeNs until_ns = 0;   // it waits no longer; 0: it does not wait
  bool is_over = false;  // it starts with what there is
};

// Its place in a beam search.
struct BeamPlace {
  std::shared_ptr<BeamSearch> search;  // one for all branches of the request; null without beam search
  uint32_t rank = 0;                   // which of the search's beams this is now
  bool is_asked = false;               // what may follow `tokens` is known or in flight: nothing to compute now
  std::vector<TopLogprob> candidates;  // what may follow, once it is known
};

// What its trace will tell.
struct BranchRecord {
  uint32_t cached_tokens = 0;  // of the first branch: that the prefix cache spared when it was first admitted
  uint32_t num_preemptions = 0;
  uint32_t kv_blocks_peak = 0;
  uint32_t num_answered = 0;  // tokens of the answer; at its end
  bool goes_on = false;       // its answer had begun elsewhere: what was waited for until then is not counted again
  FinishReason finish = FinishReason::kNone;
  BranchTimes times;
};

}  // namespace llmrt
