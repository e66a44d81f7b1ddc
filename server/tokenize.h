// Bodies of POST /tokenize and /detokenize and their answers. Pure; not for an I/O thread.
#pragma once

#include <boost/json.hpp>

#include "server/api_error.h"
#include "server/served_model.h"

namespace llmrt::server {

ApiResult<boost::json::object> tokenize(const boost::json::object& body, const ServedModel& model);
ApiResult<boost::json::object> detokenize(const boost::json::object& body, const ServedModel& model);

}  // namespace llmrt::server
