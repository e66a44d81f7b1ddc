#include "tools/llmrt_bench/load/outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/llmrt_bench/record/stats.h"

namespace llmrt::bench {

const char* failure_name(Failure failure) {
  constexpr std::array kNames = {"connect",  "status",    "bad_reply", "long_line", "error_event", "cut_stream",
                                 "too_long", "no_tokens", "timeout",   "refused",   "engine"};
  return kNames[static_cast<size_t>(failure)];
}

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return out;
}

void Outcome::fail(Failure kind, std::string_view detail) {
  failure = kind;
  failure_detail = printable(detail);
}

std::string Outcome::failure_text() const {
  if (!failure) return "";
  return *failure == Failure::kStatus ? fmt::format("status {}", http_status) : failure_name(*failure);
}

std::optional<double> Outcome::ttft_ms() const {
  if (times_ns.empty()) return {};
  return ms_between(due_ns, times_ns.front());
}

std::optional<double> Outcome::tpot_ms() const {
  if (times_ns.size() < 2 || output_tokens < 2) return {};
  return ms_between(times_ns.front(), times_ns.back()) / (output_tokens - 1);
}

std::vector<double> Outcome::itls_ms() const {
  std::vector<double> gaps;
  for (size_t i = 1; i < times_ns.size(); ++i) gaps.push_back(ms_between(times_ns[i - 1], times_ns[i]));
  return gaps;
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return NAN;
  std::ranges::sort(values);
  const double place = share * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(place), above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (place - static_cast<double>(below));
}

Distribution distribution_of(std::vector<double> samples) {
  Distribution out;
  if (!samples.empty()) out.mean = mean(samples);
  out.p50 = percentile(samples, 0.5);
  out.p90 = percentile(samples, 0.9);
  out.p95 = percentile(samples, 0.95);
  out.p99 = percentile(samples, 0.99);
  out.samples = std::move(samples);
  return out;
}

bool LoadSlo::is_met(const Outcome& outcome) const {
  return !outcome.failure && outcome.ttft_ms().value_or(INFINITY) <= ttft_ms.value_or(INFINITY) &&
         outcome.tpot_ms().value_or(0) <= tpot_ms.value_or(INFINITY) && outcome.e2e_ms() <= e2e_ms.value_or(INFINITY);
}

Summary summarize(std::span<const Outcome> outcomes, const LoadSlo& slo) {
  Summary out;
  std::vector<double> ttfts, tpots, itls, e2es, lates;
  TimeNs begin_ns = kNever, end_ns = 0;
  for (const Outcome& outcome : outcomes) {
    ++out.num_requests;
    begin_ns = std::min(begin_ns, outcome.due_ns);
    end_ns = std::max(end_ns, outcome.end_ns);
    out.num_sent_again += outcome.is_sent_again;
    lates.push_back(ms_between(outcome.due_ns, outcome.sent_ns));
    if (outcome.failure) {
      ++out.failures[outcome.failure_text()];
      continue;
    }
    ++out.num_completed;
    out.num_good += slo.is_met(outcome);
    out.output_tokens += outcome.output_tokens;
    out.prompt_tokens += outcome.prompt_tokens;
    out.num_counted_by_server += outcome.is_counted_by_server;
    if (!outcome.finish_reason.empty()) ++out.finish_reasons[outcome.finish_reason];
    if (outcome.output_tokens < outcome.asked_tokens && !outcome.is_structured) {
      ++out.num_stopped_early;
      out.tokens_short += outcome.asked_tokens - outcome.output_tokens;
    }
    if (const auto ttft = outcome.ttft_ms()) ttfts.push_back(*ttft);
    if (const auto tpot = outcome.tpot_ms()) tpots.push_back(*tpot);
    const std::vector<double> gaps = outcome.itls_ms();
    itls.insert(itls.end(), gaps.begin(), gaps.end());
    e2es.push_back(outcome.e2e_ms());
  }
  if (!outcomes.empty()) out.seconds = ms_between(begin_ns, end_ns) * 1e-3;
  out.ttft_ms = distribution_of(std::move(ttfts));
  out.tpot_ms = distribution_of(std::move(tpots));
  out.itl_ms = distribution_of(std::move(itls));
  out.e2e_ms = distribution_of(std::move(e2es));
  out.late_ms = distribution_of(std::move(lates));
  return out;
}

}  // namespace llmrt::bench
