#include "server/hosts.h"

#include <boost/asio/ip/address.hpp>

#include <algorithm>

#include "server/ascii.h"

namespace llmrt::server {
namespace {

// Brackets of an IPv6 address are left out of lists as often as not.
std::string_view without_brackets(std::string_view name) {
  const bool has_them = name.size() > 2 && name.front() == '[' && name.back() == ']';
  return has_them ? name.substr(1, name.size() - 2) : name;
}

}  // namespace

std::string_view host_without_port(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, std::min(host.size(), host.find(']') + 1));
  host = host.substr(0, host.rfind(':'));
  if (host.size() > 1 && host.ends_with('.')) host.remove_suffix(1);
  return host;
}

bool is_loopback_host(std::string_view host) {
  const std::string name = lower(host_without_port(host));
  if (name == "localhost" || name.ends_with(".localhost")) return true;
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(without_brackets(name), error);
  if (error) return false;
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6()).is_loopback();
  return address.is_loopback();
}

bool is_listed_host(std::string_view host, const std::vector<std::string>& allowed) {
  const std::string name = lower(without_brackets(host_without_port(host)));
  return std::any_of(allowed.begin(), allowed.end(), [&](const std::string& entry) {
    const std::string wanted = lower(without_brackets(entry));
    if (wanted == "*") return true;
    if (wanted.starts_with("*.")) return name.size() >= wanted.size() && name.ends_with(wanted.substr(1));
    return name == wanted;
  });
}

}  // namespace llmrt::server
