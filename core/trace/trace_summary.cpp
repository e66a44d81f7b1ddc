#include "core/trace/trace_summary.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cstring>

namespace llmrt {
namespace {

constexpr size_t kWorkerBytesMax = 256;
constexpr size_t kWorkersMax = 1024;       // more are counted together
constexpr double kSkewFactor = 3;          // mean queue of a worker over that of the others
constexpr double kReservationFactor = 2;   // reserved over used
constexpr double kCachedShare = 0.25;      // of prompts, below which they count as uncached
constexpr double kLongPromptTokens = 512;  // to compute, a request
constexpr double kPreemptedShare = 0.25;   // of the decode time, spent by requests that yielded
constexpr double kInterferenceFactor = 4;  // p99 over p50 of the gaps between a request's tokens
constexpr double kWaitedShare = 0.5;       // of the stream time, spent waiting for other choices

TimeNs ns_of(double ms) {
  return static_cast<TimeNs>(std::min(ms, kTraceMsMax) * 1e6);
}

double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

double per(uint64_t sum, uint64_t count) {
  return ratio(static_cast<double>(sum), static_cast<double>(count));
}

// False at the end of the file. What is longer than a record may be is cut one byte behind that.
bool read_line(std::FILE* file, std::string* line) {
  line->clear();
  int byte = std::getc(file);
  if (byte == EOF) return false;
  for (; byte != EOF && byte != '\n' && line->size() <= kTraceLineBytesMax; byte = std::getc(file))
    *line += static_cast<char>(byte);
  return true;
}

}  // namespace

const char* trace_stage_name(TraceStage stage) {
  constexpr const char* kNames[] = {"queue", "prefill", "decode", "stream"};
  return kNames[static_cast<size_t>(stage)];
}

const char* trace_cause_name(TraceCause cause) {
  constexpr const char* kNames[] = {"overload",        "over_reservation", "worker_skew",          "uncached_prompts",
                                    "starved_prefill", "preemptions",      "prefill_interference", "decode_speed",
                                    "whole_answers",   "slow_clients"};
  return kNames[static_cast<size_t>(cause)];
}

const char* trace_cause_text(TraceCause cause) {
  constexpr const char* kTexts[] = {
      "more arrives than is served: add workers, or refuse earlier",
      "admission keeps KV room free that answers never use: lower max_tokens or --reserve-output",
      "one worker has a long queue while others have none: look at how requests are spread",
      "long prompts are computed anew: see why the prefix cache does not find them (salt, changing beginnings, pool)",
      "little is to be computed, but prompts wait for their share of the steps: raise --chunk-tokens or --step-tokens",
      "the KV pool is too small for what runs: requests yield and wait; lower --sequences, or enlarge the pool",
      "single tokens come very late, behind others' prompts: lower --chunk-tokens",
      "steps are even, and answers take as long as their tokens: the device's speed at this batch size",
      "choices that are over wait for the last one of their answer, which is sent whole: stream, or ask for fewer at a "
      "time",
      "answers are there before the clients have read them: slow clients or network"};
  return kTexts[static_cast<size_t>(cause)];
}

void TraceSummary::add(const TraceRow& row) {
  const RequestTrace& trace = row.trace;
  ++num_requests_;
  ++finished_[static_cast<size_t>(trace.finish)];
  const std::optional<double> times[] = {trace.queue_ms, trace.prefill_ms, trace.decode_ms, trace.stream_ms};
  for (size_t i = 0; i < kNumTraceStages; ++i) {
    if (!times[i]) continue;
    stages_[i].sum_ms += *times[i];
    stages_[i].times.add(ns_of(*times[i]));
  }
  add_whole(trace);
  if (trace.ttft_ms) ttft_.add(ns_of(*trace.ttft_ms));
  if (trace.tpot_ms) tpot_.add(ns_of(*trace.tpot_ms));

  const std::string name = row.origin.worker_id.substr(0, kWorkerBytesMax);
  Worker& worker = workers_[workers_.size() < kWorkersMax || workers_.contains(name) ? name : "(others)"];
  ++worker.num_requests;
  worker.queue_ms += trace.queue_ms.value_or(0);

  output_tokens_ += trace.output_tokens;
  if (trace.reserved_kv_tokens > 0) {
    ++num_admitted_;
    held_tokens_ += uint64_t{trace.prompt_tokens} + trace.output_tokens;
    reserved_tokens_ += trace.reserved_kv_tokens;
  }
  if (trace.reserved_kv_tokens > 0 && trace.branch == 0) {
    ++num_prompts_;
    prompt_tokens_ += trace.prompt_tokens;
    cached_tokens_ += std::min(trace.cached_tokens, trace.prompt_tokens);
  }
  num_preemptions_ += trace.num_preemptions;
  if (trace.num_preemptions > 0) {
    ++num_preempted_;
    preempted_decode_ms_ += trace.decode_ms.value_or(0);
  }
  if (trace.itl_p50_ms && trace.itl_p99_ms) {
    gap_p50_.add(ns_of(*trace.itl_p50_ms));
    gap_p99_.add(ns_of(*trace.itl_p99_ms));
  }
}

double TraceSummary::share(TraceStage which) const {
  double sum = 0;
  for (const Stage& stage : stages_) sum += stage.sum_ms;
  return ratio(stage(which).sum_ms, sum);
}

Result<TraceSummary::Diagnosis> TraceSummary::diagnose() const {
  const auto most = std::ranges::max_element(stages_, {}, &Stage::sum_ms);
  if (most->sum_ms <= 0)
    return make_error(ErrorCode::kInvalidArgument, "nothing to diagnose: expected requests that took time, found {}",
                      num_requests_);
  switch (static_cast<TraceStage>(most - stages_.begin())) {
    case TraceStage::kQueue:
      return diagnose_queue();
    case TraceStage::kPrefill:
      return diagnose_prefill();
    case TraceStage::kDecode:
      return diagnose_decode();
    case TraceStage::kStream:
      break;
  }
  return diagnose_stream();
}

TraceSummary::Diagnosis TraceSummary::diagnose_queue() const {
  const auto mean_of = [](const auto& entry) { return entry.second.mean_ms(); };
  const auto slowest = std::ranges::max_element(workers_, {}, mean_of);
  const uint64_t num_others = num_requests_ - slowest->second.num_requests;
  const double others_ms =
      ratio(stage(TraceStage::kQueue).sum_ms - slowest->second.queue_ms, static_cast<double>(num_others));
  if (num_others > 0 && slowest->second.mean_ms() >= kSkewFactor * others_ms)
    return {TraceStage::kQueue, TraceCause::kWorkerSkew,
            fmt::format("requests of worker {} wait {:.1f} ms in the mean, those of the {} others {:.1f} ms",
                        boost::json::serialize(boost::json::value(slowest->first)), slowest->second.mean_ms(),
                        workers_.size() - 1, others_ms)};
  if (held_tokens_ > 0 &&
      static_cast<double>(reserved_tokens_) >= kReservationFactor * static_cast<double>(held_tokens_))
    return {TraceStage::kQueue, TraceCause::kOverReservation,
            fmt::format("{:.0f} KV tokens reserved a request, {:.0f} used", per(reserved_tokens_, num_admitted_),
                        per(held_tokens_, num_admitted_))};
  return {TraceStage::kQueue, TraceCause::kOverload,
          fmt::format("p50 of the wait {:.1f} ms, p95 {:.1f} ms; {:.0f} % of the time",
                      stage(TraceStage::kQueue).times.quantile_ms(0.50).value_or(0),
                      stage(TraceStage::kQueue).times.quantile_ms(0.95).value_or(0), 100 * share(TraceStage::kQueue))};
}

TraceSummary::Diagnosis TraceSummary::diagnose_prefill() const {
  const uint64_t computed = prompt_tokens_ - cached_tokens_;
  const double each = per(computed, num_prompts_);
  const bool is_uncached = per(cached_tokens_, prompt_tokens_) < kCachedShare && each >= kLongPromptTokens;
  return {TraceStage::kPrefill, is_uncached ? TraceCause::kUncachedPrompts : TraceCause::kStarvedPrefill,
          fmt::format("{:.0f} prompt tokens a request, {:.0f} % of them cached; {:.3f} ms for each of the others",
                      per(prompt_tokens_, num_prompts_), 100 * per(cached_tokens_, prompt_tokens_),
                      ratio(stage(TraceStage::kPrefill).sum_ms, static_cast<double>(computed)))};
}

TraceSummary::Diagnosis TraceSummary::diagnose_decode() const {
  const double preempted_share = ratio(preempted_decode_ms_, stage(TraceStage::kDecode).sum_ms);
  if (preempted_share >= kPreemptedShare)
    return {TraceStage::kDecode, TraceCause::kPreemptions,
            fmt::format("{} requests yielded, {} times; {:.0f} % of the decode time is theirs", num_preempted_,
                        num_preemptions_, 100 * preempted_share)};
  // Of the requests in the middle.
  const double p50 = gap_p50_.quantile_ms(0.5).value_or(0), p99 = gap_p99_.quantile_ms(0.5).value_or(0);
  const bool is_uneven = p50 > 0 && p99 >= kInterferenceFactor * p50;
  return {TraceStage::kDecode, is_uneven ? TraceCause::kPrefillInterference : TraceCause::kDecodeSpeed,
          fmt::format("{:.0f} tokens a request; gaps between them p50 {:.1f} ms, p99 {:.1f} ms",
                      per(output_tokens_, num_requests_), p50, p99)};
}

TraceSummary::Diagnosis TraceSummary::diagnose_stream() const {
  const Stage& stream = stage(TraceStage::kStream);
  const double waited_share = ratio(waited_ms_ + whole_.waited_ms(), stream.sum_ms);
  if (waited_share >= kWaitedShare)
    return {TraceStage::kStream, TraceCause::kWholeAnswers,
            fmt::format("{:.0f} % of the time from the last token to the last byte sent was for other choices",
                        100 * waited_share)};
  return {TraceStage::kStream, TraceCause::kSlowClients,
          fmt::format("p95 {:.1f} ms from the last token to the last byte sent",
                      stream.times.quantile_ms(0.95).value_or(0))};
}

// A stream of more than one token has a client's time for each; one of a single token waits for nobody.
void TraceSummary::add_whole(const RequestTrace& trace) {
  if (trace.client_tpot_ms || !trace.stream_ms) return;
  // The server names prompts of one answer cmpl-ID-0, cmpl-ID-1 ...
  const size_t first = trace.names.answer.find('-');
  const std::string answer =
      trace.names.answer.substr(0, first == std::string::npos ? first : trace.names.answer.find('-', first + 1));
  if (whole_.num_choices == 0 || answer != whole_.answer) {
    waited_ms_ += whole_.waited_ms();
    whole_ = {.answer = answer, .least_ms = *trace.stream_ms};
  }
  ++whole_.num_choices;
  whole_.least_ms = std::min(whole_.least_ms, *trace.stream_ms);
  whole_.sum_ms += *trace.stream_ms;
}

Result<TraceSummary> summarize_trace(std::FILE* file) {
  TraceSummary summary;
  std::string line;
  for (uint64_t number = 1; read_line(file, &line); ++number) {
    Result<TraceRow> row = read_trace_line(line);
    if (!row) return make_error(row.error().code, "line {}: {}", number, row.error().message);
    summary.add(*row);
  }
  if (std::ferror(file)) return make_error(ErrorCode::kIo, "cannot read: {}", std::strerror(errno));
  return summary;
}

}  // namespace llmrt
