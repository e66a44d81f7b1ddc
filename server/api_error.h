// What a client gets when something is wrong: one JSON body everywhere, {"error": {message, type, param, code}}, with
// the status and headers that the official clients act upon. Texts are ours, never a library's. Pure values.
#pragma once

#include <boost/json.hpp>

#include <string>
#include <utility>
#include <variant>

#include "core/base/status.h"

namespace llmrt::server {

struct ApiError {
  int status = 400;
  std::string code;          // stable, lower snake case
  std::string message;       // what, then context: expected, found
  std::string param;         // the field at fault; empty = null
  int retry_after_s = 0;     // > 0: a Retry-After header
  bool will_repeat = false;  // an x-should-retry: false header, where a client would otherwise try again
  std::string detail;        // behind the message, for the client alone: it may quote a request, so no log has it
};

// A field that is wrong: 400.
ApiError invalid_field(std::string field, std::string message, std::string code = "invalid_argument");
// Wrong already as HTTP, or by route.
ApiError http_error(int status, std::string code, std::string message);
// An Error of the core, with the status that fits it.
ApiError to_api_error(const Error& error);

// "invalid_request_error", "server_error", ... by status.
const char* error_type(int status);
boost::json::object error_body(const ApiError& error);

// A value or what to tell the client.
template <typename T>
using ApiResult = std::variant<T, ApiError>;

}  // namespace llmrt::server
