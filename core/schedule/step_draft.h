// The step that is being made: what is left of it, and what each row takes.
//
// Owns the budgets of the step; writes RowTake. A row never takes more than is left, and what is planned is exactly
// what rows have taken (PlanWriter). No errors. The engine's thread.
#pragma once

#include <cstdint>
#include <span>

#include "core/kv/kv_space.h"
#include "core/request/sequence.h"
#include "core/schedule/pace.h"
#include "core/schedule/scheduler_config.h"

namespace llmrt {

class StepDraft {
 public:
  // `config` outlives it.
  explicit StepDraft(const SchedulerConfig& config);

  // A step of which nothing is taken. Rows have taken nothing either.
  void begin();
  bool is_empty() const { return tokens_ == config_.step_tokens_max; }
  uint32_t tokens_left() const { return tokens_; }
  uint32_t samples_left() const { return samples_; }

  // The most of the next `count` tokens, behind those that it has taken, that the step can sample. A token waits whose
  // logit changes are not ready, or are more than the step has left; a step that begins with it has room. Changes that
  // come late take their room in the tail (PlanWriter::write_tail).
  uint32_t count_that_fits(Sequence& sequence, uint32_t count) const;
  // The next draw waits for a later step: its changes are not ready. Where the model has states, changes that come late
  // are not ready either: a row is parked by computing its last position again, and not every one can be taken back.
  bool waits_for_changes(const Sequence& sequence) const;
  // `count` of them, at most tokens_left(), fit.
  void take(Sequence& sequence, uint32_t count);
  // The first `count` of the drafts that it has proposed, behind the one token that it has taken, have room, that of
  // their logit changes too.
  bool can_take_drafts(const Sequence& sequence, uint32_t count) const;
  void take_drafts(Sequence& sequence, uint32_t count);
  // The sequence yields: what it has taken is left again.
  void give_up(Sequence& sequence);

  // ---- prompts ----
  // What the rows have taken so far, and where the first of the others goes on.
  StepSoFar so_far(std::span<Sequence* const> running) const;
  // The part of tokens_left() that rows which are behind by more than one token may take.
  uint32_t chunk_tokens() const { return chunk_tokens_; }
  void set_chunk_tokens(uint32_t count) { chunk_tokens_ = count; }
  // take() from these; a prompt's end may pass them.
  void take_of_chunk(Sequence& sequence, uint32_t count);
  // A prompt has passed them.
  bool is_long() const { return is_long_; }

  // ---- payload of sequences that are admitted ----
  // Whether the step can count the tokens of one with penalties.
  bool can_recount(const Sequence& sequence) const;
  // Whether its tables can take over what was found. An empty step can take over the most that one request has.
  bool can_take_over(const PrefixFound& found) const {
    return found.prefix_blocks <= shared_blocks_ && found.host_blocks <= loaded_blocks_;
  }
  // It is admitted, and begins with `match`.
  void take_payload(const Sequence& sequence, const PrefixMatch& match);

 private:
  bool has_room_for_changes(Sequence& sequence) const;
  // Those that the next `count` tokens need now.
  uint64_t bias_entries_of(Sequence& sequence, uint32_t count) const;
  static uint64_t bias_entries_of_drafts(const Sequence& sequence, uint32_t count);

  const SchedulerConfig& config_;
  const uint64_t bias_entries_max_;
  const bool has_states_;
  uint32_t tokens_ = 0, samples_ = 0;
  uint64_t bias_entries_ = 0;  // for rows that draw
  uint32_t chunk_tokens_ = 0;
  bool is_long_ = false;
  uint32_t recount_tokens_ = 0;  // for penalty counts
  uint32_t shared_blocks_ = 0;   // that admitted sequences take over
  uint32_t loaded_blocks_ = 0;   // of these, from the host tier
};

}  // namespace llmrt
