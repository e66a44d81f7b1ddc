// Which Host a request may name. A web page whose name is made to point at 127.0.0.1 (DNS rebinding) sends its own name
// as Host: on a loopback address only loopback names are served, and those that the operator lists. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace llmrt::server {

// "[::1]" of "[::1]:8000", "a.example" of "a.example:80". The last dot of a name goes, too.
std::string_view host_without_port(std::string_view host);
// localhost, names below it, 127.0.0.0/8, [::1].
bool is_loopback_host(std::string_view host);
// `allowed`: names and addresses without ports; "*.a.example" is every name below a.example, "*" is any.
bool is_listed_host(std::string_view host, const std::vector<std::string>& allowed);

}  // namespace llmrt::server
