#include "server/session.h"

#include <boost/beast/http.hpp>

#include <exception>

#include "server/json_reader.h"
#include "server/metrics_text.h"
#include "server/tokenize.h"

namespace llmrt::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace json = boost::json;
using std::chrono::seconds;
using SteadyTime = std::chrono::steady_clock;

constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
constexpr const char* kJson = "application/json";

json::object model_card(const ServedModel& model) {
  return {{"id", model.id},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "llmrt"},
          {"max_model_len", model.context_max}};
}
json::object model_list(const ServedModel& model) {
  return {{"object", "list"}, {"data", json::array{model_card(model)}}};
}

// A verdict is something to know, not a reason to be taken out of service.
json::object health(const EngineStats& stats) {
  json::array saturated;
  for (size_t i = 0; i < kNumSaturations; ++i) {
    const SaturationVerdict& verdict = stats.saturation[i];
    const auto which = static_cast<Saturation>(i);
    if (verdict.is_raised)
      saturated.push_back({{"verdict", saturation_name(which)},
                           {"value", verdict.value},
                           {"limit", verdict.limit},
                           {"message", saturation_text(which)}});
  }
  return {{"status", "ok"}, {"saturated", std::move(saturated)}};
}

std::string_view view(const beast::flat_buffer& buffer) {
  return {static_cast<const char*>(buffer.data().data()), buffer.size()};
}

// The answer's text: what it was made from takes several times its memory, and must not wait for a slow client.
ApiResult<std::string> tokens_on_worker(const std::string& body, const ServedModel& model, bool detokenizing) {
  Result<json::value> parsed = read_json(body);
  if (!parsed) return to_api_error(parsed.error());
  if (!parsed->is_object()) return invalid_field("body", "expected a JSON object");
  ApiResult<json::object> answer =
      detokenizing ? detokenize(parsed->get_object(), model) : tokenize(parsed->get_object(), model);
  if (auto* error = std::get_if<ApiError>(&answer)) return std::move(*error);
  return json::serialize(std::get<json::object>(answer));
}

}  // namespace

Session::Session(asio::ip::tcp::socket socket, std::shared_ptr<SharedState> state)
    : state_(std::move(state)),
      socket_(std::move(socket)),
      deadline_(socket_.get_executor()),
      watch_(socket_.get_executor()),
      account_(std::make_shared<MemoryAccount>(state_->memory)) {
  std::lock_guard lock(state_->mutex);
  state_->sessions.insert(this);
}

Session::~Session() {
  std::lock_guard lock(state_->mutex);
  state_->sessions.erase(this);
}

void Session::start() {
  asio::co_spawn(
      socket_.get_executor(), [self = shared_from_this()] { return self->run(); }, asio::detached);
}

void Session::close() {
  asio::post(socket_.get_executor(), [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    if (const auto outbox = self->outbox_.lock()) outbox->client_gone();
    boost::system::error_code ignored;
    self->socket_.close(ignored);
  });
}

void Session::close_if_idle() {
  if (!idle_) return;
  // The strand decides again: a request may have arrived meanwhile.
  asio::post(socket_.get_executor(), [weak = weak_from_this()] {
    const auto self = weak.lock();
    boost::system::error_code ignored;
    if (self && self->idle_) self->socket_.cancel(ignored);
  });
}

asio::awaitable<void> Session::run() {
  boost::system::error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::send_buffer_size(state_->config.send_buffer_bytes), ignored);
  try {
    while (co_await serve_one()) {
    }
  } catch (const std::exception& error) {
    // Out of memory, most likely; nothing that a client sends ends here. This connection ends, the server does not.
    state_->log->error("a connection ended: {}", error.what());
  }
  socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
}

asio::awaitable<bool> Session::serve_one() {
  idle_ = true;
  std::optional<RequestHead> head = co_await read_head();
  if (!head) co_return false;
  Incoming request;
  request.head = std::move(*head);
  if (!co_await read_body(request.head, &request.body)) co_return false;
  const bool goes_on = co_await dispatch(std::move(request));
  const uint64_t held_bytes = account_->peak_bytes();
  account_->clear();
  if (held_bytes >= WorkQueue::kLargeBytes) state_->answerers->post(held_bytes, [] {});
  co_return goes_on;
}

void Session::set_deadline(std::chrono::steady_clock::time_point at) {
  timed_out_ = false;
  deadline_.expires_at(at);
  deadline_.async_wait([weak = weak_from_this(), number = ++deadline_number_](boost::system::error_code error) {
    const auto self = weak.lock();
    if (error || !self || self->deadline_number_ != number) return;
    self->timed_out_ = true;
    boost::system::error_code ignored;
    self->socket_.cancel(ignored);
  });
}

void Session::clear_deadline() {
  ++deadline_number_;
  deadline_.cancel();
}

