// What a file of request records says of the time that requests took: in which stage most of it went, and the likely
// cause. Adds up record by record in fixed memory (but for the list of workers, which is bounded).
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>

#include "core/metrics/engine_stats.h"
#include "core/metrics/latency_sketch.h"
#include "core/trace/trace_line.h"

namespace llmrt {

enum class TraceStage : uint8_t { kQueue, kPrefill, kDecode, kStream };
inline constexpr size_t kNumTraceStages = 4;
const char* trace_stage_name(TraceStage stage);

// Each belongs to one stage.
enum class TraceCause : uint8_t {
  kOverload,             // queue: more arrives than is served
  kOverReservation,      // queue: admission kept KV room free that was never used
  kWorkerSkew,           // queue: one worker had a long queue, others did not
  kUncachedPrompts,      // prefill: long prompts, little of them found in the prefix cache
  kStarvedPrefill,       // prefill: little to compute, but it waits for its share of the steps
  kPreemptions,          // decode: the KV pool is too small, so that requests yield and wait
  kPrefillInterference,  // decode: single tokens come very late, behind others' prompts
  kDecodeSpeed,          // decode: even steps; answers take as long as their tokens
  kWholeAnswers,         // stream: choices that are over wait for the others of an answer that is sent whole
  kSlowClients,          // stream: the answer was there before the client had read it
};
const char* trace_cause_name(TraceCause cause);  // "overload", ...
const char* trace_cause_text(TraceCause cause);  // a sentence with the advice

class TraceSummary {
 public:
  void add(const TraceRow& row);

  struct Stage {
    double sum_ms = 0;
    LatencySketch times;  // of requests that reached it
  };
  uint64_t num_requests() const { return num_requests_; }
  const Stage& stage(TraceStage which) const { return stages_[static_cast<size_t>(which)]; }
  double share(TraceStage which) const;  // of all stages' time; 0 when there was none
  const LatencySketch& ttft() const { return ttft_; }
  const LatencySketch& tpot() const { return tpot_; }
  const std::array<uint64_t, kNumFinishReasons>& finished() const { return finished_; }

  // With at least one request that took any time.
  struct Diagnosis {
    TraceStage dominant;
    TraceCause cause;
    std::string evidence;  // the figures behind the cause
  };
  Result<Diagnosis> diagnose() const;

 private:
  struct Worker {
    uint64_t num_requests = 0;
    double queue_ms = 0;
    double mean_ms() const { return queue_ms / static_cast<double>(num_requests); }
  };
  Diagnosis diagnose_queue() const;
  Diagnosis diagnose_prefill() const;
  Diagnosis diagnose_decode() const;
  Diagnosis diagnose_stream() const;
  void add_whole(const RequestTrace& trace);

  uint64_t num_requests_ = 0;
  std::array<Stage, kNumTraceStages> stages_;
  LatencySketch ttft_, tpot_;
  std::array<uint64_t, kNumFinishReasons> finished_ = {};
  std::map<std::string, Worker> workers_;
  uint64_t num_prompts_ = 0, prompt_tokens_ = 0, cached_tokens_ = 0;  // each computed once, by branch 0
  uint64_t output_tokens_ = 0;
  uint64_t held_tokens_ = 0, reserved_tokens_ = 0;  // of admitted ones: prompt and output, and what was counted on
  uint64_t num_admitted_ = 0;
  uint64_t num_preempted_ = 0, num_preemptions_ = 0;
  double preempted_decode_ms_ = 0;  // of those that yielded
  LatencySketch gap_p50_, gap_p99_;

  // Choices of an answer that was sent whole; their records stand one behind the other. What the last one of them to
  // end waited is the client's, what the others waited on top is for that one.
  struct Whole {
    std::string answer;
    uint64_t num_choices = 0;
    double least_ms = 0, sum_ms = 0;
    double waited_ms() const { return sum_ms - static_cast<double>(num_choices) * least_ms; }
  };
  Whole whole_;
  double waited_ms_ = 0;  // of the answers before that one
};

// Adds up all lines of an open file, however many. The error of a line begins with its number, from 1.
Result<TraceSummary> summarize_trace(std::FILE* file);

}  // namespace llmrt
