// What a client gets when something is wrong: one error, whatever the dialect; each dialect has its own JSON body for
// it, and the status and headers that its clients act upon. Texts are ours, never a library's. Pure values.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "core/base/status.h"

namespace llmrt::server {

struct ApiError {
  int status = 400;
  std::string code;                  // stable, lower snake case
  std::string message;               // what, then context: expected, found
  std::string param;                 // the field at fault; empty = null
  int retry_after_s = 0;             // > 0: a Retry-After header
  std::string accept_encoding = {};  // of a coding that is not taken: the Accept-Encoding header
  bool will_repeat = false;          // an x-should-retry: false header, where a client would otherwise try again
  // Where a prompt is too long and it is known: its tokens (or some number of them beyond the most), and the most.
  uint64_t prompt_tokens = 0, prompt_tokens_max = 0;
  std::string detail;  // behind the message, for the client alone: it may quote a request, so no log has it
};

// A field that is wrong: 400.
ApiError invalid_field(std::string field, std::string message, std::string code = "invalid_argument");
// Wrong already as HTTP, or by route.
ApiError http_error(int status, std::string code, std::string message);
// An Error of the core, with the status that fits it.
ApiError to_api_error(const Error& error);

// Calls the field at fault by another name, in its message, too.
void rename_param(std::string name, ApiError* error);

// How a dialect spells an error.
enum class ErrorForm : uint8_t {
  kOpenAi,    // {"error": {message, type, param, code}}
  kMessages,  // {"type": "error", "error": {type, message}, request_id}, as Anthropic's clients read it
  kOllama     // {"error": "..."}
};
struct ErrorShape {
  ErrorForm form = ErrorForm::kOpenAi;
  std::string_view request_id = {};  // with kMessages
};

// What Anthropic's API has instead of 503.
inline constexpr int kOverloadedStatus = 529;
// The status that clients of that dialect act upon.
int error_status(const ApiError& error, ErrorForm form);
// "invalid_request_error", "server_error", ... by status, of OpenAI.
const char* error_type(int status);
// The message as the client reads it, with its detail.
std::string error_text(const ApiError& error);
boost::json::object error_body(const ApiError& error, const ErrorShape& shape = {});

// A value or what to tell the client.
template <typename T>
using ApiResult = std::variant<T, ApiError>;

}  // namespace llmrt::server
