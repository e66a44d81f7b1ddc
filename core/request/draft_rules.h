// Which requests get drafts. What a draft cannot be right beside is named here, and such a request is served without:
// it gets the same text.
#pragma once

#include <cstdint>
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

// Drafts of a row of a model with states, which are taken back as far as they are wrong: `tokens_max` at most, and none
// that would be the last of a run of kRingTokens positions, where matrices are written. The first of them stands at
// `position`.
uint32_t drafts_beside_states(uint32_t position, uint32_t tokens_max);

}  // namespace llmrt
