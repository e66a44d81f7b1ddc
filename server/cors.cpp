#include "server/cors.h"

#include <algorithm>

#include "server/ascii.h"

namespace llmrt::server {
namespace {

constexpr const char* kMaxAgeS = "3600";
// The star does for every request without credentials, which all of ours are; the names are for older browsers.
constexpr const char* kExposed =
    "x-request-id, request-id, x-client-request-id, traceparent, x-llmrt-ignored, x-should-retry, Retry-After, *";

// With a slash at the end, as people copy them.
bool is_same_origin(std::string_view origin, std::string_view entry) {
  if (entry.ends_with('/')) entry.remove_suffix(1);
  return std::equal(origin.begin(), origin.end(), entry.begin(), entry.end(),
                    [&](char a, char b) { return lower(a) == lower(b); });
}
bool allows_all(const std::vector<std::string>& allowed) {
  return std::find(allowed.begin(), allowed.end(), "*") != allowed.end();
}

}  // namespace

bool is_allowed_origin(const std::string& origin, const std::vector<std::string>& allowed) {
  return !origin.empty() && (allows_all(allowed) || std::any_of(allowed.begin(), allowed.end(), [&](const auto& entry) {
                               return is_same_origin(origin, entry);
                             }));
}

bool is_preflight(const RequestHead& head) {
  return head.method == "OPTIONS" && head.has_origin && !head.wanted_method.empty();
}

Headers cors_headers(const RequestHead& head, const std::vector<std::string>& allowed) {
  Headers headers;
  if (allowed.empty()) return headers;
  const bool all = allows_all(allowed);
  if (!all) headers.emplace_back("Vary", "Origin");  // also of answers without the others: caches must know
  if (!is_allowed_origin(head.origin, allowed)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", all ? "*" : head.origin);
  headers.emplace_back("Access-Control-Expose-Headers", kExposed);
  return headers;
}

Headers preflight_headers(const RequestHead& head) {
  Headers headers;
  headers.emplace_back("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS");
  // Whatever the page wants to send: clients add headers of their own, and a star leaves Authorization out.
  headers.emplace_back("Access-Control-Allow-Headers",
                       head.wanted_headers.empty() ? "Content-Type, Authorization" : head.wanted_headers);
  headers.emplace_back("Access-Control-Max-Age", kMaxAgeS);
  if (head.wants_private_network) headers.emplace_back("Access-Control-Allow-Private-Network", "true");
  headers.emplace_back("Vary", "Access-Control-Request-Headers");
  return headers;
}

}  // namespace llmrt::server
