// The figures of the engine and of the HTTP side in the Prometheus text format. Pure.
#pragma once

#include <map>
#include <string>

#include "core/metrics/engine_stats.h"

namespace llmrt::server {

std::string metrics_text(const EngineStats& stats, const std::map<int, uint64_t>& responses, uint32_t block_tokens);

}  // namespace llmrt::server
