#include "server/openapi.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <vector>

#include "core/sample/sampling_params.h"
#include "server/dialect.h"
#include "server/routes.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

constexpr uint8_t kChat = static_cast<uint8_t>(Endpoint::kChat);
constexpr uint8_t kCompletion = static_cast<uint8_t>(Endpoint::kCompletion);
constexpr uint8_t kInfill = static_cast<uint8_t>(Endpoint::kInfill);
constexpr uint8_t kResponses = static_cast<uint8_t>(Endpoint::kResponses);
constexpr uint8_t kMessages = static_cast<uint8_t>(Endpoint::kMessages);
constexpr uint8_t kOllamaChat = static_cast<uint8_t>(Endpoint::kOllamaChat);
constexpr uint8_t kOllamaGenerate = static_cast<uint8_t>(Endpoint::kOllamaGenerate);
constexpr uint8_t kOllama = kOllamaChat | kOllamaGenerate;
constexpr uint8_t kOwn = kChat | kCompletion | kInfill | kResponses;  // of OpenAI's and llama.cpp's forms
constexpr uint8_t kDirect = kOwn | kMessages;                         // a chat's fields are read as they are
constexpr uint8_t kAll = kDirect | kOllama;

constexpr std::string_view kText = R"({"type": "string"})";
constexpr std::string_view kFlag = R"({"type": "boolean"})";
constexpr std::string_view kObject = R"({"type": "object"})";
constexpr std::string_view kTextOrList = R"({"type": ["string", "array"]})";
constexpr std::string_view kTokenCount = R"({"type": "integer", "minimum": -1})";
constexpr std::string_view kTools = R"({"type": "array", "maxItems": 1024, "items": {"type": "object"}})";
constexpr std::string_view kTexts = R"({"type": "array", "maxItems": 64, "items": {"type": "string"}})";
constexpr std::string_view kMessageList =
    R"({"type": "array", "minItems": 1, "maxItems": 16384, "items": {"type": "object"}})";
constexpr std::string_view kToolChoice = R"({"type": ["string", "object"]})";

