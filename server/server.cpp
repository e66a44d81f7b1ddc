#include "server/server.h"

#include <boost/asio.hpp>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>
#include <utility>
#include <vector>

#include "core/text/utf8.h"
#include "server/api_request.h"
#include "server/session.h"

namespace llmrt::server {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

}  // namespace

struct Server::Impl {
  std::shared_ptr<SharedState> state = std::make_shared<SharedState>();
  asio::io_context io;
  tcp::acceptor acceptor{asio::make_strand(io)};
  asio::signal_set signals{io};
  asio::steady_timer drain_timer{acceptor.get_executor()};
  std::atomic<bool> hurry{false};

  Status open();
  void start_session(tcp::socket socket);
  asio::awaitable<void> accept();
  asio::awaitable<void> drain();
  asio::awaitable<void> watch_signals(Server* server);
  size_t num_sessions() const {
    std::lock_guard lock(state->mutex);
    return state->sessions.size();
  }
};

Status Server::Impl::open() {
  const ServerConfig& config = state->config;
  const std::string place = fmt::format("{}:{}", config.host, config.port);
  boost::system::error_code error;
  tcp::resolver resolver(io);
  const auto addresses = resolver.resolve(config.host, std::to_string(config.port), error);
  if (error || addresses.empty())
    return make_error(ErrorCode::kIo, "cannot listen: {}: no such address: {}", place, error.message());
  const tcp::endpoint endpoint = addresses.begin()->endpoint();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(1024, error);
  if (error) return make_error(ErrorCode::kIo, "cannot listen: {}: {}", place, error.message());
  return {};
}

void Server::Impl::start_session(tcp::socket socket) {
  if (num_sessions() < state->config.connections_max) {
    std::make_shared<Session>(std::move(socket), state)->start();
    return;
  }
  state->log->warn("connection closed: {} are open, the most that --connections allows", state->config.connections_max);
}

// Whatever is thrown, others are accepted all the same.
asio::awaitable<void> Server::Impl::accept() {
  std::string problem;
  while (acceptor.is_open()) {
    try {
      if (!std::exchange(problem, {}).empty()) {  // no descriptors or no memory left: wait until some are
        asio::steady_timer pause(acceptor.get_executor(), std::chrono::milliseconds(50));
        co_await pause.async_wait(asio::as_tuple(asio::use_awaitable));
      }
      auto [error, socket] = co_await acceptor.async_accept(asio::make_strand(io), asio::as_tuple(asio::use_awaitable));
      if (error == asio::error::operation_aborted) co_return;
      if (error)
        problem = error.message();
      else
        start_session(std::move(socket));
    } catch (const std::exception& thrown) {
      problem = thrown.what();
    }
    if (!problem.empty()) state->log->warn("cannot accept: {}", problem);
  }
}

// Ends when no session is left: each of them has then given its requests back to the engine.
asio::awaitable<void> Server::Impl::drain() {
  boost::system::error_code ignored;
  acceptor.close(ignored);
  const auto begin = std::chrono::steady_clock::now();
  const auto grace = std::chrono::seconds(state->config.grace_s);
  bool stopped = false;
  while (num_sessions() > 0) {
    const auto waited = std::chrono::steady_clock::now() - begin;
    const bool close_all = hurry || waited > grace + std::chrono::seconds(2);
    {
      std::lock_guard lock(state->mutex);
      for (Session* session : state->sessions) close_all ? session->close() : session->close_if_idle();
    }
    if (waited > grace && !stopped) {
      stopped = true;
      state->door->stop();
    }
    drain_timer.expires_after(std::chrono::milliseconds(20));
    co_await drain_timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  io.stop();
}

asio::awaitable<void> Server::Impl::watch_signals(Server* server) {
  while (true) {
    const auto [error, number] = co_await signals.async_wait(asio::as_tuple(asio::use_awaitable));
    if (error) co_return;
    server->drain();
  }
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() {
  // What still runs there resumes coroutines of the io context, which must not be gone.
  impl_->state->workers.reset();
  impl_->state->answerers.reset();
}

Result<std::unique_ptr<Server>> Server::listen(const ServerConfig& config, ServedModel model,
                                               std::shared_ptr<EngineDoor> door, std::shared_ptr<Log> log) {
  if (!is_valid_utf8(model.id))  // every answer is JSON, and says it
    return make_error(ErrorCode::kInvalidArgument, "model: expected a name in UTF-8, found {}",
                      replace_invalid_utf8(model.id));
  auto impl = std::make_unique<Impl>();
  impl->state->config = config;
  model.text_bytes_max = text_bytes_max(model);
  impl->state->model = std::move(model);
  impl->state->door = std::move(door);
  impl->state->log = std::move(log);
  impl->state->workers = std::make_unique<WorkQueue>(config.work_threads);
  impl->state->answerers = std::make_unique<WorkQueue>(config.work_threads);
  impl->state->memory = std::make_shared<ClientMemory>(config.client_memory_bytes);
  if (Status status = impl->open(); !status) return status.error();
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

uint16_t Server::port() const {
  return impl_->acceptor.local_endpoint().port();
}

void Server::run() {
  asio::co_spawn(impl_->acceptor.get_executor(), impl_->accept(), asio::detached);
  std::vector<std::thread> threads;
  for (int i = 1; i < impl_->state->config.io_threads; ++i) threads.emplace_back([this] { impl_->io.run(); });
  impl_->io.run();
  for (std::thread& thread : threads) thread.join();
}

void Server::drain() {
  if (impl_->state->draining.exchange(true)) {
    impl_->hurry = true;
    return;
  }
  impl_->state->log->info("draining: open answers may take {} s", impl_->state->config.grace_s);
  asio::co_spawn(impl_->acceptor.get_executor(), impl_->drain(), asio::detached);
}

void Server::stop() {
  impl_->hurry = true;
  drain();
}

void Server::drain_on_signals() {
  impl_->signals.add(SIGINT);
  impl_->signals.add(SIGTERM);
  asio::co_spawn(impl_->io, impl_->watch_signals(this), asio::detached);
}

}  // namespace llmrt::server
