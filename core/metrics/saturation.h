// Is an engine saturated, and in which way: verdicts over its counters, each a fact with the figure and the limit that
// made it. A verdict changes nothing: it is shown (/metrics, /health), and a server that saturates stays ready.
//
// Counters are looked at once in a bucket of time; "recent" is the last 6 buckets (a minute), "before" is what the
// ring still has of the time before that (up to 9 minutes). Pure: time is a parameter. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/clock.h"
#include "core/metrics/in_system.h"

namespace llmrt {

enum class Saturation : uint8_t {
  kTtftOverSlo,      // recently more than 5 % of first tokens came too late (p95 over the SLO), for 5 minutes now
  kTpotOverSlo,      // the same of the mean time between a request's tokens
  kKvShort,          // free KV blocks, cached ones among them: less than 10 % over a bucket
  kQueueRising,      // waiting tokens grew recently by more than 10 % of what arrived, and not in one jump
  kPreemptionSpike,  // at least 10 recently, and 4 times as many as in a minute before
  kHitRateDrop,      // prefix cache: recently less than half of the mean before
  kLoadRising,       // recently half as many again in the system as before, at no more arrivals: service slows down
  kWorkerSkew,       // one worker had twice the load of the others' mean, over a minute (WorkerSkew)
};
inline constexpr size_t kNumSaturations = 8;
const char* saturation_name(Saturation saturation);  // "ttft_over_slo", ...
const char* saturation_text(Saturation saturation);  // what it says and in what unit value and limit are, a sentence

struct SaturationVerdict {
  bool is_raised = false;
  double value = 0, limit = 0;  // when last looked at
  TimeNs raised_ns = 0;         // since when, if raised
};
using SaturationVerdicts = std::array<SaturationVerdict, kNumSaturations>;

// Service level objectives: what counts as late.
struct Slo {
  double ttft_ms = 2000;  // arrival to first token
  double tpot_ms = 100;   // (last - first) / (tokens - 1) of a request
};

struct SaturationLimits {
  double bucket_s = 10;
  double slo_broken_s = 300;
  double late_share = 0.05;
  double kv_free_share = 0.10;
  double queue_growth_share = 0.10;
  double preemption_factor = 4;
  uint64_t preemptions_min = 10;
  double hit_rate_factor = 0.5;
  double hit_rate_min = 0.1;  // before, to be worth a word
  uint64_t hit_rate_tokens_min = 1000;
  double load_factor = 1.5;
  double arrivals_factor = 1.1;  // what counts as no more arrivals
  double skew_factor = 2;
};

// What the monitor looks at: counters since the start, and gauges of now.
struct SaturationSample {
  uint64_t num_first_tokens = 0, num_first_tokens_late = 0;
  uint64_t num_tpots = 0, num_tpots_late = 0;
  uint64_t num_preemptions = 0;
  uint64_t prefix_queries = 0, prefix_hits = 0;  // in tokens
  uint64_t prefix_host_hits = 0;                 // of the hits
  uint64_t prefix_disk_hits = 0;                 // of the hits
  uint64_t prompt_tokens = 0;                    // admitted
  InSystem in_system;
  uint32_t num_unanswered = 0;  // of those in the system: without their first token
  uint64_t queue_tokens = 0;
  double kv_free_share = 1;
};

class SaturationMonitor {
 public:
  explicit SaturationMonitor(const SaturationLimits& limits = {});

  // To be called often, at least once in a bucket; gauges count until the next call. Allocates nothing.
  void sample(const SaturationSample& sample, TimeNs now);

  const SaturationVerdicts& verdicts() const { return verdicts_; }
  // Over the last 5 minutes, or since the start.
  const LittlesLaw& littles_law() const { return littles_law_; }
  // The share of prompt tokens looked up in the last minute that were found; 0 when there were none.
  double recent_hit_rate() const { return recent_hit_rate_; }
  double recent_host_hit_rate() const { return recent_host_hit_rate_; }
  double recent_disk_hit_rate() const { return recent_disk_hit_rate_; }

 private:
  struct Mark {  // counters at the end of a bucket, and means over it
    TimeNs time_ns = 0;
    SaturationSample sample;
    double area_s = 0;
    double queue_tokens = 0, kv_free_share = 1;
  };
  const Mark& mark(size_t age) const;  // 0 = the newest
  void close_bucket(TimeNs now);
  void judge_slo(Saturation which, uint64_t num, uint64_t num_late, bool is_awaited, TimeNs* since_ns);
  void judge_kv();
  void judge_queue();
  void judge_preemptions();
  void judge_hit_rate();
  void judge_load();
  void judge(Saturation which, bool is_raised, double value, double limit);
  LittlesLaw law_between(const Mark& begin, const Mark& end) const;

  const SaturationLimits limits_;
  std::vector<Mark> ring_;
  size_t num_marks_ = 0;  // since the start
  SaturationSample last_;
  TimeNs sampled_ns_ = 0;
  double queue_area_ = 0, kv_free_area_ = 0;    // of the bucket that is open
  TimeNs ttft_late_ns_ = 0, tpot_late_ns_ = 0;  // since when p95 is over its objective; 0 = it is not
  SaturationVerdicts verdicts_;
  LittlesLaw littles_law_;
  double recent_hit_rate_ = 0, recent_host_hit_rate_ = 0, recent_disk_hit_rate_ = 0;
};

// How evenly several workers of one model are loaded. The load is whatever counts for all of them alike, such as tokens
// waiting and running.
class WorkerSkew {
 public:
  explicit WorkerSkew(const SaturationLimits& limits = {}) : limits_(limits) {}
  // The verdict is raised when the busiest worker, whichever it is, has had too much at every sample for 6 buckets.
  const SaturationVerdict& sample(std::span<const double> loads, TimeNs now);

 private:
  const SaturationLimits limits_;
  TimeNs skewed_since_ns_ = -1;
  SaturationVerdict verdict_;
};

}  // namespace llmrt
