// Plots of requests that were served: throughput against latency, percentiles over time, and of all requests.
#pragma once

#include <string>
#include <vector>

#include "tools/llmrt_bench/report/row_fields.h"

namespace llmrt::bench {

// Rows with values such as ttft_p50, whose samples are the requests', and with `requests` among their details.
void add_serve_plots(const std::vector<SourcedRow>& rows, std::vector<std::string>* html);

}  // namespace llmrt::bench
