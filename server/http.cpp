#include "server/http.h"

#include <algorithm>
#include <charconv>

#include "server/ascii.h"

namespace llmrt::server {
namespace {

ApiError bad_request(std::string message) {
  return http_error(400, "bad_request", "HTTP: " + std::move(message));
}

bool is_token_char(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}
bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}
bool is_host(std::string_view text) {
  return !text.empty() && text.size() <= 255 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view(".-_:[]").find(c) != std::string_view::npos;
  });
}

// The position behind the empty line, 0 while there is none; a bare CR or LF or a NUL is an error at once.
size_t find_end(std::string_view received, std::optional<ApiError>& error) {
  for (size_t i = 0; i < received.size(); ++i) {
    const char c = received[i];
    const bool crlf = c == '\n' && i > 0 && received[i - 1] == '\r';
    if (c == '\0' || (c == '\n' && !crlf) || (i > 0 && received[i - 1] == '\r' && c != '\n')) {
      error = bad_request("a bare line end or NUL in the header");
      return 0;
    }
    if (crlf && i == 1) {
      error = bad_request("too many empty lines before the request");
      return 0;
    }
    if (crlf && i >= 3 && received[i - 2] == '\n') return i + 1;
  }
  return 0;
}

// A path, "*" for OPTIONS, or the absolute form that proxies and some clients send.
std::optional<ApiError> scan_target(std::string_view target, RequestHead& head) {
  if (!std::all_of(target.begin(), target.end(), [](char c) { return c > 0x20 && c < 0x7f; }))
    return bad_request("a byte in the target that is no printable ASCII");
  if (target == "*" && head.method == "OPTIONS") {
    head.target = target;
    return std::nullopt;
  }
  const size_t colon = target.find("://");
  const std::string scheme = colon == std::string_view::npos ? std::string() : lower(target.substr(0, colon));
  if (scheme == "http" || scheme == "https") {
    target.remove_prefix(colon + 3);
    const size_t end = std::min(target.size(), target.find_first_of("/?"));
    head.host = target.substr(0, end);
    if (!is_host(head.host)) return bad_request("expected a plain name as the target's host");
    target.remove_prefix(end);
    if (target.empty()) {
      head.target = head.method == "OPTIONS" ? "*" : "/";
      return std::nullopt;
    }
  }
  const size_t mark = std::min(target.find('?'), target.size());
  head.query = target.substr(std::min(mark + 1, target.size()));
  target = target.substr(0, mark);
  if (target.empty() && !scheme.empty()) target = "/";
  if (target.empty() || target[0] != '/') return bad_request("expected a target that begins with / or http://");
  head.target = target;
  return std::nullopt;
}

std::optional<ApiError> scan_request_line(std::string_view line, RequestHead& head) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return bad_request("the request line has no three parts");
  head.method = line.substr(0, first);
  const std::string_view version = line.substr(last + 1);
  if (!is_token(head.method) || head.method.size() > 16) return bad_request("the method is no token");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return http_error(505, "http_version", "HTTP: expected version 1.0 or 1.1, found another");
  }
  head.is_http_1_0 = version == "HTTP/1.0";
  head.keep_alive = !head.is_http_1_0;
  return scan_target(line.substr(first + 1, last - first - 1), head);
}

struct Seen {
  int hosts = 0, lengths = 0, encodings = 0, types = 0, ids = 0, client_ids = 0, traces = 0, origins = 0, bearers = 0,
      keys = 0;
  std::string codings, accepted_codings;  // all lines of each, with commas between
};

// Echoed in a header and written to the log.
bool is_plain_id(std::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("-_.:/=+@").find(c) != std::string_view::npos;
  });
}
// A list of header names.
bool is_token_list(std::string_view text) {
  return text.size() <= 2048 &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_token_char(c) || c == ',' || c == ' '; });
}

