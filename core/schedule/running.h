// The sequences that run: their slots in the device's row state, their slots for token counts (penalties), and their
// order, which is that of admission.
//
// Owns slots and order; writes slot, penalty_slot, adapter_slot, admission and (when it takes a slot back) row_is_set
// of Residency. A sequence runs exactly as long as it has a slot, and a slot has one sequence; so long it holds its
// adapter. No errors: admit() needs has_slot() and, for a request with penalties, has_penalty_slot(), for one with an
// adapter that it is ready. Allocates nothing after construction. The engine's thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/request/sequence.h"
#include "core/schedule/adapter_books.h"
#include "core/schedule/fairness.h"

namespace llmrt {

class Running {
 public:
  Running(uint32_t sequences_max, uint32_t penalty_rows_max, AdapterBooks* adapters = nullptr);

  // By admission, the newest last.
  std::span<Sequence* const> rows() const { return rows_; }
  bool is_empty() const { return rows_.empty(); }
  uint32_t size() const { return static_cast<uint32_t>(rows_.size()); }
  const LaneCounts& lane_rows() const { return lane_rows_; }
  // A row of batch, evaluation or background runs: no client waits for its next token.
  bool has_patient_rows() const;
  // Some row may be given drafts.
  bool has_drafters() const { return num_drafters_ > 0; }
  // Null: the slot is free.
  Sequence* at_slot(uint32_t slot) const { return by_slot_[slot]; }
  bool has_slot() const { return !free_slots_.empty(); }
  bool has_penalty_slot() const { return !free_penalty_slots_.empty(); }
  // The number of admissions so far, which is also the number of the newest.
  uint64_t num_admissions() const { return num_admissions_; }

  // It is the newest now.
  void admit(Sequence& sequence, TimeNs now = 0);
  // It runs no longer, and its slots are free.
  void release(Sequence& sequence);
  // The same where the books are broken: its slots stay taken.
  void abandon(Sequence& sequence);

  // Slots that were given back since forget_cleared() and whose parameters the device still has.
  std::span<const uint32_t> slots_to_clear() const { return slots_to_clear_; }
  void forget_cleared() { slots_to_clear_.clear(); }

  // Every slot is free or its sequence's, lanes are counted right, states are those of running.
  Status check() const;

 private:
  const uint32_t penalty_rows_max_;
  AdapterBooks* const adapters_;
  std::vector<int32_t> free_slots_, free_penalty_slots_;  // the back goes first
  std::vector<uint32_t> slots_to_clear_;
  std::vector<Sequence*> rows_;
  std::vector<Sequence*> by_slot_;
  LaneCounts lane_rows_ = {};
  uint32_t num_drafters_ = 0;
  uint64_t num_admissions_ = 0;
};

}  // namespace llmrt
