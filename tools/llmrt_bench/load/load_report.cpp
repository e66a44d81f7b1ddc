#include "tools/llmrt_bench/load/load_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace llmrt::bench {
namespace {

namespace json = boost::json;

struct Named {
  const char *name, *text;
  Distribution Summary::*of;
};
constexpr Named kDistributions[] = {{"ttft", "TTFT, ms", &Summary::ttft_ms},
                                    {"tpot", "TPOT, ms", &Summary::tpot_ms},
                                    {"itl", "ITL, ms", &Summary::itl_ms},
                                    {"e2e", "e2e, ms", &Summary::e2e_ms},
                                    {"late", "sent late, ms", &Summary::late_ms}};

std::string slo_text(const LoadSlo& slo) {
  std::string text;
  const auto add = [&](const char* name, std::optional<double> limit_ms) {
    if (limit_ms) text += fmt::format("{}{} {:g} ms", text.empty() ? "" : ", ", name, *limit_ms);
  };
  add("TTFT", slo.ttft_ms);
  add("TPOT", slo.tpot_ms);
  add("e2e", slo.e2e_ms);
  return text;
}

json::object to_json(const Outcome& outcome, TimeNs begin_ns) {
  json::object entry{{"due_s", ms_between(begin_ns, outcome.due_ns) * 1e-3},
                     {"e2e_ms", outcome.e2e_ms()},
                     {"prompt_tokens", outcome.prompt_tokens},
                     {"asked_tokens", outcome.asked_tokens},
                     {"output_tokens", outcome.output_tokens},
                     {"counted_by", outcome.is_counted_by_server ? "usage" : "chunks"}};
  if (const auto ttft = outcome.ttft_ms()) entry["ttft_ms"] = *ttft;
  if (const auto tpot = outcome.tpot_ms()) entry["tpot_ms"] = *tpot;
  entry["itl_ms"] = json::value_from(outcome.itls_ms());
  if (!outcome.finish_reason.empty()) entry["finish_reason"] = outcome.finish_reason;
  if (outcome.failure) {
    entry["failure"] = outcome.failure_text();
    entry["failure_detail"] = outcome.failure_detail;
  }
  return entry;
}

}  // namespace

std::string load_text(const Summary& s, const LoadSlo& slo) {
  std::string out = fmt::format("{} requests: {} completed, {} failed", s.num_requests, s.num_completed,
                                s.num_requests - s.num_completed);
  for (const auto& [name, count] : s.failures) out += fmt::format("; {}: {}", name, count);
  out += fmt::format("\n{:.2f} s: {:.2f} requests/s, {:.1f} output tok/s, {:.1f} prompt tok/s\n", s.seconds,
                     s.per_s(static_cast<double>(s.num_completed)), s.per_s(static_cast<double>(s.output_tokens)),
                     s.per_s(static_cast<double>(s.prompt_tokens)));
  out += fmt::format("{} output tokens; counted by the server for {} requests, one per chunk for {}\n", s.output_tokens,
                     s.num_counted_by_server, s.num_completed - s.num_counted_by_server);
  if (s.num_sent_again > 0)
    out += fmt::format("sent again, as the server had closed a kept connection: {} requests\n", s.num_sent_again);
  if (!s.finish_reasons.empty()) {
    out += "finish reasons:";
    for (const auto& [reason, count] : s.finish_reasons) out += fmt::format(" {} {}", reason, count);
    out += '\n';
  }
  if (s.num_stopped_early > 0)
    out += fmt::format("stopped early: {} requests, {} tokens short of what was asked for\n", s.num_stopped_early,
                       s.tokens_short);
  out += fmt::format("\n| {:<14} | {:>10} | {:>10} | {:>10} | {:>10} | {:>10} |\n", "", "mean", "p50", "p90", "p95",
                     "p99");
  out += fmt::format("|{:-<16}|{:->11}:|{:->11}:|{:->11}:|{:->11}:|{:->11}:|\n", "", "", "", "", "", "");
  for (const Named& named : kDistributions) {
    const Distribution& d = s.*named.of;
    out += fmt::format("| {:<14} |", named.text);
    for (const double ms : {d.mean, d.p50, d.p90, d.p95, d.p99})
      out += fmt::format(" {:>10} |", std::isfinite(ms) ? fmt::format("{:.2f}", ms) : "-");
    out += '\n';
  }
  if (const size_t num_without = s.num_completed - s.tpot_ms.samples.size(); num_without > 0)
    out += fmt::format("\nno TPOT, as one token or one chunk has none: {} requests\n", num_without);
  if (slo.is_set())
    out += fmt::format("\ngoodput: {:.2f} requests/s, {} of {} requests, within {}\n",
                       s.per_s(static_cast<double>(s.num_good)), s.num_good, s.num_requests, slo_text(slo));
  return out;
}

RecordRow load_row(std::string test, std::string device, const Summary& s, std::span<const Outcome> outcomes,
                   const LoadSlo& slo) {
  RecordRow row{std::move(test), std::move(device), {}};
  const auto rate = [&](const char* name, const char* unit, double count) {
    row.values.push_back({name, unit, s.per_s(count)});
  };
  rate("requests_per_s", "requests/s", static_cast<double>(s.num_completed));
  rate("output_tok_s", "tok/s", static_cast<double>(s.output_tokens));
  rate("prompt_tok_s", "tok/s", static_cast<double>(s.prompt_tokens));
  if (slo.is_set()) rate("goodput", "requests/s", static_cast<double>(s.num_good));
  for (const Named& named : kDistributions) {
    const Distribution& d = s.*named.of;
    const std::string name = named.name;
    row.values.push_back({name + "_p50", "ms", d.p50, d.samples});
    row.values.push_back({name + "_mean", "ms", d.mean});
    row.values.push_back({name + "_p90", "ms", d.p90});
    row.values.push_back({name + "_p95", "ms", d.p95});
    row.values.push_back({name + "_p99", "ms", d.p99});
  }
  json::object failures;
  for (const auto& [name, count] : s.failures) failures[name] = count;
  json::object finish_reasons;
  for (const auto& [reason, count] : s.finish_reasons) finish_reasons[reason] = count;
  json::array requests;
  const TimeNs begin_ns = outcomes.empty() ? 0 : std::ranges::min(outcomes, {}, &Outcome::due_ns).due_ns;
  for (const Outcome& outcome : outcomes) requests.push_back(to_json(outcome, begin_ns));
  row.details = {{"completed", s.num_completed},
                 {"failures", std::move(failures)},
                 {"finish_reasons", std::move(finish_reasons)},
                 {"counted_by_server", s.num_counted_by_server},
                 {"sent_again", s.num_sent_again},
                 {"stopped_early", s.num_stopped_early},
                 {"tokens_short", s.tokens_short},
                 {"seconds", s.seconds},
                 {"good", s.num_good},
                 {"requests", std::move(requests)}};
  return row;
}

}  // namespace llmrt::bench
