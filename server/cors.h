// What browsers ask before a page of another origin may use the API (Fetch standard, CORS), by --allowed-origins. Pure.
#pragma once

#include <string>
#include <vector>

#include "server/http.h"

namespace llmrt::server {

// Entries are origins ("https://a.example:8443"), "null" or "*".
bool is_allowed_origin(const std::string& origin, const std::vector<std::string>& allowed);
// Asked by the browser itself before the request that the page wants.
bool is_preflight(const RequestHead& head);

// For every answer, errors and streams among them; none when no origin is allowed.
Headers cors_headers(const RequestHead& head, const std::vector<std::string>& allowed);
// For the answer to a preflight of an allowed origin, beside cors_headers(): what the page may send.
Headers preflight_headers(const RequestHead& head);

}  // namespace llmrt::server
