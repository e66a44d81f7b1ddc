#include "server/responses_json.h"

#include <iterator>

#include "server/answer_json.h"
#include "server/api_answer.h"
#include "server/sealed_thought.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;
using Item = ResponseItem;

// What the codes of OpenAI say that clients act upon.
std::string failure_code(const ApiError& error) {
  if (error.code == error_code_name(ErrorCode::kOverloaded) || error.status == 429) return "rate_limit_exceeded";
  return error.status >= 500 ? "server_error" : error.code;
}
std::string failure_text(const ApiError& error) {
  std::string text = error_text(error);
  if (error.retry_after_s > 0) text += fmt::format(". Please try again in {}s.", error.retry_after_s);
  return text;
}

}  // namespace

void append_response_part(const ResponseItem& item, std::string_view text, std::string& out) {
  if (item.kind == Item::Kind::kReasoning) {
    out += "{\"type\":\"reasoning_text\",\"text\":\"";
    out += text;
    out += "\"}";
    return;
  }
  out += "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[";
  if (!text.empty()) out += item.logprobs;
  out += "],\"text\":\"";
  out += text;
  out += "\"}";
}

void append_response_item(const ResponsesForm& own, const ResponseItem& item, bool is_whole, std::string& out) {
  const auto member = [&](std::string_view name, std::string_view text) {
    fmt::format_to(std::back_inserter(out), ",\"{}\":", name);
    append_string(text, out);
  };
  const auto content = [&] {
    out += ",\"content\":[";
    if (is_whole) append_response_part(item, item.text, out);
    out += ']';
  };
  fmt::format_to(std::back_inserter(out), "{{\"id\":\"{}\",\"status\":\"{}\"", item.id, item.status);
  switch (item.kind) {
    case Item::Kind::kMessage:
      out += ",\"type\":\"message\",\"role\":\"assistant\"";
      content();
      break;
    case Item::Kind::kReasoning:
      out += ",\"type\":\"reasoning\",\"summary\":[]";
      content();
      if (is_whole && own.seals_thoughts) member("encrypted_content", seal_thought(item.thought));
      break;
    case Item::Kind::kFunctionCall:
    case Item::Kind::kCustomCall: {
      const bool is_custom = item.kind == Item::Kind::kCustomCall;
      member("type", is_custom ? "custom_tool_call" : "function_call");
      member("call_id", item.call_id);
      member("name", item.name);
      if (!item.name_space.empty()) member("namespace", item.name_space);
      fmt::format_to(std::back_inserter(out), ",\"{}\":\"{}\"", is_custom ? "input" : "arguments",
                     is_whole ? item.text : std::string_view());
      break;
    }
  }
  out += '}';
}

void append_response(const ResponseSoFar& response, const char* status, const std::vector<Choice>* choices,
                     const ApiError* error, std::string& out) {
  fmt::format_to(std::back_inserter(out), "{{\"id\":\"{}\",\"object\":\"response\",\"created_at\":{},\"status\":\"{}\"",
                 response.head.id, response.head.created, status);
  out += ",\"model\":";
  append_string(response.model.id, out);
  out += ",\"error\":";
  if (error)
    out += json::serialize(json::object{{"code", failure_code(*error)}, {"message", failure_text(*error)}});
  else
    out += "null";
  out += ",\"incomplete_details\":";
  if (choices && response.is_cut())
    fmt::format_to(std::back_inserter(out), "{{\"reason\":\"{}\"}}",
                   response.finish == FinishReason::kPolicy ? "content_filter" : "max_output_tokens");
  else
    out += "null";
  out += ",\"output\":";
  // An item that is open when all fails is not told: it never became one.
  append_list(response.items.size() - (response.is_open ? 1 : 0), out,
              [&](size_t i) { append_response_item(response.own, response.items[i], true, out); });
  out += ",\"usage\":";
  if (choices) {
    const json::object usage = usage_of(*choices, response.form);
    const json::value& prompt = usage.at("prompt_tokens");
    out += json::serialize(json::object{
        {"input_tokens", prompt},
        {"input_tokens_details",
         {{"cached_tokens", usage.at("prompt_tokens_details").at("cached_tokens")}, {"cache_write_tokens", 0}}},
        {"output_tokens", usage.at("completion_tokens")},
        {"output_tokens_details", usage.at("completion_tokens_details")},
        {"total_tokens", usage.at("total_tokens")}});
  } else {
    out += "null";
  }
  out += ',';
  out += response.own.echo;
  if (choices) {
    AnswerForm told;
    for (const Warning& warning : response.form.warnings)
      told.warnings.push_back({response.own.paths.translate(warning.param), warning.message});
    append_warnings(told, out);
  }
  out += '}';
}

}  // namespace llmrt::server
