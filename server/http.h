// HTTP/1.1 at the byte level, before and after Beast: what its parser lets through and a server must refuse, and how
// our responses look. Pure.
#pragma once

#include <boost/json.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api_error.h"
#include "server/config.h"

namespace llmrt::server {

// What the head of a request says, once it is complete and sound.
struct RequestHead {
  std::string method, target;
  bool keep_alive = true;
  bool is_http_1_0 = false;
  bool expects_continue = false;
  bool chunked = false;
  uint64_t content_length = 0;
  std::string content_type;  // lower case, without parameters
  std::string accept;        // all lines of it, with commas between
};

struct HeadScan {
  size_t bytes = 0;               // of the head, once complete; 0 = more is needed
  std::optional<ApiError> error;  // answer it, then close: what follows cannot be trusted
  RequestHead head;
};

// Looks at all bytes received so far of one request. Any split of the bytes gives the same outcome in the end.
HeadScan scan_head(std::string_view received, const ServerConfig& limits);

// What the percent escapes of a path's segment stand for; nothing where one is broken.
std::optional<std::string> decode_segment(std::string_view segment);

using Headers = std::vector<std::pair<std::string_view, std::string>>;

// What stands before a body of so many bytes.
std::string format_head(int status, std::string_view content_type, size_t body_bytes, bool keep_alive,
                        const Headers& headers = {});
// A response with its body; `with_body` false for HEAD.
std::string format_response(int status, std::string_view content_type, std::string_view body, bool keep_alive,
                            const Headers& headers = {}, bool with_body = true);
std::string format_error(const ApiError& error, bool keep_alive, const Headers& headers = {}, bool with_body = true);
// The head of a stream of server-sent events: chunked, or until close for HTTP/1.0.
std::string format_stream_head(bool chunked, bool keep_alive);
// One chunk of it. `data` holds whole events.
std::string format_chunk(std::string_view data, bool chunked);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";
// "data: ...\n\n"
std::string format_event(const boost::json::object& data);

}  // namespace llmrt::server
