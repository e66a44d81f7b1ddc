// The figures of `llmrt-bench kv` as text and as JSON.
#pragma once

#include <boost/json.hpp>
#include <string>

#include "tools/llmrt_bench/kv_quality.h"

namespace llmrt::bench {

// One aligned table: a column for each KV dtype; for each model a row of every figure.
std::string print(const KvQualityPlan& plan, const KvContext& context);
boost::json::object to_json(const KvQualityPlan& plan, const KvQuality& quality);

}  // namespace llmrt::bench
