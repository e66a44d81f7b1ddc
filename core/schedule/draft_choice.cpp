#include "core/schedule/draft_choice.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace llmrt {
namespace {

// What drafts are held against, and how soon.
constexpr double kGainMin = 1.02, kGainPoor = 0.9;
constexpr uint32_t kStepsJudged = 32, kStepsPoor = 8;
constexpr uint32_t kUnusedMax = 16;  // steps in a row in which the cost model is against all of a class
constexpr uint32_t kStepsOff = 256, kStepsOffMax = 4096;
// What is expected of a class before it has had drafts, and of a row, in drafts that were told.
constexpr double kChanceFirst = 0.7, kToldFirst = 4;
constexpr double kChanceMost = 0.98;
constexpr double kPauseFade = 0.05;                   // for each step
constexpr double kRowFade = 0.85, kClassFade = 0.98;  // for each run

void add_run(double fade, uint32_t num_right, bool is_told, double* right, double* told) {
  *right = *right * fade + num_right;
  *told = *told * fade + num_right + (is_told ? 1 : 0);
}

}  // namespace

DraftChoice::DraftChoice(const Parts& parts)
    : parts_(parts),
      has_states_(std::ranges::find(parts.config.kv_pools, CacheKind::kState, &KvPoolSize::kind) !=
                  parts.config.kv_pools.end()) {
  candidates_.reserve(parts.config.sample_rows_max);
}

bool DraftChoice::awaits_tokens() const {
  if (!parts_.running.has_drafters()) return false;
  for (Sequence* row : parts_.running.rows()) {
    const InFlight& in_flight = row->progress.in_flight;
    if (!in_flight.is_certain()) return true;
    if (in_flight.is_empty() || !may_have_drafts(*row) || !row->may_sample()) continue;
    if (row->expects_drafts()) return true;
  }
  return false;
}

bool DraftChoice::may_have_drafts(const Sequence& sequence) const {
  if (has_states_ || !sequence.drafts.drafter || sequence.is_paused) return false;
  const bool yields = sequence.lane() > Lane::kAgent && parts_.waiting.size() > 0;
  return !yields && gain_of(sequence).off_until <= plan_;
}

double DraftChoice::chance_of_next(const Sequence& sequence) const {
  const Gain& gain = gain_of(sequence);
  const double of_class = (gain.num_right + kChanceFirst * kToldFirst) / (gain.num_told + kToldFirst);
  const Drafts& own = sequence.drafts;
  return std::min(kChanceMost, (own.num_right + of_class * kToldFirst) / (own.num_told + kToldFirst));
}

void DraftChoice::take(uint64_t plan) {
  plan_ = plan;
  if (has_states_ || !parts_.running.has_drafters()) return;
  find_candidates();
  if (candidates_.empty()) return;
  std::ranges::sort(candidates_, [](const Candidate& a, const Candidate& b) { return a.chance > b.chance; });
  const size_t room = std::min<size_t>(parts_.draft.tokens_left(), parts_.draft.samples_left());
  candidates_.resize(std::min(candidates_.size(), room));
  take_first(most_that_pay());
}

// Rows that take the newest of their tokens, all of which are known.
void DraftChoice::find_candidates() {
  const StepDraft& draft = parts_.draft;
  candidates_.clear();
  work_ = {};
  num_drawn_ = 0;
  bool is_off = false;
  for (Sequence* row : parts_.running.rows()) {
    const uint32_t count = row->take.tokens;
    if (count == 0) continue;
    if (count == 1)
      add_decoding(&work_, row->progress.computed, 1, 1);
    else
      add_chunk(&work_, row->progress.computed, count);
    if (!row->draws(count)) continue;
    ++num_drawn_;
    if (count != 1 || !row->progress.in_flight.is_empty() || !row->drafts.drafter) continue;
    is_off |= gain_of(*row).off_until > plan_;
    if (!may_have_drafts(*row)) continue;
    const uint32_t most = std::min({row->request.speculation->tokens_max, draft.tokens_left(), draft.samples_left()});
    row->propose_drafts(most, parts_.config.end_of_generation);
    const double chance_of_one = chance_of_next(*row);
    double chance = 1;
    for (size_t i = 0; i < row->drafts.tokens.size(); ++i) {
      const bool is_certain = row->constraint && row->constraint->is_certain(i);
      candidates_.push_back({chance *= is_certain ? 1 : chance_of_one, row, static_cast<uint32_t>(i)});
    }
  }
  stats_.num_steps_off += is_off;
}

