#include "server/routes.h"

#include <fmt/format.h>

#include "server/adapter_requests.h"
#include "server/http.h"
#include "server/messages_request.h"
#include "server/ollama_info.h"
#include "server/render.h"
#include "server/responses_request.h"
#include "server/tokenize.h"

namespace llmrt::server {
namespace {

constexpr JsonHandler kTokenizing = {tokenize, CountedPath::kTokenize};
constexpr JsonHandler kDetokenizing = {detokenize, CountedPath::kDetokenize};
constexpr JsonHandler kRenderingChat = {rendered_chat, CountedPath::kChatCompletions};
constexpr JsonHandler kRenderingCompletions = {rendered_completions, CountedPath::kCompletions};
constexpr JsonHandler kCountingResponses = {count_responses, CountedPath::kResponses};
constexpr JsonHandler kMessagesCount = {count_messages, CountedPath::kCountTokens};
constexpr JsonHandler kOllamaShow = {ollama_show, CountedPath::kOllamaShow};
constexpr JsonHandler kLoadingAdapter = {load_adapter, CountedPath::kAdapters};
constexpr JsonHandler kUnloadingAdapter = {unload_adapter, CountedPath::kAdapters};
constexpr bool kNoModel = false;
constexpr StoreHandler kCreateBatch = {create_batch, /*changes_batches=*/true};
constexpr StoreHandler kCancelBatch = {cancel_batch, /*changes_batches=*/true};

// The last names are what routers and load generators made for SGLang ask for.
constexpr RouteRow kRoutes[] = {
    {Method::kPost, "/chat/completions", true, Endpoint::kChat},
    {Method::kPost, "/completions", true, Endpoint::kCompletion},
    {Method::kPost, "/chat/completions/render", true, kRenderingChat},
    {Method::kPost, "/completions/render", true, kRenderingCompletions},
    {Method::kPost, "/responses", true, Endpoint::kResponses},
    {Method::kPost, "/responses/input_tokens", true, kCountingResponses},
    {Method::kGet, "/responses/{id}", true, no_response_page},
    {Method::kDelete, "/responses/{id}", true, no_response_page},
    {Method::kPost, "/infill", false, Endpoint::kInfill},
    {Method::kGet, "/models", true, models_page},
    {Method::kGet, "/models/{name}", true, model_page},
    {Method::kPost, "/load_lora_adapter", true, kLoadingAdapter},
    {Method::kPost, "/unload_lora_adapter", true, kUnloadingAdapter},
    {Method::kPost, "/files", true, Transfer::kUpload, kNoModel},
    {Method::kGet, "/files", true, StoreHandler{list_files}, kNoModel},
    {Method::kGet, "/files/{id}", true, StoreHandler{find_file}, kNoModel},
    {Method::kDelete, "/files/{id}", true, StoreHandler{remove_file}, kNoModel},
    {Method::kGet, "/files/{id}/content", true, Transfer::kContent, kNoModel},
    {Method::kPost, "/batches", true, kCreateBatch, kNoModel},
    {Method::kGet, "/batches", true, StoreHandler{list_batches}, kNoModel},
    {Method::kGet, "/batches/{id}", true, StoreHandler{find_batch}, kNoModel},
    {Method::kPost, "/batches/{id}/cancel", true, kCancelBatch, kNoModel},
    {Method::kPost, "/tokenize", false, kTokenizing},
    {Method::kPost, "/detokenize", false, kDetokenizing},
    {Method::kGet, "/health", false, health_page, true, Access::kOpen},
    {Method::kGet, "/ready", false, ready_page, true, Access::kOpen},
    {Method::kGet, "/live", false, live_page, kNoModel, Access::kOpen},
    {Method::kGet, "/version", false, version_page, kNoModel, Access::kOpen},
    {Method::kGet, "/openapi.json", false, openapi_page, kNoModel},
    {Method::kGet, "/metrics", false, metrics_page, true, Access::kMetrics},
    {Method::kGet, "/config", false, config_page, kNoModel},
    {Method::kGet, "/server_info", false, server_info_page},
    {Method::kGet, "/get_server_info", false, server_info_page},
    {Method::kGet, "/model_info", false, model_info_page},
    {Method::kGet, "/get_model_info", false, model_info_page},
    {Method::kGet, "/get_load", false, load_page},
    {Method::kGet, "/loads", true, loads_page},
    {Method::kPost, "/messages", true, Endpoint::kMessages, true, Access::kProtected, ErrorForm::kMessages},
    {Method::kPost, "/messages/count_tokens", true, kMessagesCount, true, Access::kProtected, ErrorForm::kMessages},
    {Method::kPost, "/api/chat", false, Endpoint::kOllamaChat, true, Access::kProtected, ErrorForm::kOllama},
    {Method::kPost, "/api/generate", false, Endpoint::kOllamaGenerate, true, Access::kProtected, ErrorForm::kOllama},
    {Method::kPost, "/api/show", false, kOllamaShow, true, Access::kProtected, ErrorForm::kOllama},
    {Method::kGet, "/api/tags", false, ollama_tags_page, true, Access::kProtected, ErrorForm::kOllama},
    {Method::kGet, "/api/ps", false, ollama_ps_page, true, Access::kProtected, ErrorForm::kOllama},
    {Method::kGet, "/api/version", false, ollama_version_page, kNoModel, Access::kOpen, ErrorForm::kOllama},
    {Method::kGet, "/", false, ollama_root_page, kNoModel, Access::kOpen},
};
constexpr std::string_view kV1 = "/v1";

bool is_method(Method method, std::string_view name) {
  return name == method_name(method) || (method == Method::kGet && name == "HEAD");
}

// Whether a path is the row's; what stands for {id} or {name} is `rest`.
bool matches(const RouteRow& row, std::string_view path, std::string_view* rest) {
  const size_t open = row.path.find('{');
  if (open == row.path.npos) return row.path == path;
  const size_t close = row.path.find('}');
  const std::string_view begin = row.path.substr(0, open), end = row.path.substr(close + 1);
  if (path.size() <= begin.size() + end.size() || !path.starts_with(begin) || !path.ends_with(end)) return false;
  const std::string_view found = path.substr(begin.size(), path.size() - begin.size() - end.size());
  if (row.path.substr(open, close + 1 - open) == "{id}" && found.find('/') != found.npos) return false;
  *rest = found;
  return true;
}

Route find_exact(std::string_view method, std::string_view path) {
  const bool is_v1 = path.starts_with("/v1/");
  if (is_v1) path.remove_prefix(kV1.size());
  Route route;
  for (const RouteRow& row : kRoutes) {
    std::string_view rest;
    if ((is_v1 && !row.is_v1) || !matches(row, path, &rest)) continue;
    if (!route.at_path) route.at_path = &row;
    if (!route.row && is_method(row.method, method)) route.row = &row;
    route.rest = rest;
    route.allowed += fmt::format("{}{}, ", method_name(row.method), row.method == Method::kGet ? ", HEAD" : "");
  }
  if (route.at_path) route.allowed += "OPTIONS";
  return route;
}

}  // namespace

std::span<const RouteRow> routes() {
  return kRoutes;
}

const char* method_name(Method method) {
  switch (method) {
    case Method::kGet:
      return "GET";
    case Method::kPost:
      return "POST";
    case Method::kDelete:
      return "DELETE";
  }
  return "";
}

Route find_route(std::string_view method, std::string_view path) {
  const std::optional<std::string> decoded = decode_escapes(path);
  if (!decoded) {
    // A broken escape: the path is nobody's, but it may have been meant for a model.
    Route route = find_exact(method, path);
    return route.rest.empty() ? Route() : route;
  }
  const Route route = find_exact(method, *decoded);
  if (route.at_path || decoded->size() < 2 || !decoded->ends_with('/')) return route;
  return find_exact(method, std::string_view(*decoded).substr(0, decoded->size() - 1));
}

std::string known_paths() {
  std::string text;
  for (const RouteRow& row : kRoutes)
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", method_name(row.method), row.is_v1 ? kV1 : "", row.path);
  return text;
}

std::string shown(std::string_view text) {
  constexpr size_t kShownMax = 100;
  std::string out;
  for (const char c : text.substr(0, kShownMax)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return text.size() > kShownMax ? out + "..." : out;
}

}  // namespace llmrt::server
