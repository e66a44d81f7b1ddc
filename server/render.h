// Bodies of POST /v1/chat/completions/render and /v1/completions/render, vLLM's: the token ids and sampling parameters
// that the same body of the path above would run with. Routers ask for them to look up cached prefixes. Nothing is
// generated. Pure; not for an I/O thread.
#pragma once

#include <boost/json.hpp>

#include <string>

#include "server/api_error.h"
#include "server/parse_context.h"
#include "server/served_model.h"

namespace llmrt::server {

// `notes`, where it is asked for: what the reply says beside the body.
ApiResult<boost::json::object> rendered_chat(const boost::json::object& body, const ServedModel& model,
                                             const ParseContext& context = {}, ParseNotes* notes = nullptr);
// JSON: an array with an object for each prompt of the body.
ApiResult<std::string> rendered_completions(const boost::json::object& body, const ServedModel& model,
                                            const ParseContext& context = {}, ParseNotes* notes = nullptr);

}  // namespace llmrt::server
