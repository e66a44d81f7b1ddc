// The addresses that a server listens on: all of each name that it was given.
#pragma once

#include <boost/asio.hpp>

#include <list>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/log/log.h"
#include "server/config.h"

namespace llmrt::server {

class Listeners {
 public:
  explicit Listeners(boost::asio::any_io_executor strand) : strand_(std::move(strand)) {}

  // Binds and listens, on one port everywhere. An address of a name that the machine does not have is left out with a
  // line, as long as the name has another.
  Status open(const ServerConfig& config, Log& log);
  // On the strand.
  void close();

  uint16_t port() const { return port_; }
  std::list<boost::asio::ip::tcp::acceptor>& acceptors() { return acceptors_; }
  std::vector<boost::asio::ip::tcp::endpoint> endpoints() const { return endpoints_; }

 private:
  using Endpoints = std::vector<boost::asio::ip::tcp::endpoint>;
  Status open_host(const std::string& host, const Endpoints& endpoints, bool has_v4, Log& log);

  boost::asio::any_io_executor strand_;
  std::list<boost::asio::ip::tcp::acceptor> acceptors_;
  Endpoints endpoints_;
  uint16_t port_ = 0;
};

}  // namespace llmrt::server
