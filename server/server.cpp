#include "server/server.h"

#include <boost/asio.hpp>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>
#include <utility>
#include <vector>

#include "server/listeners.h"
#include "server/session.h"
#include "server/signal_watch.h"

namespace llmrt::server {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

// For a model that is there from the beginning.
class NoLoader final : public ModelLoader {
 public:
  Result<std::shared_ptr<LoadedModel>> load(ModelIdx, std::function<void(Error)>) override {
    return make_error(ErrorCode::kUnsupported, "this model is not loaded again");
  }
  uint64_t need_bytes(ModelIdx) const override { return 0; }
  uint64_t free_bytes(uint64_t) const override { return ~uint64_t{0}; }
};

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
  void start_session(Transport::Socket socket, bool is_tls, bool on_loopback);
  template <typename Acceptor>
  asio::awaitable<void> accept(Acceptor* acceptor, bool is_tls, bool on_loopback);
  asio::awaitable<void> drain(int notice_s);
  asio::awaitable<void> pause();
  void start_batches();
  void warn_of_open_doors() const;
  size_t num_sessions() const {
    std::lock_guard lock(state->mutex);
    return state->sessions.size();
  }
};

void Server::Impl::start() {
  const auto begin = [this](auto* acceptor, bool is_tls, bool on_loopback) {
    asio::co_spawn(strand, accept(acceptor, is_tls, on_loopback), asio::detached);
  };
  for (tcp::acceptor& acceptor : listeners.acceptors())
    begin(&acceptor, /*is_tls=*/true, acceptor.local_endpoint().address().is_loopback());
  if (auto* acceptor = listeners.unix_acceptor()) begin(acceptor, /*is_tls=*/false, /*on_loopback=*/false);
  for (int i = 0; i < state->config.io_threads; ++i) threads.emplace_back([this] { io.run(); });
}

void Server::Impl::start_batches() {
  if (!state->files) return;
  const BatchRunner::Settings settings{.in_flight = state->config.batch_in_flight,
                                       .strict_fields = state->config.strict_fields};
  state->batches = std::make_unique<BatchRunner>(
      BatchRunner::Parts{state->files.get(), state->models.get(), state->keys.get(), state->memory, state->log},
      settings);
}

void Server::Impl::warn_of_open_doors() const {
  if (state->keys->has_keys()) return;
  for (const tcp::endpoint& endpoint : listeners.endpoints()) {
    if (endpoint.address().is_loopback()) continue;
    state->log->warn("anybody who reaches {} may use this server: --api-key-file or LLMRT_API_KEY asks for a key",
                     endpoint.address().to_string());
    return;
  }
}

void Server::Impl::start_session(Transport::Socket socket, bool is_tls, bool on_loopback) {
  if (num_sessions() < state->config.connections_max) {
    const std::shared_ptr<const TlsContext> tls = is_tls ? state->tls->current() : nullptr;
    std::make_shared<Session>(std::move(socket), tls, state, on_loopback)->start();
    return;
  }
  state->log_bounded(
      LogLevel::kWarning,
      fmt::format("connection closed: {} are open, the most that --connections allows", state->config.connections_max));
}

