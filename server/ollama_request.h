// Bodies of Ollama's POST /api/chat and /api/generate to Requests of the core: each becomes the body of a chat or of a
// completion, which parse_chat and parse_completion read. Pure; not for an I/O thread. docs/api.md lists every field.
#pragma once

#include <boost/json.hpp>

#include <string>
#include <string_view>

#include "server/api_request.h"
#include "server/parse_context.h"
#include "server/served_model.h"

namespace llmrt::server {

ApiResult<ApiRequest> parse_ollama_chat(const boost::json::object& body, const ServedModel& model,
                                        const ParseContext& context);
ApiResult<ApiRequest> parse_ollama_generate(const boost::json::object& body, const ServedModel& model,
                                            const ParseContext& context);

// An answer in this form.
struct OllamaForm : DialectForm {
  bool is_generate = false;
  std::string model = {};  // as the client called it
};

// The id with a tag, as Ollama's lists have it.
std::string ollama_name(std::string_view id);

}  // namespace llmrt::server