constexpr BodyField kFields[] = {
    {"model", kText, kAll},
    {"stream", kFlag, kAll},
    {"stream_options", kObject, kOwn},
    {"seed", R"({"type": "integer"})", kDirect},
    {"stop", R"({"type": ["string", "array"], "maxItems": 64, "items": {"type": "string"}})", kOwn},
    {"stop_token_ids", R"({"type": "array", "maxItems": 128, "items": {"type": "integer"}})", kDirect},
    {"include_stop_str_in_output", kFlag, kOwn},
    {"ignore_eos", kFlag, kDirect},
    {"min_tokens", R"({"type": "integer", "minimum": 0})", kDirect},
    {"logit_bias", R"({"type": "object", "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}})",
     kDirect},
    {"bad_words", R"({"type": "array", "maxItems": 1024})", kDirect},
    {"logprobs_mode", R"({"enum": ["raw", "processed"]})", kDirect},
    {"structured_outputs", kObject, kDirect},
    {"response_format", kObject, kChat | kCompletion | kInfill},
    {"request_class", R"({"enum": ["interactive", "agent", "batch", "evaluation", "background"]})", kAll},
    {"service_tier", R"({"enum": ["auto", "default", "priority", "scale", "flex"]})", kOwn},
    {"service_tier", R"({"enum": ["auto", "standard_only"]})", kMessages},
    {"batch_invariant", kFlag, kDirect},
    {"deadline_ms", R"({"type": "integer", "minimum": 1})", kAll},
    {"cache_salt", R"({"type": "string", "maxLength": 256})", kAll},
    {"speculative", kObject, kAll},
    {"adapter_scale", R"({"type": "number", "minimum": -16, "maximum": 16})", kAll},
    {"prediction", kObject, kDirect},
    {"return_token_ids", kFlag, kChat | kCompletion},
    {"n", R"({"type": "integer", "minimum": 1, "maximum": 128, "default": 1})", kChat | kCompletion},
    {"use_beam_search", kFlag, kChat | kCompletion},
    {"messages", kMessageList, kChat | kMessages},
    {"tools", kTools, kChat | kResponses | kMessages | kOllamaChat},
    {"tool_choice", kToolChoice, kChat | kResponses},
    {"parallel_tool_calls", kFlag, kChat | kResponses},
    {"documents", R"({"type": "array", "maxItems": 1024})", kChat | kResponses},
    {"enable_thinking", kFlag, kChat | kResponses},
    {"thinking_token_budget", kTokenCount, kChat | kResponses},
    {"chat_template_kwargs", kObject, kChat | kResponses | kMessages | kOllama},
    {"add_generation_prompt", kFlag, kChat},
    {"continue_final_message", kFlag, kChat},
    {"reasoning_effort", kText, kChat},
    {"max_completion_tokens", kTokenCount, kChat},
    {"top_logprobs", R"({"type": "integer", "minimum": 0, "maximum": 20})", kChat | kResponses},
    {"logprobs", R"({"type": ["boolean", "integer"]})", kChat | kCompletion},
    {"max_tokens", kTokenCount, kChat | kCompletion | kInfill},
    {"prompt", kTextOrList, kCompletion},
    {"suffix", kText, kCompletion},
    {"echo", kFlag, kCompletion},
    {"best_of", R"({"type": "integer", "minimum": 1, "maximum": 128})", kCompletion},
    {"add_special_tokens", kFlag, kCompletion},
    {"prompt", kText, kInfill},
    {"input_prefix", kText, kInfill},
    {"input_suffix", kText, kInfill},
    {"input_extra", R"({"type": "array", "maxItems": 1024, "items": {"type": "object"}})", kInfill},
    {"n_predict", kTokenCount, kInfill},
    {"response_fields", R"({"type": "array", "maxItems": 64, "items": {"type": "string"}})", kInfill},
    {"input", kTextOrList, kResponses},
    {"instructions", kText, kResponses},
    {"max_output_tokens", kTokenCount, kResponses},
    {"reasoning", kObject, kResponses},
    {"text", kObject, kResponses},
    {"include", R"({"type": "array", "maxItems": 64, "items": {"type": "string"}})", kResponses},
    {"store", kFlag, kResponses},
    {"system", kTextOrList, kMessages},
    {"max_tokens", R"({"type": "integer", "minimum": 0})", kMessages},
    {"stop_sequences", kTexts, kMessages},
    {"tool_choice", kObject, kMessages},
    {"thinking", kObject, kMessages},
    {"output_config", kObject, kMessages},
    {"output_format", kObject, kMessages},
    {"messages", R"({"type": "array", "maxItems": 16384, "items": {"type": "object"}})", kOllamaChat},
    {"prompt", kText, kOllamaGenerate},
    {"system", kText, kOllamaGenerate},
    {"suffix", kText, kOllamaGenerate},
    {"raw", kFlag, kOllamaGenerate},
    {"format", R"({"type": ["string", "object"]})", kOllama},
    {"think", R"({"type": ["boolean", "string"]})", kOllama},
    {"keep_alive", R"({})", kOllama},
    {"options", R"({"type": "object", "properties": {
        "temperature": {"type": "number", "minimum": 0, "maximum": 100},
        "top_k": {"type": "integer"}, "top_p": {"type": "number", "minimum": 0, "maximum": 1},
        "min_p": {"type": "number", "minimum": 0, "maximum": 1},
        "repeat_penalty": {"type": "number", "minimum": 0.01, "maximum": 10},
        "presence_penalty": {"type": "number", "minimum": -2, "maximum": 2},
        "frequency_penalty": {"type": "number", "minimum": -2, "maximum": 2},
        "seed": {"type": "integer"}, "num_predict": {"type": "integer"}, "num_ctx": {"type": "integer"},
        "stop": {"type": ["string", "array"]}}})",
     kOllama},
};

