#include "core/metrics/saturation.h"

#include <algorithm>
#include <cmath>

namespace llmrt {
namespace {

constexpr size_t kRecent = 6;      // buckets
constexpr size_t kBeforeMin = 18;  // buckets that "before" must have, to be compared with
constexpr size_t kRing = 60;       // buckets that are kept
constexpr size_t kLaw = 30;        // buckets over which Little's law is told

double seconds(TimeNs begin, TimeNs end) {
  return static_cast<double>(end - begin) * 1e-9;
}

double share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

const char* saturation_name(Saturation saturation) {
  constexpr const char* kNames[] = {"ttft_over_slo",    "tpot_over_slo", "kv_short",    "queue_rising",
                                    "preemption_spike", "hit_rate_drop", "load_rising", "worker_skew"};
  return kNames[static_cast<size_t>(saturation)];
}

const char* saturation_text(Saturation saturation) {
  constexpr const char* kTexts[] = {
      "p95 of the time to the first token has been over its objective for 5 minutes (share of late ones)",
      "p95 of the time per output token has been over its objective for 5 minutes (share of late ones)",
      "few KV blocks are free, cached ones among the free (share of the pool)",
      "waiting tokens rise (tokens gained in a minute; the limit is 10 % of what arrived)",
      "running requests yield far more often than before (preemptions in a minute)",
      "the prefix cache finds far less than before (share of prompt tokens)",
      "more requests are in the system at no more arrivals: service slows down (requests, mean of a minute)",
      "one worker has far more to do than the others (load over the others' mean)"};
  return kTexts[static_cast<size_t>(saturation)];
}

SaturationMonitor::SaturationMonitor(const SaturationLimits& limits) : limits_(limits), ring_(kRing + 1) {}

const SaturationMonitor::Mark& SaturationMonitor::mark(size_t age) const {
  return ring_[(num_marks_ - 1 - age) % ring_.size()];
}

void SaturationMonitor::sample(const SaturationSample& sample, TimeNs now) {
  if (num_marks_ == 0) {
    ring_[num_marks_++] = {.time_ns = now, .sample = sample, .area_s = sample.in_system.area_s(now)};
  } else {
    const double held_s = seconds(sampled_ns_, now);
    queue_area_ += held_s * static_cast<double>(last_.queue_tokens);
    kv_free_area_ += held_s * last_.kv_free_share;
  }
  last_ = sample;
  sampled_ns_ = now;
  if (seconds(mark(0).time_ns, now) >= limits_.bucket_s) close_bucket(now);
}

void SaturationMonitor::close_bucket(TimeNs now) {
  const double length_s = seconds(mark(0).time_ns, now);
  ring_[num_marks_ % ring_.size()] = {.time_ns = now,
                                      .sample = last_,
                                      .area_s = last_.in_system.area_s(now),
                                      .queue_tokens = queue_area_ / length_s,
                                      .kv_free_share = kv_free_area_ / length_s};
  ++num_marks_;
  queue_area_ = kv_free_area_ = 0;
  littles_law_ = law_between(mark(std::min(num_marks_ - 1, kLaw)), mark(0));

  const SaturationSample& then = mark(std::min(num_marks_ - 1, kRecent)).sample;
  judge_slo(Saturation::kTtftOverSlo, last_.num_first_tokens - then.num_first_tokens,
            last_.num_first_tokens_late - then.num_first_tokens_late, last_.num_unanswered > 0, &ttft_late_ns_);
  judge_slo(Saturation::kTpotOverSlo, last_.num_tpots - then.num_tpots, last_.num_tpots_late - then.num_tpots_late,
            last_.in_system.num() > 0, &tpot_late_ns_);
  judge_kv();
  const uint64_t queries = last_.prefix_queries - then.prefix_queries;
  recent_hit_rate_ = share(last_.prefix_hits - then.prefix_hits, queries);
  recent_host_hit_rate_ = share(last_.prefix_host_hits - then.prefix_host_hits, queries);
  recent_disk_hit_rate_ = share(last_.prefix_disk_hits - then.prefix_disk_hits, queries);
  if (num_marks_ > kRecent) judge_queue();
  judge_preemptions();
  if (num_marks_ <= kRecent + kBeforeMin) return;
  judge_hit_rate();
  judge_load();
}

void SaturationMonitor::judge(Saturation which, bool is_raised, double value, double limit) {
  SaturationVerdict& verdict = verdicts_[static_cast<size_t>(which)];
  if (is_raised && !verdict.is_raised) verdict.raised_ns = mark(0).time_ns;
  verdict.is_raised = is_raised;
  verdict.value = value;
  verdict.limit = limit;
}

// p95 is over the objective exactly when more than 5 % of the samples are. Without samples while one is awaited nothing
// is known, and what was so stays so.
void SaturationMonitor::judge_slo(Saturation which, uint64_t num, uint64_t num_late, bool is_awaited,
                                  TimeNs* since_ns) {
  const double late_share = share(num_late, num);
  const TimeNs now = mark(0).time_ns;
  const bool is_unknown = num == 0 && is_awaited;
  if (!is_unknown && late_share <= limits_.late_share) {
    *since_ns = 0;
  } else if (!is_unknown && *since_ns == 0) {
    *since_ns = now;
  }
  const bool is_raised = *since_ns != 0 && seconds(*since_ns, now) >= limits_.slo_broken_s;
  judge(which, is_raised, is_unknown ? verdicts_[static_cast<size_t>(which)].value : late_share, limits_.late_share);
}

void SaturationMonitor::judge_kv() {
  const double free_share = mark(0).kv_free_share;
  judge(Saturation::kKvShort, free_share < limits_.kv_free_share, free_share, limits_.kv_free_share);
}

// Growing in most steps, not in one jump: a burst that is being worked off is no trend.
void SaturationMonitor::judge_queue() {
  size_t num_rises = 0;
  for (size_t age = 0; age + 1 < kRecent; ++age) num_rises += mark(age).queue_tokens > mark(age + 1).queue_tokens;
  const double growth = mark(0).queue_tokens - mark(kRecent - 1).queue_tokens;
  const auto admitted = static_cast<double>(last_.prompt_tokens - mark(kRecent).sample.prompt_tokens);
  const double limit = limits_.queue_growth_share * (admitted + std::max(growth, 0.0));
  judge(Saturation::kQueueRising, num_rises + 2 >= kRecent && growth > limit, growth, limit);
}

void SaturationMonitor::judge_preemptions() {
  const Mark& begin = mark(std::min(num_marks_ - 1, kRecent));
  const Mark& oldest = mark(std::min(num_marks_ - 1, kRing));
  const auto recent = static_cast<double>(last_.num_preemptions - begin.sample.num_preemptions);
  const auto before = static_cast<double>(begin.sample.num_preemptions - oldest.sample.num_preemptions);
  const double before_s = seconds(oldest.time_ns, begin.time_ns);
  const double usual = before_s > 0 ? before * seconds(begin.time_ns, mark(0).time_ns) / before_s : 0;
  const double limit = std::max(static_cast<double>(limits_.preemptions_min), limits_.preemption_factor * usual);
  judge(Saturation::kPreemptionSpike, recent >= limit, recent, limit);
}

void SaturationMonitor::judge_hit_rate() {
  const SaturationSample& begin = mark(kRecent).sample;
  const SaturationSample& oldest = mark(std::min(num_marks_ - 1, kRing)).sample;
  const uint64_t recent_queries = last_.prefix_queries - begin.prefix_queries;
  const uint64_t before_queries = begin.prefix_queries - oldest.prefix_queries;
  const double before = share(begin.prefix_hits - oldest.prefix_hits, before_queries);
  const bool is_worth =
      std::min(recent_queries, before_queries) >= limits_.hit_rate_tokens_min && before >= limits_.hit_rate_min;
  const double limit = limits_.hit_rate_factor * before;
  judge(Saturation::kHitRateDrop, is_worth && recent_hit_rate_ < limit, recent_hit_rate_, limit);
}

// Both figures of a minute are random: each may be off by its spread (that of a Poisson process) without a verdict.
void SaturationMonitor::judge_load() {
  const LittlesLaw recent = law_between(mark(kRecent), mark(0));
  const LittlesLaw before = law_between(mark(std::min(num_marks_ - 1, kRing)), mark(kRecent));
  const double length_s = seconds(mark(kRecent).time_ns, mark(0).time_ns);
  const double arrivals = recent.arrivals_per_s * length_s, arrivals_before = before.arrivals_per_s * length_s;
  const double limit =
      before.in_system + std::max((limits_.load_factor - 1) * before.in_system, 3 * std::sqrt(before.in_system));
  const bool no_more_arrivals = arrivals <= limits_.arrivals_factor * arrivals_before + std::sqrt(arrivals_before);
  judge(Saturation::kLoadRising, before.in_system > 0 && no_more_arrivals && recent.in_system > limit, recent.in_system,
        limit);
}

LittlesLaw SaturationMonitor::law_between(const Mark& begin, const Mark& end) const {
  const double length_s = seconds(begin.time_ns, end.time_ns);
  if (length_s <= 0) return {};
  const InSystem &from = begin.sample.in_system, &to = end.sample.in_system;
  LittlesLaw law;
  law.in_system = (end.area_s - begin.area_s) / length_s;
  law.arrivals_per_s = static_cast<double>(to.arrivals() - from.arrivals()) / length_s;
  const uint64_t departures = to.departures() - from.departures();
  if (departures > 0) law.time_in_system_s = (to.sojourn_s() - from.sojourn_s()) / static_cast<double>(departures);
  return law;
}

const SaturationVerdict& WorkerSkew::sample(std::span<const double> loads, TimeNs now) {
  verdict_.limit = limits_.skew_factor;
  verdict_.value = 0;
  if (loads.size() > 1) {
    const double busiest = *std::ranges::max_element(loads);
    double sum = 0;
    for (const double load : loads) sum += load;
    const double others = (sum - busiest) / static_cast<double>(loads.size() - 1);
    // Of idle workers none is skewed; beside idle ones a busy one counts as far over the limit.
    if (busiest > 0) verdict_.value = others > 0 ? busiest / others : 1e3;
  }
  if (verdict_.value < limits_.skew_factor)
    skewed_since_ns_ = -1;
  else if (skewed_since_ns_ < 0)
    skewed_since_ns_ = now;
  const bool was_raised = verdict_.is_raised;
  verdict_.is_raised =
      skewed_since_ns_ >= 0 && seconds(skewed_since_ns_, now) >= static_cast<double>(kRecent) * limits_.bucket_s;
  if (verdict_.is_raised && !was_raised) verdict_.raised_ns = now;
  return verdict_;
}

}  // namespace llmrt
