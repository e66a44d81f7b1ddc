// POST /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM has them. On a worker.
#pragma once

#include <boost/json.hpp>

#include "server/api_error.h"
#include "server/api_request.h"
#include "server/parse_context.h"
#include "server/served_model.h"

namespace llmrt::server {

// {"lora_name", "lora_path"}: a folder or a file below the shelf's folder; {"model"} where there are several. 404 where
// clients may load none, or there is nothing at the path; 400 for what cannot be used, with the reason.
ApiResult<boost::json::object> load_adapter(const boost::json::object& body, const ServedModel& model,
                                            const ParseContext& context, ParseNotes* notes);
// {"lora_name"}: new requests do not find it any more, those that have it go on.
ApiResult<boost::json::object> unload_adapter(const boost::json::object& body, const ServedModel& model,
                                              const ParseContext& context, ParseNotes* notes);

}  // namespace llmrt::server