struct BodyName {
  Endpoint endpoint;
  std::string_view name;
  std::string_view required;  // JSON: an array of names
};
constexpr std::array kBodies = {BodyName{Endpoint::kChat, "ChatRequest", R"(["messages"])"},
                                BodyName{Endpoint::kCompletion, "CompletionRequest", R"(["prompt"])"},
                                BodyName{Endpoint::kInfill, "InfillRequest", "[]"},
                                BodyName{Endpoint::kResponses, "ResponsesRequest", R"(["input"])"},
                                BodyName{Endpoint::kMessages, "MessagesRequest", R"(["messages", "max_tokens"])"},
                                BodyName{Endpoint::kOllamaChat, "OllamaChatRequest", "[]"},
                                BodyName{Endpoint::kOllamaGenerate, "OllamaGenerateRequest", "[]"}};

// Bodies of small computations. Those of counts are those of the answers that are counted for.
struct SmallBody {
  std::string_view path, schema;
};
constexpr SmallBody kSmallBodies[] = {
    {"/tokenize", R"({"type": "object", "properties": {
        "model": {"type": "string"}, "prompt": {"type": "string"},
        "messages": {"type": "array", "minItems": 1, "maxItems": 16384, "items": {"type": "object"}},
        "add_special_tokens": {"type": "boolean"}, "add_generation_prompt": {"type": "boolean"},
        "return_token_strs": {"type": "boolean"}}})"},
    {"/detokenize", R"({"type": "object", "required": ["tokens"], "properties": {
        "model": {"type": "string"}, "tokens": {"type": "array", "items": {"type": "integer", "minimum": 0}}}})"},
    {"/chat/completions/render", R"({"$ref": "#/components/schemas/ChatRequest"})"},
    {"/completions/render", R"({"$ref": "#/components/schemas/CompletionRequest"})"},
    {"/responses/input_tokens", R"({"$ref": "#/components/schemas/ResponsesRequest"})"},
    {"/messages/count_tokens", R"({"$ref": "#/components/schemas/CountRequest"})"},
    {"/load_lora_adapter", R"({"type": "object", "required": ["lora_name", "lora_path"], "properties": {
        "lora_name": {"type": "string", "minLength": 1, "maxLength": 256},
        "lora_path": {"type": "string", "minLength": 1, "maxLength": 4096}, "model": {"type": "string"}}})"},
    {"/unload_lora_adapter", R"({"type": "object", "required": ["lora_name"], "properties": {
        "lora_name": {"type": "string", "minLength": 1, "maxLength": 256}, "model": {"type": "string"}}})"},
    {"/api/show", R"({"type": "object", "properties": {"model": {"type": "string"}, "name": {"type": "string"}}})"},
};

// Answers: the members that are always there, and what clients tell them by. Streams are told by their type alone.
struct AnswerShape {
  Method method;
  std::string_view path, schema;
};
constexpr std::string_view kFileAnswer =
    R"({"type": "object", "required": ["id", "object", "bytes", "created_at", "expires_at", "filename", "purpose", "status"],
        "properties": {"id": {"type": "string"}, "object": {"const": "file"}, "bytes": {"type": "integer"},
        "created_at": {"type": "integer"}, "expires_at": {"type": ["integer", "null"]}, "filename": {"type": "string"},
        "purpose": {"enum": ["batch", "batch_output"]}}})";
constexpr std::string_view kBatchAnswer =
    R"({"type": "object", "required": ["id", "object", "endpoint", "input_file_id", "completion_window", "status",
        "created_at", "request_counts"],
        "properties": {"object": {"const": "batch"}, "status": {"enum": ["validating", "in_progress", "finalizing",
        "completed", "failed", "expired", "cancelling", "cancelled"]},
        "request_counts": {"type": "object", "required": ["total", "completed", "failed"]}}})";
constexpr std::string_view kListAnswer =
    R"({"type": "object", "required": ["object", "data", "first_id", "last_id", "has_more"], "properties": {
        "object": {"const": "list"}, "data": {"type": "array", "items": {"type": "object", "required": ["id"]}},
        "first_id": {"type": ["string", "null"]}, "last_id": {"type": ["string", "null"]},
        "has_more": {"type": "boolean"}}})";
