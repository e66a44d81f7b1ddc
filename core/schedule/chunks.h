// How a row that is behind by more than one token takes its part of the step: a chunk, or all of its prompt's end.
//
// Owns nothing. Errors: none. The engine's thread.
#pragma once

#include "core/kv/kv_space.h"
#include "core/schedule/fairness.h"
#include "core/schedule/pace.h"
#include "core/schedule/running.h"
#include "core/schedule/step_draft.h"

namespace llmrt {

class Chunks {
 public:
  Chunks(KvSpace& kv, Fairness& fairness, Pace& pace, const Running& running, StepDraft& draft)
      : kv_(kv), fairness_(fairness), pace_(pace), running_(running), draft_(draft) {}

  // As much as the draft and the free blocks allow; nothing where they allow none. The sequence's lane is charged.
  void take(Sequence& sequence);

 private:
  uint32_t up_to_place(uint32_t begin, uint32_t count) const;

  KvSpace& kv_;
  Fairness& fairness_;
  Pace& pace_;
  const Running& running_;
  StepDraft& draft_;
};

}  // namespace llmrt
