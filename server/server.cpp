#include "server/server.h"

#include <boost/asio.hpp>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/utf8.h"
#include "server/api_request.h"
#include "server/listeners.h"
#include "server/session.h"
#include "server/signal_watch.h"

namespace llmrt::server {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

// Behind the grace time: two seconds to close what is left, and then some for the engine.
constexpr int kAfterGraceS = 10;

}  // namespace

struct Server::Impl {
  explicit Impl(const ServerConfig& config) : state(std::make_shared<SharedState>(config)) {}

  std::shared_ptr<SharedState> state;
  asio::io_context io;
  asio::any_io_executor strand{asio::make_strand(io)};  // of what follows
  Listeners listeners{strand};
  asio::steady_timer drain_timer{strand};
  std::atomic<bool> hurry{false};
  std::vector<std::thread> threads;
  std::unique_ptr<SignalWatch> signals;

  void start();
  void start_session(tcp::socket socket, bool on_loopback);
  asio::awaitable<void> accept(tcp::acceptor* acceptor);
  asio::awaitable<void> drain(int notice_s);
  asio::awaitable<void> pause();
  size_t num_sessions() const {
    std::lock_guard lock(state->mutex);
    return state->sessions.size();
  }
};

void Server::Impl::start() {
  for (tcp::acceptor& acceptor : listeners.acceptors()) asio::co_spawn(strand, accept(&acceptor), asio::detached);
  for (int i = 0; i < state->config.io_threads; ++i) threads.emplace_back([this] { io.run(); });
}

void Server::Impl::start_session(tcp::socket socket, bool on_loopback) {
  if (num_sessions() < state->config.connections_max) {
    std::make_shared<Session>(std::move(socket), state, on_loopback)->start();
    return;
  }
  state->log_bounded(
      LogLevel::kWarning,
      fmt::format("connection closed: {} are open, the most that --connections allows", state->config.connections_max));
}

// Whatever is thrown, others are accepted all the same.
asio::awaitable<void> Server::Impl::accept(tcp::acceptor* acceptor) {
  std::string problem;
  const bool on_loopback = acceptor->local_endpoint().address().is_loopback();
  while (!state->closing) {
    try {
      if (!std::exchange(problem, {}).empty()) {  // no descriptors or no memory left: wait until some are
        asio::steady_timer pause(strand, std::chrono::milliseconds(50));
        co_await pause.async_wait(asio::as_tuple(asio::use_awaitable));
        if (state->closing) co_return;
      }
      auto [error, socket] =
          co_await acceptor->async_accept(asio::make_strand(io), asio::as_tuple(asio::use_awaitable));
      if (error == asio::error::operation_aborted) co_return;
      if (error)
        problem = error.message();
      else
        start_session(std::move(socket), on_loopback);
    } catch (const std::exception& thrown) {
      problem = thrown.what();
    }
    if (!problem.empty()) state->log_bounded(LogLevel::kWarning, fmt::format("cannot accept: {}", problem));
  }
}

asio::awaitable<void> Server::Impl::pause() {
  drain_timer.expires_after(std::chrono::milliseconds(20));
  co_await drain_timer.async_wait(asio::as_tuple(asio::use_awaitable));
}

// Ends when no session is left: each of them has then given its requests back to the engine.
asio::awaitable<void> Server::Impl::drain(int notice_s) {
  const auto told = std::chrono::steady_clock::now();
  while (!hurry && std::chrono::steady_clock::now() - told < std::chrono::seconds(notice_s)) co_await pause();
  state->closing = true;
  listeners.close();
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
      if (state->loaded) state->door->stop();
    }
    co_await pause();
  }
  io.stop();
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  impl_->io.stop();
  for (std::thread& thread : impl_->threads)
    if (thread.joinable()) thread.join();
  // What still runs there resumes coroutines of the io context, which must not be gone.
  impl_->state->workers.reset();
  impl_->state->answerers.reset();
  impl_->signals.reset();  // the last: it ends the process when something above does not
}

Result<std::unique_ptr<Server>> Server::bind(const ServerConfig& config, std::shared_ptr<Log> log) {
  auto impl = std::make_unique<Impl>(config);
  impl->state->log = std::move(log);
  impl->state->workers = std::make_unique<WorkQueue>(config.work_threads);
  impl->state->answerers = std::make_unique<WorkQueue>(config.work_threads);
  impl->state->memory = std::make_shared<ClientMemory>(config.client_memory_bytes);
  if (Status status = impl->listeners.open(config, *impl->state->log); !status) return status.error();
  impl->start();
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Status Server::open(ServedModel model, std::shared_ptr<EngineDoor> door) {
  if (!is_valid_utf8(model.id))  // every answer is JSON, and says it
    return make_error(ErrorCode::kInvalidArgument, "model: expected a name in UTF-8, found {}",
                      replace_invalid_utf8(model.id));
  model.text_bytes_max = text_bytes_max(model);
  impl_->state->model = std::move(model);
  impl_->state->door = std::move(door);
  impl_->state->loaded = true;
  return {};
}

Result<std::unique_ptr<Server>> Server::listen(const ServerConfig& config, ServedModel model,
                                               std::shared_ptr<EngineDoor> door, std::shared_ptr<Log> log) {
  Result<std::unique_ptr<Server>> server = bind(config, std::move(log));
  if (!server) return server;
  if (Status status = (*server)->open(std::move(model), std::move(door)); !status) return status.error();
  return server;
}

uint16_t Server::port() const {
  return impl_->listeners.port();
}

std::vector<std::string> Server::urls() const {
  std::vector<std::string> urls;
  for (const tcp::endpoint& endpoint : impl_->listeners.endpoints()) {
    const std::string address = endpoint.address().to_string();
    urls.push_back(endpoint.address().is_v6() ? fmt::format("http://[{}]:{}", address, endpoint.port())
                                              : fmt::format("http://{}:{}", address, endpoint.port()));
  }
  return urls;
}

void Server::run() {
  for (std::thread& thread : impl_->threads) thread.join();
}

void Server::drain() {
  drain(impl_->state->config.drain_notice_s);
}

void Server::drain(int notice_s) {
  if (impl_->state->draining.exchange(true)) {
    impl_->hurry = true;
    return;
  }
  asio::co_spawn(impl_->strand, impl_->drain(notice_s), asio::detached);
  impl_->state->log->info("draining: the port closes in {} s, then open answers may take {} s", notice_s,
                          impl_->state->config.grace_s);
}

void Server::stop() {
  impl_->hurry = true;
  drain();
}

void Server::drain_on_signals() {
  const ServerConfig& config = impl_->state->config;
  const std::chrono::seconds time(config.drain_notice_s + config.grace_s + kAfterGraceS);
  impl_->signals = std::make_unique<SignalWatch>(
      impl_->state->log, time, [this, notice_s = config.drain_notice_s](int number, int num_before) {
        if (num_before == 1) impl_->state->log->warn("a second signal: the process ends at once");
        drain(number == SIGINT ? 0 : notice_s);
      });
}

}  // namespace llmrt::server