constexpr std::string_view kModelAnswer =
    R"({"type": "object", "required": ["id", "object", "created", "owned_by", "state"], "properties": {
        "object": {"const": "model"}, "created": {"type": "integer"}, "max_model_len": {"type": "integer"},
        "state": {"enum": ["unloaded", "loading", "ready", "unloading", "failed"]}}})";
constexpr std::string_view kStatusAnswer =
    R"({"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}})";
constexpr std::string_view kCountAnswer =
    R"({"type": "object", "required": ["input_tokens"], "properties": {"input_tokens": {"type": "integer"}}})";
constexpr std::string_view kRenderedRequest =
    R"({"type": "object", "required": ["request_id", "token_ids", "sampling_params", "model", "stream"], "properties": {
        "request_id": {"type": "string"}, "token_ids": {"type": "array", "minItems": 1, "items": {"type": "integer"}},
        "sampling_params": {"type": "object", "required": ["n", "temperature", "max_tokens"]},
        "cache_salt": {"type": ["string", "null"]}, "model": {"type": "string"}, "stream": {"type": "boolean"}}})";
constexpr std::string_view kTagsAnswer =
    R"({"type": "object", "required": ["models"], "properties": {"models": {"type": "array", "items": {
        "type": "object", "required": ["name", "model", "digest", "details"]}}}})";
constexpr AnswerShape kAnswers[] = {
    {Method::kPost, "/chat/completions",
     R"({"type": "object", "required": ["id", "object", "created", "model", "choices", "usage"], "properties": {
        "object": {"const": "chat.completion"}, "created": {"type": "integer"}, "choices": {"type": "array",
        "minItems": 1, "items": {"type": "object", "required": ["index", "message", "finish_reason"],
        "properties": {"message": {"type": "object", "required": ["role", "content"]},
        "finish_reason": {"type": "string"}}}}, "usage": {"$ref": "#/components/schemas/Usage"}}})"},
    {Method::kPost, "/completions",
     R"({"type": "object", "required": ["id", "object", "created", "model", "choices", "usage"], "properties": {
        "object": {"const": "text_completion"}, "created": {"type": "integer"}, "choices": {"type": "array",
        "minItems": 1, "items": {"type": "object", "required": ["index", "text", "finish_reason"],
        "properties": {"text": {"type": "string"}, "finish_reason": {"type": "string"}}}},
        "usage": {"$ref": "#/components/schemas/Usage"}}})"},
    {Method::kPost, "/chat/completions/render", R"({"$ref": "#/components/schemas/RenderedRequest"})"},
    {Method::kPost, "/completions/render",
     R"({"type": "array", "items": {"$ref": "#/components/schemas/RenderedRequest"}})"},
    {Method::kPost, "/responses",
     R"({"type": "object", "required": ["id", "object", "created_at", "status", "model", "output", "usage", "error",
        "incomplete_details", "parallel_tool_calls", "tool_choice", "tools"], "properties": {
        "object": {"const": "response"}, "status": {"enum": ["completed", "incomplete"]},
        "output": {"type": "array", "items": {"type": "object", "required": ["id", "type"]}},
        "usage": {"type": "object", "required": ["input_tokens", "output_tokens", "total_tokens"]}}})"},
    {Method::kPost, "/messages",
     R"({"type": "object", "required": ["id", "type", "role", "model", "content", "stop_reason", "stop_sequence",
        "usage"], "properties": {"type": {"const": "message"}, "role": {"const": "assistant"},
        "content": {"type": "array", "items": {"type": "object", "required": ["type"]}},
        "stop_reason": {"type": "string"},
        "usage": {"type": "object", "required": ["input_tokens", "output_tokens"]}}})"},
    {Method::kPost, "/api/chat",
     R"({"type": "object", "required": ["model", "created_at", "message", "done"], "properties": {
        "message": {"type": "object", "required": ["role", "content"]}, "done": {"const": true}}})"},
    {Method::kPost, "/api/generate",
     R"({"type": "object", "required": ["model", "created_at", "response", "done"], "properties": {
        "response": {"type": "string"}, "done": {"const": true}}})"},
    {Method::kPost, "/infill", R"({"type": "object"})"},
    {Method::kPost, "/responses/input_tokens", kCountAnswer},
    {Method::kPost, "/messages/count_tokens", kCountAnswer},
    {Method::kPost, "/tokenize",
     R"({"type": "object", "required": ["tokens", "count", "max_model_len"], "properties": {
        "tokens": {"type": "array", "items": {"type": "integer"}}, "count": {"type": "integer"}}})"},
    {Method::kPost, "/detokenize",
     R"({"type": "object", "required": ["prompt"], "properties": {"prompt": {"type": "string"}}})"},
    {Method::kPost, "/api/show",
     R"({"type": "object", "required": ["capabilities", "details", "model_info"], "properties": {
        "capabilities": {"type": "array", "items": {"type": "string"}}, "model_info": {"type": "object"}}})"},
    {Method::kGet, "/api/tags", kTagsAnswer},
    {Method::kGet, "/api/ps", kTagsAnswer},
    {Method::kGet, "/models",
     R"({"type": "object", "required": ["object", "data"], "properties": {"object": {"const": "list"},
        "data": {"type": "array", "items": {"type": "object", "required": ["id", "object", "state"]}}}})"},
    {Method::kGet, "/models/{name}", kModelAnswer},
    {Method::kPost, "/files", kFileAnswer},
    {Method::kGet, "/files", kListAnswer},
    {Method::kGet, "/files/{id}", kFileAnswer},
    {Method::kDelete, "/files/{id}",
     R"({"type": "object", "required": ["id", "object", "deleted"], "properties": {"deleted": {"const": true}}})"},
    {Method::kPost, "/batches", kBatchAnswer},
    {Method::kGet, "/batches", kListAnswer},
    {Method::kGet, "/batches/{id}", kBatchAnswer},
    {Method::kPost, "/batches/{id}/cancel", kBatchAnswer},
    {Method::kGet, "/health", kStatusAnswer},
    {Method::kGet, "/ready", kStatusAnswer},
    {Method::kGet, "/live", kStatusAnswer},
};
constexpr std::string_view kUsage =
    R"({"type": "object", "required": ["prompt_tokens", "completion_tokens", "total_tokens"], "properties": {
        "prompt_tokens": {"type": "integer"}, "completion_tokens": {"type": "integer"},
        "total_tokens": {"type": "integer"}}})";