// What pages of other origins need (cors.h). Nothing here is a reason to refuse a request.
void scan_cors_field(std::string_view name, std::string_view value, RequestHead& head, Seen& seen) {
  if (name == "origin") {
    const bool is_plain = ++seen.origins == 1 && value.size() <= 512 && value.find(' ') == std::string_view::npos &&
                          std::all_of(value.begin(), value.end(), [](char c) { return c > 0x20 && c < 0x7f; });
    head.has_origin = true;
    head.origin = is_plain ? value : std::string_view();
  } else if (name == "access-control-request-method") {
    if (is_token(value) && value.size() <= 16) head.wanted_method = value;
  } else if (name == "access-control-request-headers") {
    if (is_token_list(value)) head.wanted_headers = value;
  } else if (name == "access-control-request-private-network") {
    head.wants_private_network = value == "true";
  }
}

// A key, in the two ways that clients send one. A scheme but Bearer is for somebody else, as a proxy on the way.
std::optional<ApiError> scan_key_field(std::string_view name, std::string_view value, RequestHead& head, Seen& seen) {
  const bool is_bearer = name == "authorization";
  int& count = is_bearer ? seen.bearers : seen.keys;
  if (++count > 1) return bad_request(fmt::format("expected one {}", name));
  if (!is_bearer) {
    if (head.api_key.empty()) head.api_key = value;
    return std::nullopt;
  }
  constexpr std::string_view kScheme = "bearer ";
  if (lower(value.substr(0, kScheme.size())) == kScheme) head.api_key = trim(value.substr(kScheme.size()));
  return std::nullopt;
}

// The boundary among the parameters of a Content-Type; empty: none. What may be one is judged by whoever needs it.
std::string find_boundary(std::string_view parameters) {
  while (!parameters.empty()) {
    const size_t end = std::min(parameters.find(';', 1), parameters.size());
    std::string_view parameter = trim(parameters.substr(1, end - 1));
    parameters.remove_prefix(end);
    const size_t equals = std::min(parameter.find('='), parameter.size());
    if (lower(trim(parameter.substr(0, equals))) != "boundary") continue;
    parameter = trim(parameter.substr(std::min(equals + 1, parameter.size())));
    const bool is_quoted = parameter.size() >= 2 && parameter.front() == '"' && parameter.back() == '"';
    return std::string(is_quoted ? parameter.substr(1, parameter.size() - 2) : parameter);
  }
  return {};
}

std::optional<ApiError> scan_field(std::string_view name, std::string_view value, RequestHead& head, Seen& seen) {
  if (name == "host") {
    if (++seen.hosts > 1 || !is_host(value)) return bad_request("expected one Host with a plain name");
    if (head.host.empty()) head.host = value;  // the target's goes first
  } else if (name == "content-length") {
    const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), head.content_length);
    if (++seen.lengths > 1 || value.empty() || problem != std::errc() || end != value.data() + value.size())
      return bad_request("expected one Content-Length with digits alone");
  } else if (name == "transfer-encoding") {
    if (++seen.encodings > 1 || lower(value) != "chunked")
      return http_error(501, "transfer_encoding", "HTTP: expected no Transfer-Encoding or exactly 'chunked'");
    head.chunked = true;
  } else if (name == "content-encoding" || name == "accept-encoding") {
    std::string& lines = name == "accept-encoding" ? seen.accepted_codings : seen.codings;
    if (!lines.empty()) lines += ',';
    lines += value;
  } else if (name == "content-type") {
    if (++seen.types > 1) return bad_request("expected one Content-Type");
    const size_t end = std::min(value.find(';'), value.size());
    head.content_type = lower(trim(value.substr(0, end)));
    head.boundary = find_boundary(value.substr(end));
  } else if (name == "accept") {
    if (!head.accept.empty()) head.accept += ',';
    head.accept += value;
  } else if (name == "expect") {
    if (lower(value) != "100-continue") return http_error(417, "expectation", "HTTP: expected 100-continue or nothing");
    head.expects_continue = true;
  } else if (name == "x-request-class" || name == "x-cache-salt") {
    std::string& known = name == "x-cache-salt" ? head.cache_salt : head.request_class;
    if (!known.empty()) return bad_request(fmt::format("expected one {}", name));
    known = value;
  } else if (name == "authorization" || name == "x-api-key") {
    return scan_key_field(name, value, head, seen);
  } else if (name == "x-request-id") {
    head.request_id = ++seen.ids == 1 && is_plain_id(value) ? value : std::string_view();
  } else if (name == "x-client-request-id") {
    head.client_request_id = ++seen.client_ids == 1 && is_plain_id(value) ? value : std::string_view();
  } else if (name == "traceparent") {
    head.trace = ++seen.traces == 1 ? parse_traceparent(value) : std::nullopt;
  } else if (name == "connection") {  // what it offers beside, as h2c in Upgrade, may be ignored (RFC 9110 7.8)
    const std::string tokens = "," + lower(value) + ",";
    std::string packed;
    std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(packed),
                 [](char c) { return c != ' ' && c != '\t'; });
    if (packed.find(",close,") != std::string::npos) head.keep_alive = false;
    if (packed.find(",keep-alive,") != std::string::npos && head.is_http_1_0) head.keep_alive = true;
  } else {
    scan_cors_field(name, value, head, seen);
  }
  return std::nullopt;
}

