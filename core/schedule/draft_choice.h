// Which rows of a step compute drafts, and how many: as many as make the step's tokens come faster by what the cost
// model foretells, and by how often the row's last drafts were right.
//
// Drafts go behind all that a step computes anyway: they take what is left of its tokens, samples, room for logit
// changes and blocks, and nobody yields for them. Rows of batch, evaluation and background have none while requests
// wait. A class whose drafts have not paid gets none for some hundred steps, then they are tried again. Where
// the model has states a row has no more than can be taken back.
//
// A row's text is asked first. Where it gives nothing the draft model is, for all such rows of a step at once and for
// as many drafts as are expected to pay for their passes. What that takes is held against its drafts; drafts of a text
// and of the model are judged apart.
//
// Owns what drafts have gained by class and origin, and its statistics; writes RowTake::drafts and Drafts. No errors.
// Allocates nothing in the steady state but for logit changes behind drafts. The engine's thread, which waits for the
// device where the draft model is asked.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/kv/kv_space.h"
#include "core/metrics/draft_stats.h"
#include "core/request/sequence.h"
#include "core/schedule/fairness.h"
#include "core/schedule/iteration_plan.h"
#include "core/schedule/pace.h"
#include "core/schedule/running.h"
#include "core/schedule/step_draft.h"
#include "core/schedule/waiting.h"

namespace llmrt {

// What the drafter keeps of the branch, from now on if it kept nothing.
DraftPlace* draft_place(ModelDrafter* drafter, Sequence& sequence);

class DraftChoice {
 public:
  struct Parts {
    const SchedulerConfig& config;
    const Pace& pace;
    const Waiting& waiting;
    const Running& running;
    KvSpace& kv;
    StepDraft& draft;
  };
  explicit DraftChoice(const Parts& parts);

  // Whether the step behind the one in flight is better planned when that one's tokens are known: some row will have
  // drafts behind them, or it is not known how many of its drafts were right.
  bool awaits_tokens() const;
  void note_awaited() { ++stats_.num_awaited; }
  // All rows have taken their tokens of the plan with this number.
  void take(uint64_t plan);

  // The drafts of a plan's row were verified: the first `num_right` of them are right. `is_told`: the next one is
  // wrong; else there is none, or the answer ended before it.
  void note_run(Sequence& sequence, const PlanRow& row, uint32_t num_right, bool is_told);
  // The tokens of the plan's rows are known, at `now`.
  void note_commit(const IterationPlan& plan, const StepTimes& times, TimeNs now);

  const DraftStats& stats() const { return stats_; }

 private:
  // What drafts of one origin have gained in a class since it was last looked at.
  struct Gain {
    DraftsTold told;
    uint32_t num_judged = 0;        // times that it was found to pay
    uint64_t tokens = 0, rows = 0;  // right drafts of these steps, and rows that drew
    double ms = 0, ms_without = 0;  // from result to result, and what it would have been without drafts
    double debt_ms = 0;             // of reading, which lasts for an answer: it is paid bit by bit
    uint32_t num_steps = 0, num_unused = 0;
    uint32_t num_empty = 0;    // calls in a row in which the draft model had nothing for it
    uint32_t step_tokens = 0;  // right drafts of the step that is being committed
    uint64_t off_until = 0;    // plan
    uint32_t off_steps = 0;    // the last time
    bool is_trial = false;     // what the cost model says of drafts may be wrong: they are taken once
  };
  struct Candidate {
    double chance;  // that it and all before it are right
    Sequence* row;
    uint32_t draft_idx;  // of the row's
  };

  using Gains = std::array<Gain, kNumDraftOrigins>;
  // What the draft model did for a plan.
  struct Asked {
    uint64_t plan = 0;
    ModelDrafter::Took took;
    LaneFlags lanes = {};
  };

  Gain& gain_of(const Sequence& sequence, DraftOrigin origin) {
    return gains_[static_cast<size_t>(sequence.lane())][static_cast<size_t>(origin)];
  }
  const Gain& gain_of(const Sequence& sequence, DraftOrigin origin) const {
    return const_cast<DraftChoice*>(this)->gain_of(sequence, origin);
  }
  bool has_any() const { return !has_states_ || parts_.config.state_back_tokens > 0; }
  bool may_have_drafts(const Sequence& sequence) const;
  bool has_origin(const Sequence& sequence, DraftOrigin origin) const;
  bool is_off(const Sequence& sequence, DraftOrigin origin) const {
    return gain_of(sequence, origin).off_until > plan_;
  }
  bool may_ask(const Sequence& sequence, DraftOrigin origin) const {
    return has_origin(sequence, origin) && !is_off(sequence, origin);
  }
  uint32_t states_allow(size_t position) const;
  uint32_t most_of(const Sequence& sequence) const;
  double chance_of_next(const Sequence& sequence, DraftOrigin origin) const;
  void find_rows();
  void ask_texts();
  void ask_model();
  uint32_t passes_that_pay();
  void find_candidates();
  uint64_t keys_of_drafts(uint64_t start, uint64_t count, uint64_t num_drafts) const;
  // A row's next token has draft 0 behind it, that one draft 1 ...
  void add_draft(StepWork* work, const Sequence& row, uint32_t draft_idx) const;
  size_t most_that_pay() const;
  void take_first(size_t count);
  void note_unused(Gain& gain, bool uses_some);
  double pause_ms(uint64_t step, double step_ms, TimeNs now);
  void judge(Gain& gain);
  void turn_off(Gain& gain);

  const Parts parts_;
  const bool has_states_;
  std::array<Gains, kNumLanes> gains_;
  std::vector<Sequence*> rows_, model_rows_;  // that may have drafts; of these, those that the draft model is asked for
  std::vector<ModelDrafter::Row> asks_;
  std::vector<double> chances_;  // of the model's rows: that all drafts so far are right
  std::array<Asked, 2> asked_;   // by plan % 2
  std::vector<Candidate> candidates_;
  StepWork work_;           // of the step without drafts
  uint32_t num_drawn_ = 0;  // its rows that draw
  uint64_t plan_ = 0;       // the newest
  uint64_t last_step_ = 0;  // that was committed, and when
  TimeNs last_commit_ns_ = 0;
  double pause_without_ms_ = 0;  // between steps without drafts, the mean of the last
  DraftStats stats_;
};

}  // namespace llmrt