// Whatever is thrown, others are accepted all the same.
template <typename Acceptor>
asio::awaitable<void> Server::Impl::accept(Acceptor* acceptor, bool is_tls, bool on_loopback) {
  std::string problem;
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
        start_session(std::move(socket), is_tls, on_loopback);
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

// Ends when no session is left, and no line of a batch: each of them has then given its requests back to the engine.
asio::awaitable<void> Server::Impl::drain(int notice_s) {
  BatchRunner* const batches = state->loaded ? state->batches.get() : nullptr;
  if (batches) batches->drain();
  const auto told = std::chrono::steady_clock::now();
  while (!hurry && std::chrono::steady_clock::now() - told < std::chrono::seconds(notice_s)) co_await pause();
  state->closing = true;
  listeners.close();
  const auto begin = std::chrono::steady_clock::now();
  const auto grace = std::chrono::seconds(state->config.grace_s);
  bool stopped = false;
  while (num_sessions() > 0 || (batches && batches->is_busy())) {
    const auto waited = std::chrono::steady_clock::now() - begin;
    const bool close_all = hurry || waited > grace + std::chrono::seconds(2);
    {
      std::lock_guard lock(state->mutex);
      for (Session* session : state->sessions) close_all ? session->close() : session->close_if_idle();
    }
    if (close_all && batches) batches->cancel();
    if (waited > grace && !stopped) {
      stopped = true;
      if (state->loaded) state->stop_models();
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
  impl_->state->batches.reset();
  impl_->signals.reset();  // the last: it ends the process when something above does not
}

Result<std::unique_ptr<Server>> Server::bind(const ServerConfig& config, std::shared_ptr<Log> log) {
  auto impl = std::make_unique<Impl>(config);
  impl->state->log = std::move(log);
  impl->state->workers = std::make_unique<WorkQueue>(config.work_threads);
  impl->state->answerers = std::make_unique<WorkQueue>(config.work_threads);
  impl->state->memory = std::make_shared<ClientMemory>(config.client_memory_bytes);
  auto keys = KeyRing::open({config.api_key_file, config.api_key, config.open_metrics});
  if (!keys) return keys.error();
  impl->state->keys = std::move(*keys);
  for (const std::string& warning : impl->state->keys->warnings()) impl->state->log->warn("API keys: {}", warning);
  impl->state->tls = std::make_unique<TlsFiles>(config.tls_certificate, config.tls_key);
  if (impl->state->tls->is_used())
    if (Status status = impl->state->tls->reload(); !status) return status.error();
  if (!config.files_dir.empty()) {
    auto files = FileStore::open({.folder = config.files_dir, .bytes_max = config.files_bytes_max}, *impl->state->log);
    if (!files) return files.error();
    impl->state->files = std::move(*files);
  }
  if (Status status = impl->listeners.open(config, *impl->state->log); !status) return status.error();
  impl->warn_of_open_doors();
  impl->start();
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

void Server::open(std::shared_ptr<ModelHost> models, std::string settings) {
  impl_->state->models = std::move(models);
  impl_->state->settings_text = std::move(settings);
  impl_->start_batches();
  impl_->state->loaded = true;
}

Status Server::open(ServedModel model, std::shared_ptr<EngineDoor> door) {
  if (Status status = finish_model(&model); !status) return status;
  static const SteadyClock clock;
  std::vector<ModelSpec> specs = {{.name = model.id, .is_pinned = true, .is_adopted = true}};
  auto host = std::make_shared<ModelHost>(std::move(specs), RegistryLimits(), std::make_shared<NoLoader>(), &clock);
  host->adopt(0, std::make_shared<ServedEngine>(std::move(model), std::move(door), /*bytes=*/0));
  open(std::move(host));
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
    const char* scheme = impl_->state->tls->is_used() ? "https" : "http";
    urls.push_back(endpoint.address().is_v6() ? fmt::format("{}://[{}]:{}", scheme, address, endpoint.port())
                                              : fmt::format("{}://{}:{}", scheme, address, endpoint.port()));
  }
  if (!impl_->state->config.unix_socket.empty()) urls.push_back("unix:" + impl_->state->config.unix_socket);
  return urls;
}

void Server::run() {
  for (std::thread& thread : impl_->threads) thread.join();
  if (impl_->state->batches) impl_->state->batches->stop();  // what it holds of models
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

bool Server::has_tls() {
  return server::has_tls();
}

bool Server::can_reload(const ServerConfig& config) {
  return !config.api_key_file.empty() || !config.tls_certificate.empty();
}

void Server::reload() {
  SharedState& state = *impl_->state;
  if (state.tls->is_used()) {
    if (Status status = state.tls->reload(); !status)
      state.log->error("TLS: still the certificate from before: {}", status.error().message);
    else
      state.log->info("TLS: the certificate was read from {}", state.config.tls_certificate);
  }
  if (state.config.api_key_file.empty()) return;
  if (Status status = state.keys->reload(SteadyClock().now_ns()); !status) {
    state.log->error("API keys: still those from before: {}", status.error().message);
    return;
  }
  state.log->info("API keys: {} read from {}", state.keys->figures().keys.size(), state.config.api_key_file);
  for (const std::string& warning : state.keys->warnings()) state.log->warn("API keys: {}", warning);
}

void Server::drain_on_signals() {
  const ServerConfig& config = impl_->state->config;
  const std::chrono::seconds time(config.drain_notice_s + config.grace_s + kAfterGraceS);
  impl_->signals = std::make_unique<SignalWatch>(
      impl_->state->log, time, [this, notice_s = config.drain_notice_s](int number, int num_before) {
        if (num_before == 1) impl_->state->log->warn("a second signal: the process ends at once");
        drain(number == SIGINT ? 0 : notice_s);
      });
  if (can_reload(config)) impl_->signals->on_hangup([this] { reload(); });
}

}  // namespace llmrt::server
