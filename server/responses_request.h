// Bodies of POST /v1/responses, OpenAI's Responses API, without a state: each is translated to a chat's body, which
// parse_chat reads, and errors are told under the client's names. responses_items.cpp has the items of `input`,
// responses_tools.cpp the tools. Pure; not for an I/O thread.
#pragma once

#include <boost/json.hpp>

#include <string>
#include <string_view>
#include <vector>

#include "core/base/keyed_hash.h"
#include "server/api_request.h"
#include "server/client_paths.h"
#include "server/fields.h"

namespace llmrt::server {

inline constexpr size_t kInputItemsMax = 16384;
// What a response repeats of its request; beyond, texts and tools are left out of it.
inline constexpr size_t kResponsesEchoBytesMax = 64 << 10;

// A tool of a namespace: the model knows it as NAMESPACE__NAME.
struct NamespacedTool {
  std::string name_space, name;
};
using NamespacedTools = KeyedMap<NamespacedTool>;

// What the writer of the answer needs.
struct ResponsesForm : DialectForm {
  std::string echo;  // members of the response that repeat the request: JSON without the braces
  bool seals_thoughts = false;
  NamespacedTools namespaced;  // by the name that the model knows
  ClientPaths paths;
};

ApiResult<ApiRequest> parse_responses(const boost::json::object& body, const ServedModel& model,
                                      const ParseContext& context);
// POST /v1/responses/input_tokens: how many tokens the same body's prompt has.
ApiResult<boost::json::object> count_responses(const boost::json::object& body, const ServedModel& model,
                                               const ParseContext& context, ParseNotes* notes);

// The parts of it. All may make `fields` fail, and name in `ignored` what they leave out.

struct InputRules {
  bool strict = false;               // unknown fields of items are refused
  bool shows_inline_system = false;  // the template shows system messages where they stand
};
// instructions and input, to messages.
boost::json::array read_input(Fields& fields, const InputRules& rules, ClientPaths* paths,
                              std::vector<std::string>& ignored);
// tools and tool_choice, to a chat's.
void translate_tools(Fields& fields, bool strict, boost::json::object* chat, ResponsesForm* form,
                     std::vector<std::string>& ignored);
// NAMESPACE__NAME, or the name alone without a namespace.
std::string flat_name(std::string_view name_space, std::string_view name);

}  // namespace llmrt::server
