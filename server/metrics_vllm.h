// An engine's figures under vLLM's names, for programs that read those (llm-d's router and other endpoint pickers of
// the Gateway API inference extension, dashboards, autoscalers). docs/observability.md lists them, and what is left
// out.
#pragma once

#include <string>

#include "core/metrics/engine_stats.h"
#include "server/metrics_writer.h"
#include "server/served_model.h"

namespace llmrt::server {

// With vLLM's labels `model_name` and `engine`, types and bounds. `unix_seconds`: the time now, which is the value of
// lora_requests_info. Leaves the writer's prefix as it was, and no labels.
struct VllmLabels {
  std::string model_name, engine;  // engine: which of several, "0"
};
void write_vllm_metrics(MetricsWriter& out, const VllmLabels& labels, const EngineStats& stats,
                        const ServedModel& model, int64_t unix_seconds);

}  // namespace llmrt::server
