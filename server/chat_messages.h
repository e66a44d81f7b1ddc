// The `messages` and `tools` of a chat to prompt tokens: checked field by field, then rendered through the model's
// template. An agent's history (calls, their results, thoughts) reaches the template in the shape in which Hugging
// Face's chat templates read it. Pure.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "server/fields.h"
#include "server/parse_context.h"
#include "server/served_model.h"
#include "server/structure.h"

namespace llmrt::server {

inline constexpr size_t kMessagesMax = 16384;
inline constexpr size_t kDocumentsMax = 1024;
inline constexpr size_t kTemplateVariablesMax = 256;
// The most JSON values in tools, in chat_template_kwargs, and in the arguments of all calls together; arguments beyond
// it stay text. The template keeps copies of its own.
inline constexpr size_t kTemplateValuesMax = 1 << 17;

// How many JSON values there are, counted until there are more than `most`.
size_t count_values(const boost::json::value& value, size_t most);

// The template's variables.
using ChatContext = boost::json::object;

struct ReadChat {
  ChatContext context;
  AnswerStructure structure;  // what tools and tool_choice say of it
  bool continues = false;     // the answer goes on with the last message
};

// Reads messages, tools, chat_template_kwargs and their neighbours; fields.failed() on error. What is dropped from tool
// results is appended to `ignored`. `only_counting`: no answer follows, so any tool_choice goes.
ReadChat read_chat(Fields& fields, const ServedModel& model, const ParseContext& context, bool only_counting,
                   std::vector<std::string>& ignored);
// Empty and fields.failed() on error, or where it has failed before. Sets structure.start.
std::vector<int32_t> render_chat(Fields& fields, const ServedModel& model, const ParseContext& context, ReadChat* chat);

}  // namespace llmrt::server
