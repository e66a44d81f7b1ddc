#include "core/schedule/draft_choice.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/request/draft_rules.h"

namespace llmrt {
namespace {

// What drafts are held against, and how soon.
constexpr double kGainMin = 1.02, kGainPoor = 0.9;
constexpr uint32_t kStepsJudged = 32, kStepsPoor = 8;
constexpr uint32_t kUnusedMax = 16;  // steps in a row in which the cost model is against all of a class
constexpr uint32_t kStepsOff = 256, kStepsOffMax = 4096;
// Where each step has drafts nothing tells what it would take without: now and then some have none.
constexpr uint32_t kStepsPlain = 4, kJudgementsPlain = 16;
// What is expected of a class before it has had drafts, and of a row, in drafts that were told.
constexpr double kChanceFirst = 0.7, kToldFirst = 4;
constexpr double kChanceMost = 0.98;
constexpr double kPauseFade = 0.05;                   // for each step
constexpr double kRowFade = 0.85, kClassFade = 0.98;  // for each run
// The draft model reads long prompts in so many calls at most; one that never gets to drafting is no use.
constexpr uint32_t kEmptyMax = 256;
constexpr double kDebtShare = 0.1;  // of a step's time, that is paid back

constexpr DraftOrigin kOrigins[] = {DraftOrigin::kText, DraftOrigin::kModel};

void add_run(double fade, uint32_t num_right, bool is_told, DraftsTold* told) {
  told->num_right = told->num_right * fade + num_right;
  told->num_told = told->num_told * fade + num_right + (is_told ? 1 : 0);
}

}  // namespace

DraftPlace* draft_place(ModelDrafter* drafter, Sequence& sequence) {
  std::unique_ptr<DraftPlace>& place = sequence.drafts.place;
  if (!place) place = drafter->begin(sequence.origin.identity);
  return place.get();
}

DraftChoice::DraftChoice(const Parts& parts)
    : parts_(parts),
      has_states_(std::ranges::find(parts.config.kv_pools, CacheKind::kState, &KvPoolSize::kind) !=
                  parts.config.kv_pools.end()) {
  candidates_.reserve(parts.config.sample_rows_max);
}

bool DraftChoice::awaits_tokens() const {
  if (!has_any() || !parts_.running.has_drafters()) return false;
  for (Sequence* row : parts_.running.rows()) {
    const InFlight& in_flight = row->progress.in_flight;
    if (!in_flight.is_certain()) return true;
    if (in_flight.is_empty() || !may_have_drafts(*row) || !row->may_sample()) continue;
    if (may_ask(*row, DraftOrigin::kModel)) return true;
    if (states_allow(row->tokens.size() + in_flight.min) == 0) continue;
    if (may_ask(*row, DraftOrigin::kText) && row->expects_text_drafts()) return true;
  }
  return false;
}

bool DraftChoice::may_have_drafts(const Sequence& sequence) const {
  if (!has_any() || !sequence.drafts.are_wanted() || sequence.is_paused) return false;
  return sequence.lane() <= Lane::kAgent || parts_.waiting.size() == 0;
}

// Text that a grammar fixes counts as the row's own.
bool DraftChoice::has_origin(const Sequence& sequence, DraftOrigin origin) const {
  const Drafts& drafts = sequence.drafts;
  if (origin == DraftOrigin::kModel) return drafts.by_model && parts_.config.model_drafter != nullptr;
  return drafts.drafter || (drafts.by_model && sequence.constraint);
}

// Drafts the first of which stands at `position`.
uint32_t DraftChoice::states_allow(size_t position) const {
  if (!has_states_) return kDraftTokensMax;
  return drafts_beside_states(static_cast<uint32_t>(position), parts_.config.state_back_tokens);
}

uint32_t DraftChoice::most_of(const Sequence& sequence) const {
  return std::min({sequence.request.speculation->tokens_max, sequence.draft_room(), parts_.draft.tokens_left(),
                   parts_.draft.samples_left(), states_allow(sequence.tokens.size())});
}

double DraftChoice::chance_of_next(const Sequence& sequence, DraftOrigin origin) const {
  const DraftsTold& all = gain_of(sequence, origin).told;
  const double of_class = (all.num_right + kChanceFirst * kToldFirst) / (all.num_told + kToldFirst);
  const DraftsTold& own = sequence.drafts.told[static_cast<size_t>(origin)];
  return std::min(kChanceMost, (own.num_right + of_class * kToldFirst) / (own.num_told + kToldFirst));
}

void DraftChoice::take(uint64_t plan) {
  plan_ = plan;
  if (!has_any() || !parts_.running.has_drafters()) return;
  find_rows();
  ask_texts();
  ask_model();
  find_candidates();
  if (candidates_.empty()) return;
  std::ranges::sort(candidates_, [](const Candidate& a, const Candidate& b) { return a.chance > b.chance; });
  const size_t room = std::min<size_t>(parts_.draft.tokens_left(), parts_.draft.samples_left());
  candidates_.resize(std::min(candidates_.size(), room));
  take_first(most_that_pay());
}

// Rows that take the newest of their tokens, all of which are known.
void DraftChoice::find_rows() {
  rows_.clear();
  work_ = {};
  num_drawn_ = 0;
  bool some_are_off = false;
  for (Sequence* row : parts_.running.rows()) {
    const uint32_t count = row->take.tokens;
    if (count == 0) continue;
    if (count == 1)
      add_decoding(&work_, row->progress.computed, 1, 1);
    else
      add_chunk(&work_, row->progress.computed, count);
    if (!row->draws(count)) continue;
    ++num_drawn_;
    if (count != 1 || !row->progress.in_flight.is_empty() || !row->drafts.are_wanted()) continue;
    for (const DraftOrigin origin : kOrigins) some_are_off |= has_origin(*row, origin) && is_off(*row, origin);
    if (may_have_drafts(*row)) rows_.push_back(row);
  }
  stats_.num_steps_off += some_are_off;
}

void DraftChoice::ask_texts() {
  for (Sequence* row : rows_) {
    row->begin_drafts();
    if (row->drafts.drafter && may_ask(*row, DraftOrigin::kText))
      row->drafts.drafter->propose(row->tokens, most_of(*row), &row->drafts.tokens);
  }
}

// Where a grammar fixes the next token the model has nothing to add.
void DraftChoice::ask_model() {
  model_rows_.clear();
  LaneFlags lanes = {};
  for (Sequence* row : rows_) {
    if (!row->drafts.tokens.empty() || !may_ask(*row, DraftOrigin::kModel)) continue;
    if (row->constraint && row->constraint->is_fixed()) continue;
    if (most_of(*row) == 0) continue;
    model_rows_.push_back(row);
    lanes[static_cast<size_t>(row->lane())] = true;
  }
  if (model_rows_.empty()) return;
  const auto gain_in = [this](size_t lane) -> Gain& { return gains_[lane][static_cast<size_t>(DraftOrigin::kModel)]; };
  const uint32_t passes = passes_that_pay();
  if (passes == 0) {
    for (size_t lane = 0; lane < kNumLanes; ++lane)
      if (lanes[lane]) note_unused(gain_in(lane), false);
    return;
  }
  asks_.clear();
  for (Sequence* row : model_rows_) {
    Drafts& drafts = row->drafts;
    asks_.push_back({.place = draft_place(parts_.config.model_drafter, *row),
                     .tokens = row->tokens,
                     .sampling = plain_sampling(row->request.sampling),
                     .output_position = row->num_output(),
                     .most = std::min(passes, most_of(*row)),
                     .drafts = &drafts.tokens});
  }
  const ModelDrafter::Took took = parts_.config.model_drafter->propose(asks_);
  stats_.model_ms += took.draft_ms;
  stats_.model_read_ms += took.read_ms;
  asked_[plan_ % asked_.size()] = {plan_, took, lanes};
  LaneFlags has_some = {};
  for (Sequence* row : model_rows_) {
    if (row->drafts.tokens.empty()) continue;
    row->drafts.origin = DraftOrigin::kModel;
    has_some[static_cast<size_t>(row->lane())] = true;
  }
  for (size_t lane = 0; lane < kNumLanes; ++lane) {
    if (!lanes[lane]) continue;
    Gain& gain = gain_in(lane);
    gain.num_empty = has_some[lane] ? 0 : gain.num_empty + 1;
    if (gain.num_empty == kEmptyMax) turn_off(gain);
  }
}

// Of passes of the draft model, each of which drafts a token more for all of its rows: with so many the step's tokens
// are expected to come fastest.
uint32_t DraftChoice::passes_that_pay() {
  uint32_t most = 0;
  bool is_trial = false;
  for (const Sequence* row : model_rows_) {
    most = std::max(most, most_of(*row));
    is_trial |= gain_of(*row, DraftOrigin::kModel).is_trial;
  }
  const CostModel& cost = parts_.pace.cost();
  if (is_trial || !cost.knows_steps()) return most;
  const double pass_ms = parts_.config.model_drafter->pass_ms(model_rows_.size());
  StepWork work = work_;
  double tokens = num_drawn_, best_rate = tokens / cost.step_ms(work);
  uint32_t best = 0;
  chances_.assign(model_rows_.size(), 1);
  for (uint32_t pass = 1; pass <= most; ++pass) {
    for (size_t i = 0; i < model_rows_.size(); ++i) {
      const Sequence& row = *model_rows_[i];
      if (most_of(row) < pass) continue;
      add_draft(&work, row, pass - 1);
      tokens += chances_[i] *= chance_of_next(row, DraftOrigin::kModel);
    }
    const double rate = tokens / (cost.step_ms(work) + pass * pass_ms);
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = pass;
  }
  return best;
}

void DraftChoice::find_candidates() {
  candidates_.clear();
  for (Sequence* row : rows_) {
    Drafts& drafts = row->drafts;
    if (drafts.origin == DraftOrigin::kText && !may_ask(*row, DraftOrigin::kText)) continue;
    row->complete_drafts(most_of(*row), parts_.config.end_of_generation);
    const double chance_of_one = chance_of_next(*row, drafts.origin);
    double chance = 1;
    for (size_t i = 0; i < drafts.tokens.size(); ++i) {
      const bool is_certain = row->constraint && row->constraint->is_certain(i);
      candidates_.push_back({chance *= is_certain ? 1 : chance_of_one, row, static_cast<uint32_t>(i)});
    }
  }
}

// What a row's tokens read more with so many drafts behind the first `count` of them.
uint64_t DraftChoice::keys_of_drafts(uint64_t start, uint64_t count, uint64_t num_drafts) const {
  const uint32_t item_tokens = parts_.config.decode_item_tokens;
  return decode_keys_of(start, count + num_drafts, item_tokens) - decode_keys_of(start, count, item_tokens);
}

void DraftChoice::add_draft(StepWork* work, const Sequence& row, uint32_t draft_idx) const {
  ++work->tokens;
  work->decode_keys += keys_of_drafts(row.progress.computed, draft_idx + 1, 1);
}

// Of the candidates, the likeliest first: with so many of them the step's tokens come fastest.
size_t DraftChoice::most_that_pay() const {
  const CostModel& cost = parts_.pace.cost();
  if (!cost.knows_steps()) return candidates_.size();
  StepWork work = work_;
  double tokens = num_drawn_, best_rate = tokens / cost.step_ms(work);
  size_t best = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& candidate = candidates_[i];
    if (gain_of(*candidate.row, candidate.row->drafts.origin).is_trial) best = i + 1;
    add_draft(&work, *candidate.row, candidate.draft_idx);
    tokens += candidate.chance;
    const double rate = tokens / cost.step_ms(work);
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = i + 1;
  }
  return best;
}

