#include "core/request/draft_rules.h"

#include <algorithm>

namespace llmrt {

bool gets_drafts(const Request& request) {
  return request.speculation && (request.speculation->source || request.speculation->by_model) &&
         std::ranges::none_of(kNoDrafts, [&](const DraftRule& rule) { return rule.applies(request); });
}

}  // namespace llmrt
