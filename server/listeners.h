// The addresses that a server listens on: all of each name that it was given, and a unix socket. The file of that is
// ours until close().
#pragma once

#include <boost/asio.hpp>

#include <list>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/log/log.h"
#include "server/config.h"

namespace llmrt::server {

class Listeners {
 public:
  explicit Listeners(boost::asio::any_io_executor strand) : strand_(std::move(strand)) {}
  ~Listeners() { remove_file(); }

  // Binds and listens, on one port everywhere. An address of a name that the machine does not have is left out with a
  // line, as long as the name has another.
  Status open(const ServerConfig& config, Log& log);
  // On the strand.
  void close();

  uint16_t port() const { return port_; }
  std::list<boost::asio::ip::tcp::acceptor>& acceptors() { return acceptors_; }
  std::vector<boost::asio::ip::tcp::endpoint> endpoints() const { return endpoints_; }
  using UnixAcceptor = boost::asio::local::stream_protocol::acceptor;
  UnixAcceptor* unix_acceptor() { return unix_acceptor_ ? &*unix_acceptor_ : nullptr; }

 private:
  using Endpoints = std::vector<boost::asio::ip::tcp::endpoint>;
  Status open_unix(const std::string& path, unsigned mode);
  Status open_host(const std::string& host, const Endpoints& endpoints, bool has_v4, Log& log);

  void close_tcp();
  void remove_file();

  boost::asio::any_io_executor strand_;
  std::list<boost::asio::ip::tcp::acceptor> acceptors_;
  Endpoints endpoints_;
  std::optional<UnixAcceptor> unix_acceptor_;
  std::string unix_path_;  // empty: there is no file of ours
  uint16_t port_ = 0;
};

}  // namespace llmrt::server
