#include "server/metrics_text.h"

#include <fmt/format.h>

#include <iterator>

#include "core/request/request.h"

namespace llmrt::server {
namespace {

class Writer {
 public:
  void head(std::string_view name, std::string_view type, std::string_view help) {
    fmt::format_to(std::back_inserter(text_), "# HELP llmrt_{0} {2}\n# TYPE llmrt_{0} {1}\n", name, type, help);
  }
  template <typename T>
  void value(std::string_view name, T number, std::string_view labels = "") {
    fmt::format_to(std::back_inserter(text_), "llmrt_{}{} {}\n", name, labels, number);
  }
  template <typename T>
  void gauge(std::string_view name, T number, std::string_view help) {
    head(name, "gauge", help);
    value(name, number);
  }
  template <typename T>
  void counter(std::string_view name, T number, std::string_view help) {
    head(name, "counter", help);
    value(name, number);
  }
  void histogram(const std::string& name, const Histogram& histogram, std::string_view help) {
    head(name, "histogram", help);
    uint64_t sum = 0;
    for (size_t i = 0; i < histogram.bounds().size(); ++i) {
      sum += histogram.counts()[i];
      value(name + "_bucket", sum, fmt::format("{{le=\"{}\"}}", histogram.bounds()[i]));
    }
    value(name + "_bucket", histogram.count(), "{le=\"+Inf\"}");
    value(name + "_sum", histogram.sum());
    value(name + "_count", histogram.count());
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

double ratio(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// Little's law and the verdicts.
void write_load(Writer& out, const EngineStats& stats) {
  out.counter("requests_arrived_total", stats.in_system.arrivals(), "Requests that the scheduler has seen.");
  const LittlesLaw& law = stats.littles_law;
  out.gauge("littles_law_in_system", law.in_system, "L: requests that wait or run, mean of 5 minutes.");
  out.gauge("littles_law_arrivals_per_second", law.arrivals_per_s, "Lambda: arrivals, mean of 5 minutes.");
  out.gauge("littles_law_time_in_system_seconds", law.time_in_system_s, "W: of those that ended, mean of 5 minutes.");
  out.head("littles_law_residual_ratio", "gauge",
           "|L - lambda W| / L: near 0 while the load is stable; absent while nobody has ended.");
  if (const auto residual = law.residual()) out.value("littles_law_residual_ratio", *residual);
  const auto each = [&](std::string_view name, std::string_view help, auto figure) {
    out.head(name, "gauge", help);
    for (size_t i = 0; i < kNumSaturations; ++i)
      out.value(name, figure(stats.saturation[i]),
                fmt::format("{{verdict=\"{}\"}}", saturation_name(static_cast<Saturation>(i))));
  };
  each("saturated", "1 while the verdict holds; it never turns readiness off.",
       [](const SaturationVerdict& verdict) { return verdict.is_raised ? 1 : 0; });
  each("saturation_value", "The figure behind the verdict.",
       [](const SaturationVerdict& verdict) { return verdict.value; });
  each("saturation_limit", "What the figure is compared with.",
       [](const SaturationVerdict& verdict) { return verdict.limit; });
}

}  // namespace

std::string metrics_text(const EngineStats& stats, const std::map<int, uint64_t>& responses, uint32_t block_tokens) {
  Writer out;
  out.gauge("requests_running", stats.num_running, "Requests that hold KV blocks.");
  out.gauge("requests_waiting", stats.num_waiting, "Requests that wait for admission, preempted ones among them.");
  out.gauge("requests_streaming", stats.num_streaming, "Finished requests whose answer is still being sent.");
  out.gauge("queue_tokens", stats.queue_tokens, "Prompt tokens of waiting requests.");
  out.gauge("kv_blocks_total", stats.blocks_total, "Blocks of the KV pool.");
  out.gauge("kv_blocks_free", stats.blocks_free, "Free blocks of the KV pool, cached ones among them.");
  out.gauge("kv_blocks_cached", stats.blocks_cached, "Free blocks that a later prompt may still find.");
  out.gauge("kv_block_tokens", block_tokens, "Tokens in a KV block.");
  const double used = stats.blocks_total == 0
                          ? 0
                          : 1.0 - static_cast<double>(stats.blocks_free) / static_cast<double>(stats.blocks_total);
  out.gauge("kv_usage_ratio", used, "Share of the KV pool in use, 0 to 1.");
  out.counter("prompt_tokens_total", stats.prompt_tokens, "Prompt tokens of admitted requests.");
  out.counter("prefix_cache_queries_total", stats.prefix_queries, "Prompt tokens looked up in the prefix cache.");
  out.counter("prefix_cache_hits_total", stats.prefix_hits, "Prompt tokens found there.");
  out.counter("prefix_cache_host_hits_total", stats.prefix_host_hits, "Of these, loaded from the host tier.");
  out.gauge("kv_host_blocks_total", stats.host_blocks_total, "Blocks of the host tier.");
  out.gauge("kv_host_blocks_used", stats.host_blocks_used, "Blocks of the host tier that hold something.");
  out.counter("kv_blocks_stored_total", stats.blocks_stored, "Blocks copied to the host tier.");
  out.counter("kv_blocks_loaded_total", stats.blocks_loaded, "Blocks copied back from it.");
  out.head("prefix_cache_recent_hit_ratio", "gauge", "Share of prompt tokens found in the last minute, by source.");
  out.value("prefix_cache_recent_hit_ratio", stats.recent_hit_rate - stats.recent_host_hit_rate, "{source=\"device\"}");
  out.value("prefix_cache_recent_hit_ratio", stats.recent_host_hit_rate, "{source=\"host\"}");
  out.gauge("kv_table_slots", stats.table_slots,
            "Token slots in the blocks of running requests, shared ones each time.");
  out.gauge("kv_table_tokens", stats.table_tokens, "Of these, filled; slots - tokens is the internal fragmentation.");
  out.gauge("kv_utilization_ratio", ratio(stats.table_tokens, stats.table_slots), "Filled slots by slots, 0 to 1.");
  out.counter("generated_tokens_total", stats.generated_tokens, "Tokens generated.");
  out.counter("useful_tokens_total", stats.useful_tokens,
              "Positions computed for requests that have ended, once each.");
  out.counter("padded_tokens_total", stats.padded_tokens,
              "With static or dynamic batching: what batches of fixed shape would have computed on top.");
  out.counter("steps_total", stats.num_steps, "Steps run on the device.");
  out.counter("preemptions_total", stats.num_preemptions, "Running requests put back into the queue.");
  out.counter("preemptions_swapped_total", stats.num_swaps,
              "Of these, those whose keys and values go to the host tier.");
  out.counter("preemptions_reclaimed_total", stats.num_reclaims,
              "Of the preemptions, those that gave room back to a higher class.");
  out.counter("preemptions_outgrown_total", stats.num_outgrown,
              "Of the preemptions, those for a request that had passed what admission reserved for it.");
  out.counter("over_reserved_tokens_total", stats.over_reserved_tokens,
              "Tokens that admission reserved and ended requests did not need.");
  out.counter("requests_rejected_total", stats.num_rejected, "Requests refused on arrival.");
  out.head("requests_finished_total", "counter", "Requests ended, by reason.");
  for (int i = 1; i < kNumFinishReasons; ++i)
    out.value("requests_finished_total", stats.finished[static_cast<size_t>(i)],
              fmt::format("{{reason=\"{}\"}}", finish_reason_name(static_cast<FinishReason>(i))));
  out.histogram("time_to_first_token_seconds", stats.ttft_s, "Arrival to first token.");
  out.histogram("inter_token_latency_seconds", stats.itl_s, "Token to token.");
  out.histogram("request_latency_seconds", stats.e2e_s, "Arrival to last token.");
  out.histogram("time_per_output_token_seconds", stats.tpot_s, "Mean of a request's tokens behind the first.");
  out.counter("time_to_first_token_late_total", stats.num_ttft_late, "First tokens over --ttft-slo-ms.");
  out.counter("time_per_output_token_late_total", stats.num_tpot_late, "Requests over --tpot-slo-ms.");
  out.histogram("step_rows", stats.step_rows, "Rows of a step: the batch size.");
  out.histogram("step_tokens", stats.step_tokens, "Tokens of a step.");
  write_load(out, stats);
  out.counter("plan_seconds_total", stats.plan_ms * 1e-3, "Time spent planning and lowering.");
  out.counter("device_seconds_total", stats.device_ms * 1e-3, "Time of the device's lists.");
  out.counter("busy_seconds_total", stats.wall_ms * 1e-3, "Wall time of steps; device idle = 1 - device / busy.");
  out.head("http_responses_total", "counter", "HTTP responses, by status.");
  for (const auto& [status, count] : responses)
    out.value("http_responses_total", count, fmt::format("{{status=\"{}\"}}", status));
  return out.take();
}

}  // namespace llmrt::server
