// The two text formats that scrapers read, and which of them an Accept header asks for. Pure.
#pragma once

#include <string_view>

namespace llmrt::server {

enum class MetricsFormat {
  kText,         // Prometheus' own, version 0.0.4
  kOpenMetrics,  // 1.0.0
};

// Under which names engines are told beside llmrt's own.
enum class MetricsCompat { kNone, kVllm };

const char* metrics_content_type(MetricsFormat format);

// RFC 9110, 12.5.1: the most precise range decides on each format, then the higher weight; OpenMetrics only where it is
// preferred or named. The text format where neither is acceptable.
MetricsFormat negotiate_metrics(std::string_view accept);

}  // namespace llmrt::server
