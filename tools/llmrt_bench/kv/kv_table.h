// The figures of `llmrt-bench kv` as text and as rows of its record.
#pragma once

#include <string>

#include "tools/llmrt_bench/kv/kv_quality.h"
#include "tools/llmrt_bench/record/record.h"

namespace llmrt::bench {

// One aligned table: a column for each KV dtype; for each model a row of every figure.
std::string print(const KvQualityPlan& plan, const KvContext& context);
void add_rows(const KvQualityPlan& plan, const KvQuality& quality, Record* record);

}  // namespace llmrt::bench