void DraftChoice::take_first(size_t count) {
  for (const Candidate& candidate : std::span(candidates_).first(count)) ++candidate.row->take.drafts;
  std::array<LaneFlags, kNumDraftOrigins> has_some = {}, uses_some = {};
  for (const Candidate& candidate : candidates_)
    has_some[static_cast<size_t>(candidate.row->drafts.origin)][static_cast<size_t>(candidate.row->lane())] = true;
  for (Sequence* row : parts_.running.rows()) {
    if (row->take.drafts == 0) continue;
    uint32_t wanted = std::exchange(row->take.drafts, 0);
    const auto fits = [&] {
      return parts_.draft.can_take_drafts(*row, wanted) &&
             parts_.kv.grow(row->residency.tables, row->progress.computed + row->take.tokens + wanted);
    };
    while (wanted > 0 && !fits()) --wanted;
    parts_.draft.take_drafts(*row, wanted);
    uses_some[static_cast<size_t>(row->drafts.origin)][static_cast<size_t>(row->lane())] |= wanted > 0;
  }
  for (size_t lane = 0; lane < kNumLanes; ++lane)
    for (size_t origin = 0; origin < kNumDraftOrigins; ++origin)
      if (has_some[origin][lane]) note_unused(gains_[lane][origin], uses_some[origin][lane]);
}

