// What the rows of records can be drawn as. A row is known by its fields, whatever command wrote it:
//   n_rows, n_gen and tok_s, ms          throughput against latency
//   n_prompt and tok_s                   prompt speed by length
//   flops, bytes and a time              roofline, under the limits of the same record
//   requests, or samples of *_p50        percentiles over time and of all requests
//   tok_s of several devices             backends side by side
//   phases                               bars of a start
#pragma once

#include <string>
#include <vector>

#include "tools/llmrt_bench/record/saved_record.h"

namespace llmrt::bench {

// Figures for the page, in the order above; none of what has no rows.
std::vector<std::string> plots_of(const std::vector<SavedRecord>& records);

}  // namespace llmrt::bench
