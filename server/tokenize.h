// Bodies of POST /tokenize and /detokenize and their answers. Pure; not for an I/O thread.
#pragma once

#include <boost/json.hpp>

#include "server/api_error.h"
#include "server/parse_context.h"
#include "server/served_model.h"

namespace llmrt::server {

// `notes`, where it is asked for: what the reply says beside the body.
ApiResult<boost::json::object> tokenize(const boost::json::object& body, const ServedModel& model,
                                        const ParseContext& context = {}, ParseNotes* notes = nullptr);
ApiResult<boost::json::object> detokenize(const boost::json::object& body, const ServedModel& model,
                                          const ParseContext& context = {}, ParseNotes* notes = nullptr);

}  // namespace llmrt::server
