// HTTP/1.1 at the byte level, before and after Beast: what its parser lets through and a server must refuse, and how
// our responses look. Pure.
#pragma once

#include <boost/json.hpp>

#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api_error.h"
#include "server/config.h"
#include "server/content_coding.h"
#include "server/trace_context.h"

namespace llmrt::server {

// What the head of a request says, once it is complete and sound.
struct RequestHead {
  std::string method;
  std::string target;  // the path as it was sent, or "*"
  std::string query;   // what stood behind its '?'
  std::string host;    // of the target where it has one (RFC 9112 3.2.2), else of the header; empty: HTTP/1.0
  bool keep_alive = true;
  bool is_http_1_0 = false;
  bool expects_continue = false;
  bool chunked = false;
  uint64_t content_length = 0;
  ContentCoding coding = ContentCoding::kIdentity;  // of the body
  GzipWish gzip = GzipWish::kNo;                    // for the answer
  std::string content_type;                         // lower case, without parameters
  std::string boundary;                             // of it; empty: none
  std::string accept;                               // all lines of it, with commas between
  std::string request_id, client_request_id;        // the client's own, where they are plain ones
  std::optional<TraceContext> trace;
  std::string request_class, cache_salt;  // x-request-class, x-cache-salt; empty: none
  std::string api_key;                    // of Authorization: Bearer, else of x-api-key; empty: none
  // What browsers send for pages of other origins. `origin` is empty where it is none that could be listed.
  bool has_origin = false;
  std::string origin, wanted_method, wanted_headers;
  bool wants_private_network = false;
};

struct HeadScan {
  size_t bytes = 0;               // of the head, once complete; 0 = more is needed
  std::optional<ApiError> error;  // answer it, then close: what follows cannot be trusted
  RequestHead head;
};

// Looks at all bytes received so far of one request. Any split of the bytes gives the same outcome in the end.
HeadScan scan_head(std::string_view received, const ServerConfig& limits);

// The bytes of whole empty lines at the front: they may stand before a request (RFC 9112 2.2), not without end.
size_t empty_lines_bytes(std::string_view received);
inline constexpr size_t kEmptyLinesBytesMax = 16;

// What the percent escapes of a path stand for, decoded once; nothing where one is broken.
std::optional<std::string> decode_escapes(std::string_view path);

// The decoded value of `name` in a query; nothing: it is not there, or its escapes are broken.
std::optional<std::string> query_value(std::string_view query, std::string_view name);

using Headers = std::vector<std::pair<std::string_view, std::string>>;

// "Sun, 06 Nov 1994 08:49:37 GMT", for the Date header.
std::string http_date(std::time_t time);

// What stands before a body of so many bytes. Of 204 the body is left out, and all that speaks of it.
std::string format_head(int status, std::string_view content_type, size_t body_bytes, bool keep_alive,
                        const Headers& headers = {});
// The same with its body; `with_body` false for HEAD.
std::string format_response(int status, std::string_view content_type, std::string_view body, bool keep_alive,
                            const Headers& headers = {}, bool with_body = true);
std::string format_error(const ApiError& error, bool keep_alive, const Headers& headers = {}, bool with_body = true,
                         const ErrorShape& shape = {});
inline constexpr std::string_view kEventStream = "text/event-stream; charset=utf-8";
// The head of a stream: chunked, or until close for HTTP/1.0.
std::string format_stream_head(bool chunked, bool keep_alive, const Headers& headers = {},
                               std::string_view content_type = kEventStream);
// One chunk of it. `data` holds whole events, or lines.
std::string format_chunk(std::string_view data, bool chunked);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";
// "data: ...\n\n"
std::string format_event(const boost::json::object& data);

}  // namespace llmrt::server
