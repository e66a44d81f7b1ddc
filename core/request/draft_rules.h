// Which requests get drafts. What a draft cannot be right beside is named here, and such a request is served without:
// it gets the same text.
#pragma once

#include <string_view>

#include "core/request/request.h"

namespace llmrt {

struct DraftRule {
  std::string_view name;
  std::string_view why;
  bool (*applies)(const Request& request);
};

// Requests that get no drafts whatever they ask for.
inline constexpr DraftRule kNoDrafts[] = {
    {"beam search", "its beams draw nothing", [](const Request& request) { return request.beam.has_value(); }},
    {"thought budget", "its masks ahead would need the whole answer to be read again",
     [](const Request& request) { return request.constraint && !request.constraint->forks_fast(); }},
    {"one token", "a draft is verified by the token behind it",
     [](const Request& request) { return request.max_tokens < 2; }},
};

bool gets_drafts(const Request& request);

}  // namespace llmrt