constexpr std::string_view kExpiry =
    R"({"type": "object", "required": ["seconds"], "properties": {"anchor": {"const": "created_at"},
        "seconds": {"type": "integer", "minimum": 3600, "maximum": 2592000}}})";

// Bodies of the store of files, and what may stand in the query of its lists.
json::object file_schema() {
  return {{"type", "object"},
          {"required", {"file", "purpose"}},
          {"properties",
           {{"file", {{"type", "string"}, {"format", "binary"}}},
            {"purpose", {{"const", "batch"}}},
            {"expires_after[anchor]", {{"const", "created_at"}}},
            {"expires_after[seconds]", {{"type", "integer"}, {"minimum", 3600}, {"maximum", 2592000}}}}}};
}
json::object batch_schema() {
  return {{"type", "object"},
          {"required", {"input_file_id", "endpoint", "completion_window"}},
          {"properties",
           {{"input_file_id", {{"type", "string"}}},
            {"endpoint", {{"type", "string"}}},
            {"completion_window", {{"const", "24h"}}},
            {"metadata",
             {{"type", "object"},
              {"maxProperties", 16},
              {"additionalProperties", {{"type", "string"}, {"maxLength", 512}}}}},
            {"output_expires_after", json::parse(kExpiry)}}}};
}
json::array list_parameters(bool is_of_files) {
  const auto parameter = [](std::string_view name, json::object schema) {
    return json::object{{"name", name}, {"in", "query"}, {"required", false}, {"schema", std::move(schema)}};
  };
  json::array list;
  list.push_back(parameter("after", {{"type", "string"}}));
  list.push_back(parameter("limit", {{"type", "integer"}, {"minimum", 1}, {"maximum", is_of_files ? 10000 : 100}}));
  list.push_back(parameter("order", {{"enum", {"asc", "desc"}}}));
  if (is_of_files) list.push_back(parameter("purpose", {{"type", "string"}}));
  return list;
}

