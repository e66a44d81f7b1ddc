// Bodies of POST /v1/messages and /v1/messages/count_tokens, in the form of Anthropic's Messages, to Requests of the
// core: each becomes the body of a chat, which parse_chat reads; errors name the client's own fields
// ("messages.3.content.1"). Nothing is sorted or moved, so that a conversation that grows keeps its beginning. Pure;
// may take long for a long prompt: not for an I/O thread. docs/api.md lists every field.
#pragma once

#include <boost/json.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include "server/api_request.h"
#include "server/fields.h"
#include "server/parse_context.h"
#include "server/served_model.h"

namespace llmrt::server {

inline constexpr size_t kMessageBlocksMax = 16384;  // of one message, or of a tool's result

// An answer in this form.
struct MessagesForm : DialectForm {
  int64_t max_tokens = 1;       // that were asked for
  bool is_cut = false;          // the context leaves fewer
  bool hides_thoughts = false;  // their blocks are empty
  bool shows_nothing = false;   // the prompt alone was wanted, for the prefix cache
};

// A body as a chat's, and which of the client's parts its parts are from.
struct TranslatedMessages {
  static constexpr size_t kSystem = static_cast<size_t>(-1);

  boost::json::object chat;
  std::vector<size_t> message_of;  // by message of the chat: the client's, or kSystem
  std::vector<size_t> tool_of;     // likewise
  std::vector<std::string> stops;
  std::vector<std::string> ignored;  // "tools.web_search_20250305", as the header has them
  MessagesForm form;
};

// fields.failed() on error. `only_counting`: no answer follows, so it needs no max_tokens.
TranslatedMessages translate_messages(Fields& fields, const ServedModel& model, const ParseContext& context,
                                      bool only_counting);

ApiResult<ApiRequest> parse_messages(const boost::json::object& body, const ServedModel& model,
                                     const ParseContext& context);
// {"input_tokens"}: as many as the usage of the same request would tell in all. `notes` may be null.
ApiResult<boost::json::object> count_messages(const boost::json::object& body, const ServedModel& model,
                                              const ParseContext& context, ParseNotes* notes = nullptr);

// Whether the template shows system messages between others where they stand. Renders a few turns: once for each model.
bool renders_inline_system(const ServedModel& model);

}  // namespace llmrt::server
