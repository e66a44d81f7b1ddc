#include "server/api_error.h"

namespace llmrt::server {

ApiError invalid_field(std::string field, std::string message, std::string code) {
  ApiError error;
  error.code = std::move(code);
  error.message = fmt::format("{}: {}", field, message);
  error.param = std::move(field);
  return error;
}

ApiError http_error(int status, std::string code, std::string message) {
  ApiError error;
  error.status = status;
  error.code = std::move(code);
  error.message = std::move(message);
  return error;
}

ApiError to_api_error(const Error& error) {
  ApiError out;
  out.code = error_code_name(error.code);
  out.message = error.message;
  out.detail = error.detail;
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
    case ErrorCode::kContextLength:
    case ErrorCode::kNeverFits:
    case ErrorCode::kEmptySupport:
    case ErrorCode::kUnsupportedSchema:
    case ErrorCode::kGrammarTimeout:
    case ErrorCode::kGrammarTooComplex:
      out.status = 400;
      break;
    case ErrorCode::kNotFound:
      out.status = 404;
      break;
    case ErrorCode::kOverloaded:
      out.status = 503;
      out.retry_after_s = error.retry_after_s > 0 ? static_cast<int>(error.retry_after_s) : 2;
      break;
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kDeviceLost:
    case ErrorCode::kInternal:
    case ErrorCode::kCancelled:  // by us: the client did not ask for it
      out.status = 503;
      out.retry_after_s = 10;
      break;
    case ErrorCode::kTimeout:  // again would be again as long, for an answer that nobody waits for any more
      out.status = 504;
      out.will_repeat = true;
      break;
    case ErrorCode::kPoolExhausted:  // alone in the pool and still too long: the same again would end the same way
    case ErrorCode::kNotFinite:
    case ErrorCode::kCorruptFile:
    case ErrorCode::kMissingFeature:
    case ErrorCode::kIo:
      out.status = 500;
      out.will_repeat = true;
      break;
  }
  return out;
}

const char* error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
    case 405:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 501:
      return "not_supported_error";
    case 503:
      return "service_unavailable_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

namespace {

const char* messages_error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
    case 405:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 504:
      return "timeout_error";
    case kOverloadedStatus:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

// Fields of a chat by the names that they have in Anthropic's form.
std::string_view messages_param(std::string_view param) {
  struct Row {
    std::string_view chat, here;
  };
  constexpr Row kRows[] = {{"stop", "stop_sequences"},
                           {"response_format", "output_config.format"},
                           {"thinking_token_budget", "thinking.budget_tokens"},
                           {"reasoning_effort", "output_config.effort"},
                           {"parallel_tool_calls", "tool_choice.disable_parallel_tool_use"}};
  for (const Row& row : kRows)
    if (param == row.chat || (param.starts_with(row.chat) && param[row.chat.size()] == '.')) return row.here;
  return param;
}

// Clients and proxies look for the words of a prompt that is too long.
std::string messages_text(ApiError error) {
  if (error.prompt_tokens_max > 0)
    return fmt::format("prompt is too long: {} tokens > {} maximum", error.prompt_tokens, error.prompt_tokens_max);
  rename_param(std::string(messages_param(error.param)), &error);
  const bool is_long = error.code == "context_length_exceeded" || error.code == "never_fits";
  return (is_long ? "prompt is too long: " : "") + error_text(error);
}

}  // namespace

void rename_param(std::string name, ApiError* error) {
  if (name == error->param) return;
  if (error->message.starts_with(error->param)) error->message = name + error->message.substr(error->param.size());
  error->param = std::move(name);
}

int error_status(const ApiError& error, ErrorForm form) {
  return form == ErrorForm::kMessages && error.status == 503 ? kOverloadedStatus : error.status;
}

std::string error_text(const ApiError& error) {
  return error.detail.empty() ? error.message : fmt::format("{}: '{}'", error.message, error.detail);
}

boost::json::object error_body(const ApiError& error, const ErrorShape& shape) {
  boost::json::object inner;
  switch (shape.form) {
    case ErrorForm::kOllama:
      return {{"error", error_text(error)}};
    case ErrorForm::kMessages:
      inner["type"] = messages_error_type(error_status(error, shape.form));
      inner["message"] = messages_text(error);
      return {{"type", "error"}, {"error", std::move(inner)}, {"request_id", shape.request_id}};
    case ErrorForm::kOpenAi:
      break;
  }
  inner["message"] = error_text(error);
  inner["type"] = error_type(error.status);
  inner["param"] = error.param.empty() ? boost::json::value(nullptr) : boost::json::value(error.param);
  inner["code"] = error.code;
  return {{"error", std::move(inner)}};
}

}  // namespace llmrt::server