// What a row's tokens read more with so many drafts behind the first `count` of them.
uint64_t DraftChoice::keys_of_drafts(uint64_t start, uint64_t count, uint64_t num_drafts) const {
  const uint32_t item_tokens = parts_.config.decode_item_tokens;
  return decode_keys_of(start, count + num_drafts, item_tokens) - decode_keys_of(start, count, item_tokens);
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
    if (gain_of(*candidate.row).is_trial) best = i + 1;
    const uint64_t start = candidate.row->progress.computed, count = candidate.draft_idx + 1;
    ++work.tokens;
    work.decode_keys += keys_of_drafts(start, count, 1);
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
  LaneFlags has_some = {}, uses_some = {};
  for (const Candidate& candidate : candidates_) has_some[static_cast<size_t>(candidate.row->lane())] = true;
  for (Sequence* row : parts_.running.rows()) {
    if (row->take.drafts == 0) continue;
    uint32_t wanted = std::exchange(row->take.drafts, 0);
    const auto fits = [&] {
      return parts_.draft.can_take_drafts(*row, wanted) &&
             parts_.kv.grow(row->residency.tables, row->progress.computed + row->take.tokens + wanted);
    };
    while (wanted > 0 && !fits()) --wanted;
    parts_.draft.take_drafts(*row, wanted);
    uses_some[static_cast<size_t>(row->lane())] |= wanted > 0;
  }
  for (size_t lane = 0; lane < kNumLanes; ++lane) {
    if (!has_some[lane]) continue;
    Gain& gain = gains_[lane];
    gain.is_trial = false;
    gain.num_unused = uses_some[lane] ? 0 : gain.num_unused + 1;
    if (gain.num_unused == kUnusedMax) turn_off(gain);
  }
}

// ---- what has come of them -----------------------------------------------------------------------------------------

void DraftChoice::note_run(Sequence& sequence, uint32_t num_drafts, uint32_t num_right, bool is_told) {
  Gain& gain = gain_of(sequence);
  add_run(kClassFade, num_right, is_told, &gain.num_right, &gain.num_told);
  add_run(kRowFade, num_right, is_told, &sequence.drafts.num_right, &sequence.drafts.num_told);
  gain.step_tokens += num_right;
  ++stats_.num_runs;
  stats_.num_proposed += num_drafts;
  stats_.num_accepted += num_right;
}

// What passes between the ends of two steps beside the second one's own time.
double DraftChoice::pause_ms(uint64_t step, double step_ms, TimeNs now) {
  const double wall_ms = last_step_ + 1 == step ? ms_between(last_commit_ns_, now) : 0;
  last_step_ = step;
  last_commit_ns_ = now;
  return std::clamp(wall_ms - step_ms, 0.0, step_ms);
}

void DraftChoice::note_commit(const IterationPlan& plan, const StepTimes& times, TimeNs now) {
  const double pause = pause_ms(plan.step, times.step_ms, now);
  StepWork without = plan.work;
  std::array<uint32_t, kNumLanes> rows = {};
  LaneFlags has_drafts = {};
  for (const PlanRow& row : plan.rows) {
    const size_t lane = static_cast<size_t>(row.lane);
    rows[lane] += row.num_samples > 0;
    if (row.num_drafts == 0) continue;
    has_drafts[lane] = true;
    without.tokens -= row.num_drafts;
    without.decode_keys -= keys_of_drafts(row.start, row.num_tokens - row.num_drafts, row.num_drafts);
  }
  if (std::ranges::none_of(has_drafts, std::identity())) {
    pause_without_ms_ += kPauseFade * (pause - pause_without_ms_);
    return;
  }
  ++stats_.num_steps;
  const CostModel& cost = parts_.pace.cost();
  const bool is_known = times.step_ms > 0 && cost.knows_steps();
  for (size_t lane = 0; lane < kNumLanes; ++lane) {
    Gain& gain = gains_[lane];
    const uint32_t tokens = std::exchange(gain.step_tokens, 0);
    if (!has_drafts[lane]) continue;
    if (is_known) {
      gain.tokens += tokens;
      gain.rows += rows[lane];
      gain.ms += times.step_ms + pause;
      gain.ms_without += cost.step_ms(without) + pause_without_ms_;
      ++gain.num_steps;
    }
    judge(gain);
  }
}

void DraftChoice::judge(Gain& gain) {
  if (gain.num_steps < kStepsPoor) return;
  const double tokens = 1 + static_cast<double>(gain.tokens) / static_cast<double>(gain.rows);
  const double times = tokens * gain.ms_without / gain.ms;
  if (times < kGainPoor || (gain.num_steps >= kStepsJudged && times < kGainMin)) return turn_off(gain);
  if (gain.num_steps < kStepsJudged) return;
  gain.off_steps = 0;  // it pays
  gain.tokens = gain.rows = gain.num_steps = 0;
  gain.ms = gain.ms_without = 0;
}

// Twice as long as the last time.
void DraftChoice::turn_off(Gain& gain) {
  const uint32_t steps = gain.off_steps == 0 ? kStepsOff : std::min(2 * gain.off_steps, kStepsOffMax);
  gain = {.num_right = gain.num_right, .num_told = gain.num_told};
  gain.off_steps = steps;
  gain.off_until = plan_ + steps;
  gain.is_trial = true;
}

}  // namespace llmrt
