// From a path to what answers it. Pure.
#pragma once

#include <string>
#include <string_view>

namespace llmrt::server {

enum class Page {
  kNone,
  kChat,
  kCompletions,
  kInfill,
  kTokenize,
  kDetokenize,
  kModels,
  kModel,
  kHealth,
  kReady,
  kLive,
  kVersion,
  kMetrics,
  kServerInfo,
  kModelInfo,
  kLoad,
  kLoads,
};

struct Route {
  Page page = Page::kNone;
  bool is_post = false;
  std::string model;  // kModel: its name, as the path has it

  const char* allowed_methods() const { return is_post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS"; }
};

// `path` as it was sent, without a query: percent escapes are decoded once, a slash at the end says nothing, and the
// paths below /v1 are found without it, too. Nothing else is normalised.
Route find_route(std::string_view path);
// What there is, for people who asked for something else.
std::string known_paths();
// Bytes from outside for an error text: at most 100, the rest and what is no printable ASCII left out.
std::string shown(std::string_view text);

}  // namespace llmrt::server
