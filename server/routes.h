// From a method and a path to what answers them: one table, a row for each path and method. Pure.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "server/api_error.h"
#include "server/file_requests.h"
#include "server/known_fields.h"
#include "server/pages.h"
#include "server/parse_context.h"
#include "server/server_figures.h"

namespace llmrt::server {

enum class Method : uint8_t { kGet, kPost, kDelete };  // kGet: HEAD, too
// kProtected: with an API key, where the server has one (key_ring.h); kMetrics: unless --open-metrics.
enum class Access : uint8_t { kOpen, kProtected, kMetrics };

// A body's object to the answer's, or to the text of JSON that may be long; on a worker.
using JsonPost = ApiResult<boost::json::object> (*)(const boost::json::object& body, const ServedModel& model,
                                                    const ParseContext& context, ParseNotes* notes);
using JsonTextPost = ApiResult<std::string> (*)(const boost::json::object& body, const ServedModel& model,
                                                const ParseContext& context, ParseNotes* notes);
struct JsonHandler {
  std::variant<JsonPost, JsonTextPost> answer;
  CountedPath counted;
};

// What a file holds, on its way in or out: it passes in pieces.
enum class Transfer : uint8_t { kUpload, kContent };

struct RouteRow {
  Method method;
  std::string_view path;  // without /v1; "{id}" stands for any text but a slash, "{name}" at its end for any text
  bool is_v1;             // it lies below /v1, and is found without that, too
  // What answers: a page, a small computation, what a model writes (server/dialect.h), or the store of files.
  std::variant<PageHandler, JsonHandler, Endpoint, StoreHandler, Transfer> handler;
  bool needs_model = true;  // 503 while it is being loaded
  Access access = Access::kProtected;
  ErrorForm errors = ErrorForm::kOpenAi;
};

struct Route {
  const RouteRow* row = nullptr;      // null: there is no such path, or not with this method
  const RouteRow* at_path = nullptr;  // one of the path, whatever its method
  std::string rest;                   // what stands for {id} or {name}
  std::string allowed;                // "GET, HEAD, OPTIONS"

  template <typename Handler>
  const Handler* handler() const {  // null: it is of another kind
    return row ? std::get_if<Handler>(&row->handler) : nullptr;
  }
  ErrorForm errors() const { return at_path ? at_path->errors : ErrorForm::kOpenAi; }
};

std::span<const RouteRow> routes();
// `path` as it was sent, without a query: percent escapes are decoded once, a slash at the end says nothing, and the
// paths below /v1 are found without it, too. Nothing else is normalised.
Route find_route(std::string_view method, std::string_view path);
const char* method_name(Method method);
// What there is, for people who asked for something else.
std::string known_paths();
// Bytes from outside for an error text: at most 100, the rest and what is no printable ASCII left out.
std::string shown(std::string_view text);

}  // namespace llmrt::server
