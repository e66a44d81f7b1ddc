#include "core/request/draft_rules.h"

#include <algorithm>

#include "core/ops/recurrent_ops.h"

namespace llmrt {

bool gets_drafts(const Request& request) {
  return request.speculation && (request.speculation->source || request.speculation->by_model) &&
         std::ranges::none_of(kNoDrafts, [&](const DraftRule& rule) { return rule.applies(request); });
}

uint32_t drafts_beside_states(uint32_t position, uint32_t tokens_max) {
  return std::min(tokens_max, kRingTokens - 1 - position % kRingTokens);
}

}  // namespace llmrt