// ---- reading -------------------------------------------------------------------------------------------------------

asio::awaitable<std::optional<RequestHead>> Session::read_head() {
  const ServerConfig& config = state_->config;
  set_deadline(config.idle_s);
  bool begun = false;
  while (true) {
    if (!begun && buffer_.size() > 0) {
      begun = true;
      idle_ = false;
      set_deadline(config.header_s);
    }
    HeadScan scan = scan_head(view(buffer_), config);
    if (scan.error) {
      co_await refuse(std::move(*scan.error));
      co_return std::nullopt;
    }
    if (scan.bytes > 0) co_return std::move(scan.head);
    if (state_->draining && !begun) co_return std::nullopt;
    const auto [error, size] = co_await socket_.async_read_some(buffer_.prepare(4096), kNoThrow);
    if (error && timed_out_ && begun) {
      co_await refuse(
          http_error(408, "header_timeout", fmt::format("HTTP: expected a whole header within {} s", config.header_s)));
      co_return std::nullopt;
    }
    if (error) co_return std::nullopt;
    buffer_.commit(size);
  }
}

asio::awaitable<bool> Session::read_body(const RequestHead& head, std::string* body) {
  const ServerConfig& config = state_->config;
  http::request_parser<http::string_body> parser;
  parser.body_limit(config.body_bytes_max);
  parser.header_limit(static_cast<uint32_t>(config.header_bytes_max + 1));
  size_t extension_bytes = 0;
  auto on_chunk = [&](uint64_t, beast::string_view extensions, beast::error_code& error) {
    extension_bytes += extensions.size();
    if (extensions.size() > config.chunk_extension_bytes_max || extension_bytes > config.chunk_extensions_bytes_max)
      error = http::error::bad_chunk_extension;
  };
  parser.on_chunk_header(on_chunk);
  beast::error_code error;
  buffer_.consume(parser.put(buffer_.data(), error));
  parser.eager(true);
  if (error && error != http::error::body_limit)
    co_return co_await refuse(http_error(400, "bad_request", "HTTP: a header that does not parse"));
  if (error || head.content_length > config.body_bytes_max)
    co_return co_await refuse(http_error(
        413, "body_too_large", fmt::format("HTTP: expected a body of at most {} bytes", config.body_bytes_max)));
  if (head.expects_continue && !parser.is_done() && buffer_.size() == 0 && !head.is_http_1_0) {
    if (!co_await write("HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
  }

  const auto begin = SteadyTime::now();
  set_deadline(config.body_s);
  size_t received = 0;
  while (!error && !parser.is_done()) {
    const auto [problem, size] = co_await http::async_read_some(socket_, buffer_, parser, kNoThrow);
    error = problem && timed_out_ ? beast::error_code(beast::error::timeout) : problem;
    received += size;
    const auto elapsed = std::chrono::duration_cast<seconds>(SteadyTime::now() - begin).count();
    if (!error && elapsed > 5 && received < static_cast<size_t>(elapsed) * config.body_rate_min)
      error = beast::error::timeout;
  }
  if (error == http::error::body_limit)
    co_return co_await refuse(http_error(
        413, "body_too_large", fmt::format("HTTP: expected a body of at most {} bytes", config.body_bytes_max)));
  if (error == beast::error::timeout)
    co_return co_await refuse(http_error(408, "body_timeout", "HTTP: the body came too slowly"));
  if (error == http::error::end_of_stream || error == http::error::partial_message || error == asio::error::eof ||
      error == asio::error::connection_reset || error == asio::error::operation_aborted)
    co_return false;
  if (error) co_return co_await refuse(http_error(400, "bad_request", "HTTP: a body that breaks its framing"));
  *body = std::move(parser.get().body());
  clear_deadline();
  co_return true;
}

// Answers, then reads on for a short while: closing at once would reset the connection before a client that is still
// sending has read the answer.
asio::awaitable<bool> Session::refuse(ApiError error) {
  state_->count_response(error.status);
  state_->log_error(error, "a broken request");
  if (socket_.is_open() && co_await write(format_error(error, /*keep_alive=*/false))) {
    boost::system::error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    std::vector<char> waste(64 << 10);
    set_deadline(5);
    for (size_t total = 0; total < (64u << 20);) {
      const auto [problem, size] = co_await socket_.async_read_some(asio::buffer(waste), kNoThrow);
      if (problem) break;
      total += size;
    }
  }
  co_return false;
}

// ---- routes --------------------------------------------------------------------------------------------------------

asio::awaitable<bool> Session::dispatch(Incoming request) {
  const std::string& target = request.head.target;
  constexpr std::string_view kModels = "/v1/models/";
  const bool names_model = target.starts_with(kModels);
  const bool is_model = names_model && decode_segment(target.substr(kModels.size())) == state_->model.id;
  const bool is_get = target == "/health" || target == "/metrics" || target == "/v1/models" || is_model;
  const bool is_post = target == "/v1/chat/completions" || target == "/v1/completions" || target == "/tokenize" ||
                       target == "/detokenize";
  if (!is_get && !is_post) {
    co_return co_await reply_error(http_error(404, names_model ? "model_not_found" : "not_found",
                                              names_model ? "model: there is none of this name" : "HTTP: no such path"),
                                   request);
  }
  const std::string& method = request.head.method;
  if (is_get ? method != "GET" && method != "HEAD" : method != "POST") {
    const std::string allowed = is_get ? "GET, HEAD" : "POST";
    Headers headers;
    headers.emplace_back("Allow", allowed);
    co_return co_await reply_error(
        http_error(405, "method_not_allowed", fmt::format("HTTP: expected {} for this path", allowed)), request,
        headers);
  }
  if (is_get) co_return co_await get(request);
  if (request.head.content_type != kJson)
    co_return co_await reply_error(http_error(415, "content_type", "HTTP: expected Content-Type: application/json"),
                                   request);
  if (target == "/tokenize") co_return co_await tokens(request, false);
  if (target == "/detokenize") co_return co_await tokens(request, true);
  co_return co_await complete(request, target == "/v1/chat/completions");
}

asio::awaitable<bool> Session::get(const Incoming& request) {
  const ServedModel& model = state_->model;
  const std::string& target = request.head.target;
  if (target == "/metrics") {
    const EngineStats stats = state_->door->stats();
    const ServerFigures figures = state_->figures();
    const ProcessFigures process = process_figures();
    const MetricsFormat format = negotiate_metrics(request.head.accept);
    co_return co_await reply(200, metrics_content_type(format), metrics_text({stats, figures, model, process}, format),
                             request);
  }
  if (target == "/health") {
    std::optional<std::string> trouble = state_->door->trouble();
    if (!trouble && state_->draining) trouble = "the server is shutting down";
    if (!trouble) co_return co_await reply(200, kJson, json::serialize(health(state_->door->stats())), request);
    ApiError error = http_error(503, "unavailable", *trouble);
    error.retry_after_s = 10;
    co_return co_await reply_error(error, request);
  }
  const json::object body = target == "/v1/models" ? model_list(model) : model_card(model);
  co_return co_await reply(200, kJson, json::serialize(body), request);
}

asio::awaitable<bool> Session::tokens(const Incoming& request, bool detokenizing) {
  std::function<ApiResult<std::string>()> work = [&] {
    return tokens_on_worker(request.body, state_->model, detokenizing);
  };
  ApiResult<std::string> answer = co_await state_->workers->run(request.body.size(), std::move(work));
  if (const auto* error = std::get_if<ApiError>(&answer)) co_return co_await reply_error(*error, request);
  co_return co_await reply(200, kJson, std::get<std::string>(std::move(answer)), request);
}

// ---- writing -------------------------------------------------------------------------------------------------------

asio::awaitable<bool> Session::write(std::vector<std::string> pieces, const Outbox* outbox) {
  const ServerConfig& config = state_->config;
  const auto begin = SteadyTime::now();
  size_t done = 0;  // of all pieces
  for (std::string& piece : pieces) {
    for (size_t sent = 0; sent < piece.size();) {
      set_deadline(config.write_s);
      const auto [error, size] = co_await socket_.async_write_some(asio::buffer(piece) + sent, kNoThrow);
      if (error) co_return false;
      sent += size;
      done += size;
      const double elapsed_s = std::chrono::duration<double>(SteadyTime::now() - begin).count();
      if (elapsed_s <= config.write_s) continue;
      if (static_cast<double>(done) < elapsed_s * config.answer_rate_min) co_return false;
      if (outbox && piece.size() - sent + outbox->pending_bytes() > config.outbox_bytes_max) co_return false;
    }
    piece = {};
  }
  clear_deadline();
  co_return true;
}

asio::awaitable<bool> Session::write(std::string bytes, const Outbox* outbox) {
  std::vector<std::string> pieces;
  pieces.push_back(std::move(bytes));
  co_return co_await write(std::move(pieces), outbox);
}

asio::awaitable<bool> Session::reply(int status, std::string_view type, std::string body, const Incoming& request) {
  state_->count_response(status);
  const bool keep = keep_alive(request.head);
  const bool sent = co_await write(format_response(status, type, body, keep, {}, request.head.method != "HEAD"));
  co_return sent&& keep;
}

asio::awaitable<bool> Session::reply_error(const ApiError& error, const Incoming& request, const Headers& headers) {
  state_->count_response(error.status);
  state_->log_error(error, request.head.target);
  const bool keep = keep_alive(request.head);
  const bool sent = co_await write(format_error(error, keep, headers, request.head.method != "HEAD"));
  co_return sent&& keep;
}

}  // namespace llmrt::server
