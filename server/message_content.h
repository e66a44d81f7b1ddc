// The `content` of one message of a chat as one text, and what its parts hold beside text. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/fields.h"

namespace llmrt::server {

inline constexpr size_t kMessageTextBytesMax = 64u << 20;  // the body's own limit comes first

enum class Role : uint8_t { kSystem, kUser, kAssistant, kTool };

struct MessageContent {
  std::string text;      // of parts, joined by line ends, as other servers do it
  std::string thoughts;  // of parts of an assistant's message
};

// `may_be_empty`: the message says something without it. Parts that are no text are dropped from a tool's result, and
// named in `ignored`; elsewhere they are refused.
std::optional<MessageContent> read_content(Fields& message, Role role, bool may_be_empty, bool strict,
                                           std::vector<std::string>& ignored);

}  // namespace llmrt::server
