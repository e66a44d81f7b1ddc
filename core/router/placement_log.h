// A decision of the router as a line of JSON, with all terms that it was made of. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "core/request/request.h"
#include "core/router/placement.h"

namespace llmrt {

struct PlacementRecord {
  std::string why;  // "placed", "moved from cuda:0"
  RequestNames request;
  std::optional<uint32_t> worker;  // nothing: no worker can serve it
  PlacementAsk ask;
  PlacementChoice choice;
};

// Without its end. `unix_ms`: when it was made. docs/scale.md has the fields.
std::string format_placement(const PlacementRecord& record, std::span<const std::string> names, int64_t unix_ms);

}  // namespace llmrt