std::optional<ApiError> take_codings(const Seen& seen, const ServerConfig& limits, RequestHead& head) {
  const std::optional<ContentCoding> coding = parse_content_encoding(seen.codings);
  if (!coding || (*coding != ContentCoding::kIdentity && !limits.compression)) {
    ApiError error =
        http_error(415, "content_encoding",
                   limits.compression ? "HTTP: expected gzip or deflate as Content-Encoding, and one of them alone"
                                      : "HTTP: expected no Content-Encoding (--no-compression)");
    error.accept_encoding = limits.compression ? kTakenCodings : "identity";
    return error;
  }
  head.coding = *coding;
  head.gzip = wants_gzip(seen.accepted_codings);
  return std::nullopt;
}

std::optional<ApiError> scan_lines(std::string_view text, const ServerConfig& limits, RequestHead& head) {
  size_t begin = text.find("\r\n");
  if (auto error = scan_request_line(text.substr(0, begin), head)) return error;
  Seen seen;
  size_t num_fields = 0;
  for (begin += 2; begin < text.size();) {
    const size_t end = text.find("\r\n", begin);
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 2;
    if (line.empty()) break;
    if (++num_fields > limits.headers_max)
      return http_error(431, "too_many_headers", fmt::format("HTTP: expected at most {} headers", limits.headers_max));
    const size_t colon = line.find(':');
    if (line[0] == ' ' || line[0] == '\t') return bad_request("a folded header line");
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
      return bad_request("a header line without a plain name");
    const std::string_view value = trim(line.substr(colon + 1));
    if (std::any_of(value.begin(), value.end(),
                    [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; }))
      return bad_request("a control character in a header");
    if (auto error = scan_field(lower(line.substr(0, colon)), value, head, seen)) return error;
  }
  if (seen.hosts == 0 && !head.is_http_1_0) return bad_request("no Host");
  if (auto error = take_codings(seen, limits, head)) return error;
  if (head.chunked && (seen.lengths > 0 || head.is_http_1_0))
    return bad_request("Transfer-Encoding beside a Content-Length or in HTTP/1.0");
  return std::nullopt;
}

constexpr int kNoContent = 204;

std::string_view reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case kNoContent:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    case kOverloadedStatus:
      return "Overloaded";
    default:
      return "Error";
  }
}

std::string header_lines(const Headers& headers) {
  std::string out;
  for (const auto& [name, value] : headers) out += fmt::format("{}: {}\r\n", name, value);
  return out;
}

}  // namespace

