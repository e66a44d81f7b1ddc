// How long a chat's thoughts may be: the fields that say it, under all their names, and the constraint that follows
// (core/chat/thought_budget.h). Pure.
#pragma once

#include <memory>

#include "server/fields.h"
#include "server/served_model.h"
#include "server/structure.h"

namespace llmrt::server {

// thinking_token_budget and its other names; else chat_template_kwargs.thinking_budget, where the format has thoughts;
// else the server's own. -1: no budget. `only_counting`: no answer follows, so the format does not matter.
void read_thought_budget(Fields& fields, const ServedModel& model, const boost::json::object* template_variables,
                         bool only_counting, AnswerStructure* structure);

// `grammar` (null: none) under the budget; the same where there is none.
Result<std::shared_ptr<const TokenConstraint>> with_thought_budget(std::shared_ptr<const TokenConstraint> grammar,
                                                                   const AnswerStructure& structure,
                                                                   const ServedModel& model);

}  // namespace llmrt::server