json::object reference(std::string_view name) {
  return {{"$ref", fmt::format("#/components/schemas/{}", name)}};
}
json::object content(std::string_view type, json::object schema) {
  return {{type, {{"schema", std::move(schema)}}}};
}

const char* error_name(ErrorForm form) {
  switch (form) {
    case ErrorForm::kOpenAi:
      return "Error";
    case ErrorForm::kMessages:
      return "MessagesError";
    case ErrorForm::kOllama:
      return "OllamaError";
  }
  return "Error";
}

// An error as the server would write it, told as a schema: its members are required.
json::object shape_of(const json::object& example) {
  json::object properties;
  json::array required;
  for (const auto& member : example) {
    required.push_back(member.key());
    if (const json::object* inner = member.value().if_object())
      properties[member.key()] = shape_of(*inner);
    else
      properties[member.key()] = json::object{{"type", {"string", "null"}}};
  }
  return {{"type", "object"}, {"properties", std::move(properties)}, {"required", std::move(required)}};
}

json::object request_body(const RouteRow& row) {
  if (row.path == "/files") return {{"required", true}, {"content", content("multipart/form-data", file_schema())}};
  json::object body{{"type", "object"}};
  bool is_required = true;
  if (const auto* endpoint = std::get_if<Endpoint>(&row.handler))
    for (const BodyName& known : kBodies)
      if (known.endpoint == *endpoint) body = reference(known.name);
  for (const SmallBody& known : kSmallBodies)
    if (known.path == row.path) body = json::parse(known.schema).as_object();
  if (row.path == "/batches") body = batch_schema();
  if (row.path.ends_with("/cancel")) is_required = false;
  return {{"required", is_required}, {"content", content("application/json", std::move(body))}};
}

json::array parameters_of(const RouteRow& row) {
  json::array parameters;
  if (row.method == Method::kGet && (row.path == "/files" || row.path == "/batches"))
    parameters = list_parameters(row.path == "/files");
  const size_t open = row.path.find('{');
  if (open == row.path.npos) return parameters;
  const std::string_view name = row.path.substr(open + 1, row.path.find('}') - open - 1);
  parameters.push_back({{"name", name}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}});
  return parameters;
}

// What is answered where nothing is wrong.
json::object answer_of(const RouteRow& row) {
  json::object shape;
  for (const AnswerShape& known : kAnswers)
    if (known.method == row.method && known.path == row.path) shape = json::parse(known.schema).as_object();
  json::object types = content("application/json", std::move(shape));
  if (const auto* endpoint = std::get_if<Endpoint>(&row.handler)) {
    const std::string_view stream = dialect_of(*endpoint).stream_type;
    types[stream.substr(0, stream.find(';'))] = {{"schema", {{"type", "string"}}}};
  } else if (row.path.ends_with("/content")) {
    types = content("application/octet-stream", {{"type", "string"}, {"format", "binary"}});
  } else if (row.path == "/metrics" || row.path == "/") {
    types = content("text/plain", {{"type", "string"}});
    if (row.path == "/metrics") types["application/openmetrics-text"] = {{"schema", {{"type", "string"}}}};
  }
  return {{"description", "the answer"}, {"content", std::move(types)}};
}

