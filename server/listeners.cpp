#include "server/listeners.h"

#include <algorithm>
#include <filesystem>

namespace llmrt::server {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

bool is_missing(const boost::system::error_code& error) {
  return error == boost::system::errc::address_not_available || error == asio::error::address_family_not_supported;
}

// All addresses of a name. localhost is both loopback addresses (RFC 6761), whatever the hosts file has.
std::vector<tcp::endpoint> addresses_of(const std::string& host, const asio::any_io_executor& executor,
                                        boost::system::error_code& error) {
  if (host == "localhost") return {{asio::ip::address_v4::loopback(), 0}, {asio::ip::address_v6::loopback(), 0}};
  tcp::resolver resolver(executor);
  std::vector<tcp::endpoint> endpoints;
  for (const auto& entry : resolver.resolve(host, "", tcp::resolver::passive, error))
    endpoints.push_back(entry.endpoint());
  return endpoints;
}

boost::system::error_code open_one(tcp::acceptor& acceptor, const tcp::endpoint& endpoint, bool v6_only) {
  boost::system::error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && endpoint.address().is_v6()) acceptor.set_option(asio::ip::v6_only(v6_only), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(1024, error);
  return error;
}

}  // namespace

Status Listeners::open(const ServerConfig& config, Log& log) {
  if (!config.unix_socket.empty())
    if (Status status = open_unix(config.unix_socket, config.unix_socket_mode); !status) return status;
  constexpr int kTriesMax = 10;  // a port that is free at the first address may be taken at the next
  std::vector<std::pair<std::string, Endpoints>> hosts;
  Endpoints seen;
  for (const std::string& host : config.hosts) {
    boost::system::error_code error;
    const Endpoints found = addresses_of(host, strand_, error);
    if (error || found.empty())
      return make_error(ErrorCode::kIo, "cannot listen: {}:{}: no such address: {}", host, config.port,
                        error.message());
    hosts.emplace_back(host, Endpoints());
    for (const tcp::endpoint& endpoint : found) {
      if (std::find(seen.begin(), seen.end(), endpoint) != seen.end()) continue;
      seen.push_back(endpoint);
      hosts.back().second.push_back(endpoint);
    }
  }
  const bool has_v4 =
      std::any_of(seen.begin(), seen.end(), [](const tcp::endpoint& each) { return each.address().is_v4(); });
  for (int tries = 1;; ++tries) {
    port_ = config.port;
    Status status;
    for (const auto& [host, endpoints] : hosts)
      if (status.ok()) status = open_host(host, endpoints, has_v4, log);
    if (status.ok() || config.port != 0 || tries == kTriesMax) return status;
    close_tcp();
    endpoints_.clear();
  }
}

// A file that a dead process has left is replaced; one that somebody listens on, or that is no socket, is an error.
Status Listeners::open_unix(const std::string& path, unsigned mode) {
  namespace fs = std::filesystem;
  using Protocol = asio::local::stream_protocol;
  const auto problem = [&](std::string_view what) {
    return make_error(ErrorCode::kIo, "cannot listen: unix socket {}: {}", path, what);
  };
  constexpr size_t kPathMax = 107;  // sockaddr_un, less the zero
  if (path.size() > kPathMax) return problem(fmt::format("expected at most {} bytes of path", kPathMax));
  std::error_code failed;
  const fs::file_status there = fs::symlink_status(path, failed);
  if (fs::exists(there) && there.type() != fs::file_type::socket)
    return problem("expected a socket or nothing there, found something else");
  boost::system::error_code error;
  if (fs::exists(there)) {
    Protocol::socket probe(strand_);
    probe.connect(Protocol::endpoint(path), error);
    if (!error) return problem("in use: a process listens there");
    if (error != asio::error::connection_refused) return problem(error.message());
    fs::remove(path, failed);
  }
  unix_acceptor_.emplace(strand_);
  unix_acceptor_->open(Protocol(), error);
  if (!error) unix_acceptor_->bind(Protocol::endpoint(path), error);
  if (error) return problem(error.message());
  unix_path_ = path;
  // Before listen(): until then nobody can connect, whatever the umask.
  fs::permissions(path, static_cast<fs::perms>(mode), failed);
  if (failed) return problem(failed.message());
  unix_acceptor_->listen(1024, error);
  return error ? problem(error.message()) : Status();
}

void Listeners::remove_file() {
  std::error_code ignored;
  if (!unix_path_.empty()) std::filesystem::remove(unix_path_, ignored);
  unix_path_.clear();
}

Status Listeners::open_host(const std::string& host, const Endpoints& endpoints, bool has_v4, Log& log) {
  const size_t num_before = acceptors_.size();
  std::string missing;
  for (tcp::endpoint endpoint : endpoints) {
    endpoint.port(port_);
    // "::" alone takes IPv4, too; beside an address of IPv4 it must leave that to the other.
    const bool v6_only = has_v4 || !endpoint.address().is_unspecified();
    tcp::acceptor acceptor(strand_);
    const boost::system::error_code error = open_one(acceptor, endpoint, v6_only);
    if (is_missing(error) && endpoints.size() > 1) {
      missing = fmt::format("{}: {}", endpoint.address().to_string(), error.message());
      log.info("not listening on an address of {}: {}", host, missing);
      continue;
    }
    if (error) {
      const std::string place =
          endpoints.size() == 1 ? host : fmt::format("{} ({})", host, endpoint.address().to_string());
      return make_error(ErrorCode::kIo, "cannot listen: {}:{}: {}", place, port_, error.message());
    }
    endpoints_.push_back(acceptor.local_endpoint());
    port_ = endpoints_.back().port();
    acceptors_.push_back(std::move(acceptor));
  }
  if (acceptors_.size() == num_before && !endpoints.empty())
    return make_error(ErrorCode::kIo, "cannot listen: {}:{}: {}", host, port_, missing);
  return {};
}

void Listeners::close_tcp() {
  boost::system::error_code ignored;
  for (tcp::acceptor& acceptor : acceptors_) acceptor.close(ignored);
  acceptors_.clear();
}

void Listeners::close() {
  boost::system::error_code ignored;
  close_tcp();
  remove_file();  // first: whoever comes now finds nothing rather than a socket that nobody reads
  if (unix_acceptor_) unix_acceptor_->close(ignored);
}

}  // namespace llmrt::server
