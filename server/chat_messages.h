// The `messages` of a chat to prompt tokens: checked field by field, then rendered through the model's template. Pure.
#pragma once

#include <vector>

#include "server/fields.h"
#include "server/served_model.h"

namespace llmrt::server {

// Reads messages, add_generation_prompt, chat_template_kwargs and their neighbours; empty and fields.failed() on error.
std::vector<int32_t> read_chat_prompt(Fields& fields, const ServedModel& model);

}  // namespace llmrt::server
