#include "server/metrics_vllm.h"

#include "core/request/request.h"

namespace llmrt::server {
namespace {

// What vLLM calls the end of a request.
constexpr std::array<const char*, 4> kEnds = {"stop", "length", "abort", "error"};
const char* end_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
    case FinishReason::kDisconnected:
    case FinishReason::kTimeout:
      return "abort";
    case FinishReason::kError:
      return "error";
    case FinishReason::kHandedOver:  // it has not ended
      return "";
    default:
      return "stop";
  }
}

void write_ends(MetricsWriter& out, const EngineStats& stats) {
  out.head(MetricKind::kCounter, "request_success_total", "Requests ended, by reason.");
  for (const char* end : kEnds) {
    uint64_t count = 0;
    for (int i = 1; i < kNumFinishReasons; ++i)
      if (end == std::string_view(end_of(static_cast<FinishReason>(i))))
        count += stats.finished[static_cast<size_t>(i)];
    out.value("request_success_total", count, {{"finished_reason", end}});
  }
}

// Tiers of host and disk count as vLLM's offloading of KV blocks does: outside the device's prefix cache.
void write_prompts(MetricsWriter& out, const EngineStats& stats) {
  const uint64_t tier_hits = stats.prefix_host_hits + stats.prefix_disk_hits;
  const uint64_t local_hits = stats.prefix_hits - tier_hits;
  out.counter("prompt_tokens_total", stats.prompt_tokens, "Prompt tokens of admitted requests.");
  out.head(MetricKind::kCounter, "prompt_tokens_by_source_total", "Prompt tokens, by where they came from.");
  const auto source = [&](const char* name, uint64_t tokens) {
    out.value("prompt_tokens_by_source_total", tokens, {{"source", name}});
  };
  source("local_compute", stats.prompt_tokens - stats.prefix_hits);
  source("local_cache_hit", local_hits);
  source("external_kv_transfer", tier_hits);
  out.counter("prompt_tokens_cached_total", stats.prefix_hits, "Prompt tokens that were not computed.");
  out.counter("prefix_cache_queries_total", stats.prefix_queries, "Prompt tokens looked up in the prefix cache.");
  out.counter("prefix_cache_hits_total", local_hits, "Prompt tokens found on the device.");
}

// Names of vLLM's first engine, which some routers still read: AIBrix (its policies least-gpu-cache and least-kv-cache,
// the latter leaving out a pod without cpu_cache_usage_perc), vLLM's production stack, SMG.
void write_old_names(MetricsWriter& out, const EngineStats& stats) {
  const uint64_t local_hits = stats.prefix_hits - stats.prefix_host_hits - stats.prefix_disk_hits;
  const double recent_hits = stats.recent_hit_rate - stats.recent_host_hit_rate - stats.recent_disk_hit_rate;
  const double host_usage = stats.host_blocks_total == 0 ? 0
                                                         : static_cast<double>(stats.host_blocks_used) /
                                                               static_cast<double>(stats.host_blocks_total);
  out.gauge("gpu_cache_usage_perc", stats.kv_usage(), "kv_cache_usage_perc by its old name.");
  out.gauge("cpu_cache_usage_perc", host_usage, "Share of the host tier in use, 0 to 1.");
  out.gauge("gpu_prefix_cache_hit_rate", recent_hits, "Share of prompt tokens found on the device, last minute.");
  out.counter("gpu_prefix_cache_queries_total", stats.prefix_queries, "prefix_cache_queries_total by its old name.");
  out.counter("gpu_prefix_cache_hits_total", local_hits, "prefix_cache_hits_total by its old name.");
}

void write_times(MetricsWriter& out, const EngineStats& stats) {
  const std::vector<double> tokens = vllm_token_bounds_s(), requests = vllm_request_bounds_s();
  out.histogram("time_to_first_token_seconds", stats.ttft_s, vllm_first_token_bounds_s(), "Arrival to first token.");
  out.histogram("inter_token_latency_seconds", stats.itl_s, tokens, "Token to token.");
  out.histogram("request_time_per_output_token_seconds", stats.tpot_s, tokens,
                "Mean of a request's tokens behind the first.");
  out.histogram("e2e_request_latency_seconds", stats.e2e_s, requests, "Arrival to last token.");
  out.histogram("request_queue_time_seconds", stats.queue_s, requests,
                "Arrival to the first step that computes something.");
  out.histogram("request_prefill_time_seconds", stats.prefill_s, requests, "From there to the first token.");
  out.histogram("request_decode_time_seconds", stats.decode_s, requests, "First token to last token.");
}

// Readers take the sample of the highest value, which is the time at which it was so. Without the labels of the others,
// as vLLM has it.
void write_lora_info(MetricsWriter& out, const AdapterShelf& shelf, const ServedModel& model, uint32_t num_slots,
                     int64_t unix_seconds) {
  std::string running, waiting;
  const auto add = [](std::string* list, const std::string& name) { *list += (list->empty() ? "" : ",") + name; };
  for (const ShelvedAdapter& adapter : shelf.all()) {
    if (adapter.model != model.id) continue;
    const uint32_t num_running = adapter.use->num_running, num_in_system = adapter.use->num_in_system;
    if (num_running > 0) add(&running, adapter.name);
    if (num_in_system > num_running) add(&waiting, adapter.name);
  }
  out.set_labels({});
  out.head(MetricKind::kGauge, "lora_requests_info",
           "Adapters that requests run with and wait for; the value is the time, in seconds since 1970.");
  out.value("lora_requests_info", unix_seconds,
            {{"max_lora", std::to_string(num_slots)},
             {"running_lora_adapters", running},
             {"waiting_lora_adapters", waiting}});
}

}  // namespace

void write_vllm_metrics(MetricsWriter& out, const VllmLabels& labels, const EngineStats& stats,
                        const ServedModel& model, int64_t unix_seconds) {
  const std::string prefix(out.prefix());
  out.set_prefix("vllm:");
  out.set_labels({{"model_name", labels.model_name}, {"engine", labels.engine}});
  out.gauge("num_requests_running", stats.num_running, "Requests that hold KV blocks.");
  out.gauge("num_requests_waiting", stats.num_waiting, "Requests that wait for admission, preempted ones among them.");
  out.gauge("kv_cache_usage_perc", stats.kv_usage(), "Share of the KV pool in use, 0 to 1.");
  out.head(MetricKind::kGauge, "cache_config_info", "The KV pool; always 1.");
  out.value("cache_config_info", 1,
            {{"block_size", std::to_string(model.block_tokens)},
             {"num_gpu_blocks", std::to_string(stats.blocks_total)},
             {"num_cpu_blocks", std::to_string(stats.host_blocks_total)},
             {"cache_dtype", model.origin.kv_dtype}});
  out.counter("num_preemptions_total", stats.num_preemptions, "Running requests put back into the queue.");
  write_prompts(out, stats);
  write_old_names(out, stats);
  out.counter("generation_tokens_total", stats.generated_tokens, "Tokens generated.");
  write_ends(out, stats);
  write_times(out, stats);
  const std::vector<double> lengths = vllm_length_bounds(std::min<double>(model.context_max, kCountedContextMax));
  out.histogram("request_prompt_tokens", stats.prompt_tokens_hist, lengths, "Length of prompts.");
  out.histogram("request_generation_tokens", stats.answer_tokens_hist, lengths, "Length of answers.");
  if (model.adapters && stats.adapters.num_slots > 0)
    write_lora_info(out, *model.adapters, model, stats.adapters.num_slots, unix_seconds);
  out.set_prefix(prefix);
  out.set_labels({});
}

}  // namespace llmrt::server
