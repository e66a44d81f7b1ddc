// Ids of calls in prompts: some templates take only ids of their own form, while clients bring others.
#pragma once

#include <string>
#include <string_view>

#include "core/chat/chat_format.h"

namespace llmrt {

// `id` as the format's template takes it: the same if it fits, else letters and digits that depend on the id alone.
std::string prompt_call_id(const ChatFormat& format, std::string_view id);

}  // namespace llmrt
