// What ran when, as text: a line for each request, a column for each step.
//
//   .  it waits (or has yielded)    P  tokens of its prompt    #  a token of its answer
//   -  it has ended, and its batch has not: what a batch of fixed shape goes on computing (batching.h)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/request/request.h"

namespace llmrt {

struct TimelineStep {
  struct Row {
    RequestId id;
    bool is_prompt;
  };
  uint64_t batch = 0;  // of a baseline; 0 = none
  std::vector<Row> rows;
};

struct TimelineRequest {
  RequestId id;
  size_t arrived = 0;  // the first step that it could have run in
};

// With more steps than columns each column stands for as many as are needed, by what the request did in most of them.
std::string timeline(std::span<const TimelineRequest> requests, std::span<const TimelineStep> steps,
                     size_t columns_max = 100);

}  // namespace llmrt