// A step in which a class could have had some.
void DraftChoice::note_unused(Gain& gain, bool uses_some) {
  gain.is_trial = false;
  gain.num_unused = uses_some ? 0 : gain.num_unused + 1;
  if (gain.num_unused == kUnusedMax) turn_off(gain);
}

// ---- what has come of them -----------------------------------------------------------------------------------------

void DraftChoice::note_run(Sequence& sequence, const PlanRow& row, uint32_t num_right, bool is_told) {
  Gain& gain = gain_of(sequence, row.draft_origin);
  add_run(kClassFade, num_right, is_told, &gain.told);
  add_run(kRowFade, num_right, is_told, &sequence.drafts.told[static_cast<size_t>(row.draft_origin)]);
  gain.step_tokens += num_right;
  ++stats_.num_runs;
  stats_.num_proposed += row.num_drafts;
  stats_.num_accepted += num_right;
  if (row.draft_origin != DraftOrigin::kModel) return;
  stats_.num_model_proposed += row.num_drafts;
  stats_.num_model_accepted += num_right;
}

// What passes between the ends of two steps beside the second one's own time, and that of the draft model before it.
double DraftChoice::pause_ms(uint64_t step, double step_ms, TimeNs now) {
  const double wall_ms = last_step_ + 1 == step ? ms_between(last_commit_ns_, now) : 0;
  last_step_ = step;
  last_commit_ns_ = now;
  const Asked& asked = asked_[step % asked_.size()];
  const double model_ms = asked.plan == step ? asked.took.draft_ms + asked.took.read_ms : 0;
  return std::clamp(wall_ms - model_ms - step_ms, 0.0, step_ms);
}

