// What Ollama's clients ask of a server beside answers: which models there are and what they can do. Pure.
#pragma once

#include <boost/json.hpp>

#include "server/api_error.h"
#include "server/parse_context.h"
#include "server/served_model.h"

namespace llmrt::server {

// The version of Ollama whose API this is: clients ask for a number that is high enough.
inline constexpr const char* kOllamaVersion = "0.13.0";

boost::json::object ollama_tag(const ServedModel& model);      // an entry of GET /api/tags
boost::json::object ollama_running(const ServedModel& model);  // of GET /api/ps
// POST /api/show: {"model"} (or "name"), as the client wrote it. 404 where it names another.
ApiResult<boost::json::object> ollama_show(const boost::json::object& body, const ServedModel& model,
                                           const ParseContext& context, ParseNotes* notes);

}  // namespace llmrt::server
