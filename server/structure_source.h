// The structure of an answer as JSON, so that whoever has a sample trace can make the constraint again
// (docs/sample_trace.md).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/request/token_constraint.h"
#include "server/served_model.h"
#include "server/structure.h"

namespace llmrt::server {

// Empty where no token is ever masked.
std::string structure_source(const AnswerStructure& structure, const ServedModel& model, bool chat);

// From structure_source(), on another server perhaps: hostile until checked. model: with a tokenizer; its chat format
// counts for nothing, the source names its own. Takes the time of compiling. Errors: invalid_argument with the field,
// and those of compiling.
Result<std::shared_ptr<const TokenConstraint>> make_constraint(std::string_view source, const ServedModel& model);

}  // namespace llmrt::server