void DraftChoice::note_commit(const IterationPlan& plan, const StepTimes& times, TimeNs now) {
  const double pause = pause_ms(plan.step, times.step_ms, now);
  StepWork without = plan.work;
  std::array<uint32_t, kNumLanes> rows = {};
  std::array<LaneFlags, kNumDraftOrigins> has_drafts = {};
  bool has_some = false;
  for (const PlanRow& row : plan.rows) {
    const size_t lane = static_cast<size_t>(row.lane);
    rows[lane] += row.num_samples > 0;
    if (row.num_drafts == 0) continue;
    has_some = has_drafts[static_cast<size_t>(row.draft_origin)][lane] = true;
    without.tokens -= row.num_drafts;
    without.decode_keys -= keys_of_drafts(row.start, row.num_tokens - row.num_drafts, row.num_drafts);
  }
  // No step waits longer for want of drafts.
  if (!has_some || pause < pause_without_ms_) pause_without_ms_ += kPauseFade * (pause - pause_without_ms_);
  stats_.num_steps += has_some;
  const CostModel& cost = parts_.pace.cost();
  const bool is_known = times.step_ms > 0 && cost.knows_steps();
  const Asked& asked = asked_[plan.step % asked_.size()];
  for (size_t lane = 0; lane < kNumLanes; ++lane) {
    Gain& of_model = gains_[lane][static_cast<size_t>(DraftOrigin::kModel)];
    if (asked.plan == plan.step && asked.lanes[lane] && is_known) {
      of_model.ms += asked.took.draft_ms;
      of_model.debt_ms += asked.took.read_ms;
    }
    uint32_t tokens = 0;
    for (Gain& gain : gains_[lane]) tokens += std::exchange(gain.step_tokens, 0);
    for (size_t origin = 0; origin < kNumDraftOrigins; ++origin) {
      if (!has_drafts[origin][lane]) continue;
      Gain& gain = gains_[lane][origin];
      if (is_known) {
        const double paid_ms = std::min(gain.debt_ms, kDebtShare * times.step_ms);
        gain.debt_ms -= paid_ms;
        gain.tokens += tokens;
        gain.rows += rows[lane];
        gain.ms += times.step_ms + pause + paid_ms;
        gain.ms_without += cost.step_ms(without) + pause_without_ms_;
        ++gain.num_steps;
      }
      judge(gain);
    }
  }
}

void DraftChoice::judge(Gain& gain) {
  if (gain.num_steps < kStepsPoor) return;
  const double tokens = 1 + static_cast<double>(gain.tokens) / static_cast<double>(gain.rows);
  const double times = tokens * gain.ms_without / gain.ms;
  if (times < kGainPoor || (gain.num_steps >= kStepsJudged && times < kGainMin)) return turn_off(gain);
  if (gain.num_steps < kStepsJudged) return;
  if (gain.num_judged++ % kJudgementsPlain == 0) gain.off_until = plan_ + kStepsPlain;
  gain.off_steps = 0;  // it pays
  gain.tokens = gain.rows = gain.num_steps = 0;
  gain.ms = gain.ms_without = 0;
}

// Twice as long as the last time.
void DraftChoice::turn_off(Gain& gain) {
  const uint32_t steps = gain.off_steps == 0 ? kStepsOff : std::min(2 * gain.off_steps, kStepsOffMax);
  gain = {.told = gain.told, .num_judged = gain.num_judged};
  gain.off_steps = steps;
  gain.off_until = plan_ + steps;
  gain.is_trial = true;
}

}  // namespace llmrt