HeadScan scan_head(std::string_view received, const ServerConfig& limits) {
  HeadScan scan;
  const size_t end = find_end(received.substr(0, limits.header_bytes_max), scan.error);
  if (scan.error) return scan;
  if (end == 0) {
    if (received.size() >= limits.header_bytes_max)
      scan.error = http_error(431, "header_too_large",
                              fmt::format("HTTP: expected at most {} bytes of header", limits.header_bytes_max));
    return scan;
  }
  scan.error = scan_lines(received.substr(0, end), limits, scan.head);
  if (!scan.error) scan.bytes = end;
  return scan;
}

size_t empty_lines_bytes(std::string_view received) {
  size_t bytes = 0;
  while (received.substr(bytes, 2) == "\r\n") bytes += 2;
  return bytes;
}

std::optional<std::string> decode_escapes(std::string_view path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] != '%') {
      out += path[i];
      continue;
    }
    const std::string_view digits = path.substr(i + 1, 2);
    uint8_t byte = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (digits.size() < 2 || error != std::errc() || end != digits.data() + 2) return std::nullopt;
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

std::optional<std::string> query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const size_t equals = std::min(pair.find('='), pair.size());
    if (pair.substr(0, equals) != name) continue;
    return decode_escapes(pair.substr(std::min(equals + 1, pair.size())));
  }
  return std::nullopt;
}

// By hand: strftime follows the locale.
std::string http_date(std::time_t time) {
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc = {};
  gmtime_r(&time, &utc);
  return fmt::format("{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT", kDays[utc.tm_wday], utc.tm_mday, kMonths[utc.tm_mon],
                     utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

std::string format_head(int status, std::string_view content_type, size_t body_bytes, bool keep_alive,
                        const Headers& headers) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", status, reason(status));
  if (status != 204) out += fmt::format("Content-Type: {}\r\nContent-Length: {}\r\n", content_type, body_bytes);
  out += fmt::format("Connection: {}\r\n{}\r\n", keep_alive ? "keep-alive" : "close", header_lines(headers));
  return out;
}

std::string format_response(int status, std::string_view content_type, std::string_view body, bool keep_alive,
                            const Headers& headers, bool with_body) {
  std::string out = format_head(status, content_type, body.size(), keep_alive, headers);
  if (status != 204 && with_body) out += body;
  return out;
}

std::string format_error(const ApiError& error, bool keep_alive, const Headers& headers, bool with_body,
                         const ErrorShape& shape) {
  Headers all = headers;
  if (error.retry_after_s > 0) all.emplace_back("Retry-After", fmt::format("{}", error.retry_after_s));
  if (error.will_repeat) all.emplace_back("x-should-retry", "false");
  if (error.status == 401) all.emplace_back("WWW-Authenticate", "Bearer");
  if (!error.accept_encoding.empty()) all.emplace_back("Accept-Encoding", error.accept_encoding);
  return format_response(error_status(error, shape.form), "application/json",
                         boost::json::serialize(error_body(error, shape)), keep_alive, all, with_body);
}

std::string format_stream_head(bool chunked, bool keep_alive, const Headers& headers, std::string_view content_type) {
  return fmt::format(
      "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nCache-Control: no-cache\r\n"
      "X-Accel-Buffering: no\r\nConnection: {}\r\n{}{}\r\n",
      content_type, keep_alive ? "keep-alive" : "close", chunked ? "Transfer-Encoding: chunked\r\n" : "",
      header_lines(headers));
}

std::string format_chunk(std::string_view data, bool chunked) {
  if (!chunked) return std::string(data);
  return fmt::format("{:x}\r\n{}\r\n", data.size(), data);
}

std::string format_event(const boost::json::object& data) {
  return "data: " + boost::json::serialize(data) + "\n\n";
}

}  // namespace llmrt::server
