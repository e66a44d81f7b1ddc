#include "server/routes.h"

#include <fmt/format.h>

#include "server/http.h"

namespace llmrt::server {
namespace {

struct Entry {
  std::string_view path;  // without /v1
  bool is_v1, is_post;
  Page page;
};
// The last names are what routers and load generators made for SGLang ask for.
constexpr Entry kEntries[] = {
    {"/chat/completions", true, true, Page::kChat},
    {"/completions", true, true, Page::kCompletions},
    {"/infill", false, true, Page::kInfill},
    {"/models", true, false, Page::kModels},
    {"/tokenize", false, true, Page::kTokenize},
    {"/detokenize", false, true, Page::kDetokenize},
    {"/health", false, false, Page::kHealth},
    {"/ready", false, false, Page::kReady},
    {"/live", false, false, Page::kLive},
    {"/version", false, false, Page::kVersion},
    {"/metrics", false, false, Page::kMetrics},
    {"/server_info", false, false, Page::kServerInfo},
    {"/get_server_info", false, false, Page::kServerInfo},
    {"/model_info", false, false, Page::kModelInfo},
    {"/get_model_info", false, false, Page::kModelInfo},
    {"/get_load", false, false, Page::kLoad},
    {"/loads", true, false, Page::kLoads},
};
constexpr std::string_view kV1 = "/v1", kModels = "/models/";

Route find_exact(std::string_view path) {
  const bool is_v1 = path.starts_with("/v1/");
  if (is_v1) path.remove_prefix(kV1.size());
  for (const Entry& entry : kEntries)
    if (entry.path == path && (entry.is_v1 || !is_v1)) return {entry.page, entry.is_post, {}};
  if (path.size() > kModels.size() && path.starts_with(kModels))
    return {Page::kModel, false, std::string(path.substr(kModels.size()))};
  return {};
}

}  // namespace

Route find_route(std::string_view path) {
  const std::optional<std::string> decoded = decode_escapes(path);
  if (!decoded) {
    // A broken escape: the path is nobody's, but it may have been meant for a model.
    Route route = find_exact(path);
    return route.page == Page::kModel ? route : Route();
  }
  const Route route = find_exact(*decoded);
  if (route.page != Page::kNone || decoded->size() < 2 || !decoded->ends_with('/')) return route;
  return find_exact(std::string_view(*decoded).substr(0, decoded->size() - 1));
}

std::string known_paths() {
  std::string text;
  for (const Entry& entry : kEntries)
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", entry.is_post ? "POST" : "GET", entry.is_v1 ? kV1 : "",
                        entry.path);
  return text;
}

std::string shown(std::string_view text) {
  constexpr size_t kShownMax = 100;
  std::string out;
  for (const char c : text.substr(0, kShownMax)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return text.size() > kShownMax ? out + "..." : out;
}

}  // namespace llmrt::server
