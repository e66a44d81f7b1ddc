#include "core/schedule/running.h"

#include <algorithm>

namespace llmrt {

Running::Running(uint32_t sequences_max, uint32_t penalty_rows_max, AdapterBooks* adapters)
    : penalty_rows_max_(penalty_rows_max), adapters_(adapters), by_slot_(sequences_max) {
  for (uint32_t slot = sequences_max; slot-- > 0;) free_slots_.push_back(static_cast<int32_t>(slot));
  for (uint32_t slot = penalty_rows_max; slot-- > 0;) free_penalty_slots_.push_back(static_cast<int32_t>(slot));
  rows_.reserve(sequences_max);
  slots_to_clear_.reserve(sequences_max);
}

bool Running::has_patient_rows() const {
  return rows_.size() >
         lane_rows_[static_cast<size_t>(Lane::kInteractive)] + lane_rows_[static_cast<size_t>(Lane::kAgent)];
}

void Running::admit(Sequence& sequence, TimeNs now) {
  Residency& residency = sequence.residency;
  residency.admission = ++num_admissions_;
  residency.slot = free_slots_.back();
  free_slots_.pop_back();
  by_slot_[static_cast<size_t>(residency.slot)] = &sequence;
  if (sequence.request.sampling.has_penalties()) {
    residency.penalty_slot = free_penalty_slots_.back();
    free_penalty_slots_.pop_back();
  }
  const uint32_t adapter_id = sequence.request.adapter_id;
  residency.adapter_slot = adapter_id == 0 || !adapters_ ? adapter_id : adapters_->hold(sequence.request, now) + 1;
  rows_.push_back(&sequence);
  ++lane_rows_[static_cast<size_t>(sequence.lane())];
  num_drafters_ += sequence.drafts.are_wanted();
  if (sequence.request.adapter_use) ++sequence.request.adapter_use->num_running;
}

void Running::release(Sequence& sequence) {
  abandon(sequence);
  Residency& residency = sequence.residency;
  if (residency.penalty_slot >= 0) free_penalty_slots_.push_back(residency.penalty_slot);
  if (residency.row_is_set) slots_to_clear_.push_back(static_cast<uint32_t>(residency.slot));
  by_slot_[static_cast<size_t>(residency.slot)] = nullptr;
  free_slots_.push_back(residency.slot);
  if (residency.adapter_slot != 0 && adapters_) adapters_->release(sequence.request.id);
  residency.slot = residency.penalty_slot = -1;
  residency.adapter_slot = 0;
  residency.row_is_set = false;
}

void Running::abandon(Sequence& sequence) {
  rows_.erase(std::ranges::find(rows_, &sequence));
  --lane_rows_[static_cast<size_t>(sequence.lane())];
  num_drafters_ -= sequence.drafts.are_wanted();
  if (sequence.request.adapter_use) --sequence.request.adapter_use->num_running;
}

Status Running::check() const {
  size_t num_penalty_slots = free_penalty_slots_.size();
  uint64_t admission = 0;
  uint32_t num_adapted = 0;
  for (const Sequence* sequence : rows_) {
    const RequestId id = sequence->request.id;
    const Residency& residency = sequence->residency;
    const bool may_run = sequence->state() == RequestState::kPrefilling || sequence->state() == RequestState::kDecoding;
    if (!may_run) return broken_books("request {} runs in state {}", id, request_state_name(sequence->state()));
    if (residency.slot < 0 || by_slot_[static_cast<size_t>(residency.slot)] != sequence)
      return broken_books("request {}: slot {} is not its own", id, residency.slot);
    if (residency.admission <= admission) return broken_books("request {} runs out of order", id);
    admission = residency.admission;
    if (residency.penalty_slot >= 0) ++num_penalty_slots;
    if (adapters_ == nullptr || sequence->request.adapter_id == 0) continue;
    ++num_adapted;
    if (!adapters_->holds(id)) return broken_books("request {} runs without a hold on its adapter", id);
  }
  if (adapters_ != nullptr && num_adapted != adapters_->num_holds())
    return broken_books("expected {} holds on adapters, found {}", num_adapted, adapters_->num_holds());
  if (free_slots_.size() + rows_.size() != by_slot_.size())
    return broken_books("expected {} slots, found {} free + {} running", by_slot_.size(), free_slots_.size(),
                        rows_.size());
  if (num_penalty_slots != penalty_rows_max_)
    return broken_books("expected {} penalty slots, found {}", penalty_rows_max_, num_penalty_slots);
  for (const Lane lane : kLanes) {
    const auto rows = std::ranges::count(rows_, lane, &Sequence::lane);
    const uint32_t counted = lane_rows_[static_cast<size_t>(lane)];
    if (rows != counted)
      return broken_books("lane {}: expected {} rows, found {}", static_cast<int>(lane), rows, counted);
  }
  return {};
}

}  // namespace llmrt