// The statuses that errors may have: by HTTP itself, by what the route reads, and by what it needs.
std::vector<int> error_statuses(const RouteRow& row) {
  std::vector<int> statuses = {400, 403, 408, 417, 431, 501, 505, row.errors == ErrorForm::kMessages ? 529 : 503};
  const bool is_model =
      std::holds_alternative<Endpoint>(row.handler) || std::holds_alternative<JsonHandler>(row.handler);
  const bool is_store =
      std::holds_alternative<StoreHandler>(row.handler) || std::holds_alternative<Transfer>(row.handler);
  const auto add = [&](std::initializer_list<int> more) { statuses.insert(statuses.end(), more); };
  if (row.access != Access::kOpen) add({401, 429});
  if (row.method == Method::kPost) add({413, 415});
  if (is_model || is_store || row.path.find('{') != row.path.npos || row.path == "/config") add({404});
  if (is_model || is_store) add({500});
  if (is_model) add({504});
  return statuses;
}

json::object responses_of(const RouteRow& row) {
  json::object responses;
  const auto* page = std::get_if<PageHandler>(&row.handler);
  if (!page || *page != no_response_page) responses["200"] = answer_of(row);
  for (const int status : error_statuses(row))
    responses[std::to_string(status)] = {{"description", "an error"},
                                         {"content", content("application/json", reference(error_name(row.errors)))}};
  return responses;
}

json::object operation(const RouteRow& row, std::string_view path) {
  std::string id = method_name(row.method);
  for (const char c : path) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (is_plain || id.back() != '_') id += is_plain ? c : '_';
  }
  json::object out{{"operationId", id}};
  if (row.method == Method::kPost) out["requestBody"] = request_body(row);
  out["responses"] = responses_of(row);
  if (json::array parameters = parameters_of(row); !parameters.empty()) out["parameters"] = std::move(parameters);
  if (row.access != Access::kOpen) out["security"] = json::array{json::object{{"key", json::array()}}};
  return out;
}

}  // namespace

std::span<const BodyField> body_fields() {
  return kFields;
}

json::object body_schema(Endpoint endpoint) {
  json::object properties;
  const bool is_ollama = (static_cast<uint8_t>(endpoint) & kOllama) != 0;  // which has them among its options
  for (const SamplingParameter& parameter : kSamplingParameters)
    if (!is_ollama)
      properties[parameter.name] = json::object{{"type", parameter.is_whole() ? "integer" : "number"},
                                                {"minimum", parameter.low},
                                                {"maximum", parameter.high},
                                                {"default", parameter.neutral},
                                                {"description", parameter.help}};
  for (const BodyField& field : kFields)
    if (field.endpoints & static_cast<uint8_t>(endpoint)) properties[field.name] = json::parse(field.schema);
  json::object schema{{"type", "object"}, {"properties", std::move(properties)}};
  for (const BodyName& known : kBodies)
    if (known.endpoint == endpoint) schema["required"] = json::parse(known.required);
  return schema;
}

json::object openapi_document(std::string_view version) {
  json::object paths;
  for (const RouteRow& row : routes()) {
    const std::string path = fmt::format("{}{}", row.is_v1 ? "/v1" : "", row.path);
    json::value& item = paths[path];
    if (!item.is_object()) item = json::object();
    std::string method = method_name(row.method);
    std::ranges::transform(method, method.begin(), [](char c) { return static_cast<char>(c - 'A' + 'a'); });
    item.get_object()[method] = operation(row, path);
  }
  json::object schemas;
  for (const BodyName& known : kBodies) schemas[known.name] = body_schema(known.endpoint);
  schemas["Usage"] = json::parse(kUsage);
  schemas["RenderedRequest"] = json::parse(kRenderedRequest);
  json::object count = body_schema(Endpoint::kMessages);
  count["required"] = json::array{"messages"};
  schemas["CountRequest"] = std::move(count);
  const ApiError error = invalid_field("field", "text");
  for (const ErrorForm form : {ErrorForm::kOpenAi, ErrorForm::kMessages, ErrorForm::kOllama})
    schemas[error_name(form)] = shape_of(error_body(error, {form, "req-1"}));
  return {
      {"openapi", "3.1.0"},
      {"info", {{"title", "llmrt"}, {"version", version}, {"description", "docs/api.md says what the fields mean."}}},
      {"paths", std::move(paths)},
      {"components",
       {{"schemas", std::move(schemas)}, {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}}};
}

}  // namespace llmrt::server
