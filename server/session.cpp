#include "server/session.h"

#include <boost/beast/http.hpp>

#include <exception>
#include <new>

#include "server/cors.h"
#include "server/hosts.h"
#include "server/ids.h"
#include "server/session_model.h"

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

std::string_view view(const beast::flat_buffer& buffer) {
  return {static_cast<const char*>(buffer.data().data()), buffer.size()};
}

// Formatted once a second and thread.
const std::string& date_now() {
  thread_local std::time_t second = 0;
  thread_local std::string text;
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  if (now != second || text.empty()) {
    text = http_date(now);
    second = now;
  }
  return text;
}

ApiError no_such_path(const RequestHead& head) {
  return http_error(404, "not_found",
                    fmt::format("HTTP: no such path: '{}'; there are {}", shown(head.target), known_paths()));
}

// GCC 12 destroys temporaries of a ?: twice in an expression that waits: these are functions of their own.
ApiError wrong_method(const RequestHead& head, const Route& route) {
  return http_error(405, "method_not_allowed",
                    fmt::format("HTTP: expected {} for this path, found {}", route.allowed, head.method));
}
ApiError wrong_type(const RequestHead& head) {
  return http_error(415, "content_type",
                    fmt::format("HTTP: expected Content-Type: application/json, found {}; with curl add "
                                "-H 'Content-Type: application/json'",
                                head.content_type.empty() ? "none" : shown(head.content_type)));
}

ApiResult<Headers> options_headers(const RequestHead& head, const Route& route, const ServerConfig& config) {
  if (is_preflight(head)) {
    if (is_allowed_origin(head.origin, config.allowed_origins)) return preflight_headers(head);
    return http_error(403, "origin_not_allowed",
                      fmt::format("HTTP: pages of the origin '{}' may not use this server; --allowed-origins lists "
                                  "those that may",
                                  shown(head.origin)));
  }
  const bool is_all = head.target == "*";
  if (!route.at_path && !is_all) return no_such_path(head);
  Headers headers;
  headers.emplace_back("Allow", is_all ? "GET, HEAD, POST, OPTIONS" : route.allowed);
  return headers;
}

ApiError body_too_large(uint64_t bytes_max) {
  return http_error(413, "body_too_large", fmt::format("HTTP: expected a body of at most {} bytes", bytes_max));
}

// A body whose bytes go behind a string, which may be emptied in between.
struct PieceBody {
  using value_type = std::string*;
  struct reader {
    template <bool is_request, typename Header>
    reader(http::header<is_request, Header>&, value_type& body) : out(body) {}
    void init(const boost::optional<uint64_t>&, beast::error_code& error) { error = {}; }
    template <typename Buffers>
    size_t put(const Buffers& buffers, beast::error_code& error) {
      error = {};
      size_t size = 0;
      for (auto it = asio::buffer_sequence_begin(buffers); it != asio::buffer_sequence_end(buffers); ++it) {
        const asio::const_buffer piece = *it;
        out->append(static_cast<const char*>(piece.data()), piece.size());
        size += piece.size();
      }
      return size;
    }
    void finish(beast::error_code& error) { error = {}; }
    value_type& out;  // set once the parser is there
  };
};

// The answer's text: what it was made from takes several times its memory, and must not wait for a slow client.
struct Computed {
  std::string text;
  ParseNotes notes;
};
std::string to_text(std::string text) {
  return text;
}
std::string to_text(const json::object& object) {
  return json::serialize(object);
}
ApiResult<Computed> compute_on_worker(const json::object& fields, const ServedModel& model, const JsonHandler& handler,
                                      const ParseContext& context) {
  Computed answer;
  return std::visit(
      [&](auto make) -> ApiResult<Computed> {
        auto made = make(fields, model, context, &answer.notes);
        if (auto* error = std::get_if<ApiError>(&made)) return std::move(*error);
        answer.text = to_text(std::move(std::get<0>(made)));
        return std::move(answer);
      },
      handler.answer);
}

}  // namespace

Session::Session(Transport::Socket socket, const std::shared_ptr<const TlsContext>& tls,
                 std::shared_ptr<SharedState> state, bool on_loopback)
    : state_(std::move(state)),
      socket_(std::move(socket), tls),
      deadline_(socket_.get_executor()),
      watch_(socket_.get_executor()),
      account_(std::make_shared<MemoryAccount>(state_->memory)),
      on_loopback_(on_loopback) {
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
    self->is_closed_ = true;
    self->client_gone();
    self->socket_.close();
  });
}

void Session::close_if_idle() {
  if (!idle_) return;
  // The strand decides again: a request may have arrived meanwhile.
  asio::post(socket_.get_executor(), [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && self->idle_) self->socket_.cancel();
  });
}

asio::awaitable<void> Session::run() {
  socket_.set_options(state_->config.send_buffer_bytes);
  try {
    bool goes_on = co_await greet();
    while (goes_on) goes_on = co_await serve_one();
    co_await shut_down();
  } catch (const std::exception& error) {
    // Out of memory, most likely; nothing that a client sends ends here. This connection ends, the server does not.
    if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) state_->count_no_host_memory();
    state_->log_bounded(LogLevel::kError, fmt::format("a connection ended: {}", error.what()));
    socket_.close();  // also under the watch of the client, which holds this
  }
}

asio::awaitable<bool> Session::greet() {
  if (!socket_.is_tls()) co_return true;
  set_deadline(state_->config.header_s);
  std::string problem;
  const Transport::Greeting greeting = co_await socket_.greet(&problem);
  clear_deadline();
  state_->count_handshake(greeting == Transport::Greeting::kDone);
  if (greeting == Transport::Greeting::kDone) co_return true;
  note_no_handshake(timed_out_ ? "it took too long" : problem.c_str());
  if (greeting == Transport::Greeting::kPlainHttp)
    co_await refuse(http_error(400, "plain_http", "HTTP: expected https:// (this port speaks TLS), found http://"));
  co_return false;
}

void Session::note_no_handshake(std::string_view problem) const {
  const std::string peer = socket_.peer();
  state_->log_bounded(LogLevel::kInfo, fmt::format("TLS: no handshake with {}: {}", peer, problem), {{"peer", peer}});
}

// The other side's answer is not waited for for long.
asio::awaitable<void> Session::shut_down() {
  set_deadline(2);
  co_await socket_.shut_down();
  clear_deadline();
}

asio::awaitable<bool> Session::serve_one() {
  idle_ = true;
  client_gone_ = false;
  request_id_.clear();
  client_request_id_.clear();
  trace_.reset();
  gzip_ = GzipWish::kNo;
  errors_ = ErrorForm::kOpenAi;
  cors_.clear();
  caller_ = {};
  std::optional<RequestHead> head = co_await read_head();
  if (!head) co_return false;
  Incoming request;
  request.head = std::move(*head);
  take_ids(request.head);
  gzip_ = request.head.gzip;
  request.route = find_route(request.head.method, request.head.target);
  errors_ = request.route.errors();
  cors_ = cors_headers(request.head, state_->config.allowed_origins);
  if (auto error = refused_host(request.head)) co_return co_await refuse(std::move(*error));
  std::string audit;
  if (auto error = admit(request, &audit)) co_return co_await refuse(std::move(*error), std::move(audit));
  const auto* transfer = request.route.handler<Transfer>();
  if (transfer && *transfer == Transfer::kUpload) co_return co_await receive_file(request);
  if (!co_await read_body(request.head, &request.body)) co_return false;
  const bool goes_on = co_await dispatch(std::move(request));
  const uint64_t held_bytes = account_->peak_bytes();
  account_->clear();
  if (held_bytes >= WorkQueue::kLargeBytes) state_->answerers->post(held_bytes, [] {});
  co_return goes_on;
}

void Session::take_ids(const RequestHead& head) {
  client_request_id_ = head.client_request_id;
  request_id_ = head.request_id.empty() ? client_request_id_ : head.request_id;
  if (request_id_.empty()) request_id_ = make_id("req");
  trace_ = head.trace;
}

asio::awaitable<std::optional<ApiError>> Session::decode(Incoming& request) {
  if (request.head.coding == ContentCoding::kIdentity || request.body.empty()) co_return std::nullopt;
  const std::string coded = std::move(request.body);
  const HoldBytes hold = [&](size_t num_bytes) -> std::optional<ApiError> {
    if (account_->set(MemoryAccount::kBody, coded.capacity() + num_bytes)) return std::nullopt;
    return state_->no_memory(ClientMemoryPart::kBody);
  };
  std::function<ApiResult<std::string>()> work = [&] {
    return decode_body(coded, request.head.coding, state_->config.body_bytes_max, hold);
  };
  ApiResult<std::string> decoded = co_await state_->workers->run(coded.size(), std::move(work));
  if (auto* error = std::get_if<ApiError>(&decoded)) co_return std::move(*error);
  request.body = std::move(std::get<std::string>(decoded));
  account_->set(MemoryAccount::kBody, request.body.capacity());
  co_return std::nullopt;
}

void Session::set_deadline(std::chrono::steady_clock::time_point at) {
  timed_out_ = false;
  deadline_.expires_at(at);
  deadline_.async_wait([weak = weak_from_this(), number = ++deadline_number_](boost::system::error_code error) {
    const auto self = weak.lock();
    if (error || !self || self->deadline_number_ != number) return;
    self->timed_out_ = true;
    self->socket_.cancel();
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
  size_t empty_bytes = 0;
  while (true) {
    const size_t empty = begun ? 0 : empty_lines_bytes(view(buffer_));
    if (empty_bytes + empty <= kEmptyLinesBytesMax) {  // else scan_head refuses them
      buffer_.consume(empty);
      empty_bytes += empty;
    }
    if (!begun && buffer_.size() > 0 && view(buffer_) != "\r") {
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
    if (state_->closing && !begun) co_return std::nullopt;
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
  TakeBytes hold = [this](std::string* bytes) { return hold_body(bytes); };
  const BodyLimits limits{state_->config.body_bytes_max, /*is_timed=*/true};
  body->reserve(std::min<uint64_t>(head.content_length, limits.bytes_max));
  co_return co_await read_pieces(head, limits, body, std::move(hold));
}

asio::awaitable<std::optional<ApiError>> Session::hold_body(std::string* bytes) {
  if (!account_->set(MemoryAccount::kBody, bytes->capacity())) co_return state_->no_memory(ClientMemoryPart::kBody);
  co_return std::nullopt;
}

asio::awaitable<bool> Session::read_pieces(const RequestHead& head, BodyLimits limits, std::string* bytes,
                                           TakeBytes take) {
  const ServerConfig& config = state_->config;
  http::request_parser<PieceBody> parser;
  parser.get().body() = bytes;
  parser.body_limit(limits.bytes_max);
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
  if (error || head.content_length > limits.bytes_max) co_return co_await refuse(body_too_large(limits.bytes_max));
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
    if (std::optional<ApiError> refusal = co_await take(bytes)) co_return co_await refuse(std::move(*refusal));
    if (!limits.is_timed && !error) set_deadline(config.body_s);
    const auto elapsed = std::chrono::duration_cast<seconds>(SteadyTime::now() - begin).count();
    if (!error && elapsed > 5 && received < static_cast<size_t>(elapsed) * config.body_rate_min)
      error = beast::error::timeout;
  }
  if (error == http::error::body_limit) co_return co_await refuse(body_too_large(limits.bytes_max));
  if (error == beast::error::timeout)
    co_return co_await refuse(http_error(408, "body_timeout", "HTTP: the body came too slowly"));
  if (error == http::error::end_of_stream || error == http::error::partial_message || error == asio::error::eof ||
      error == asio::error::connection_reset || error == asio::error::operation_aborted ||
      Transport::is_tls_error(error))
    co_return false;
  if (error) co_return co_await refuse(http_error(400, "bad_request", "HTTP: a body that breaks its framing"));
  buffer_.shrink_to_fit();
  clear_deadline();
  co_return true;
}

// Answers, then reads on for a short while: closing at once would reset the connection before a client that is still
// sending has read the answer.
asio::awaitable<bool> Session::refuse(ApiError error, std::string what) {
  state_->count_response(error_status(error, errors_));
  if (request_id_.empty()) request_id_ = make_id("req");
  state_->log_error(error, what, log_origin());
  std::string answer = format_error(error, /*keep_alive=*/false, common_headers(), /*with_body=*/true, error_shape());
  if (socket_.is_open() && co_await write(std::move(answer))) {
    socket_.end_sending();
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
  const RequestHead& head = request.head;
  const Route& route = request.route;
  if (head.method == "OPTIONS") co_return co_await options(request);
  if (!route.at_path) {
    const ApiError error = no_such_path(head);
    co_return co_await reply_error(error, request);
  }
  if (!route.row) {
    Headers headers;
    headers.emplace_back("Allow", route.allowed);
    const ApiError error = wrong_method(head, route);
    co_return co_await reply_error(error, request, headers);
  }
  // Before that there is no model to speak of.
  if (route.row->needs_model && !state_->loaded) co_return co_await reply_error(*state_->not_ready(), request);
  if (route.row->method == Method::kPost && head.content_type != kJson) {
    const ApiError error = wrong_type(head);
    co_return co_await reply_error(error, request);
  }
  if (const auto* handler = route.handler<PageHandler>()) co_return co_await page(request, *handler);
  if (const auto error = co_await decode(request)) co_return co_await reply_error(*error, request);
  KeyUse use;
  if (const auto error = begin_use(&use)) co_return co_await reply_error(*error, request);
  if (const auto* handler = route.handler<JsonHandler>()) co_return co_await compute(request, *handler);
  if (const auto* handler = route.handler<StoreHandler>()) co_return co_await ask_store(request, *handler);
  if (route.handler<Transfer>()) co_return co_await send_file(request);
  const Dialect& dialect = dialect_of(std::get<Endpoint>(route.row->handler));
  co_return co_await complete(request, dialect);
}

asio::awaitable<bool> Session::options(const Incoming& request) {
  const ApiResult<Headers> answer = options_headers(request.head, request.route, state_->config);
  if (const auto* error = std::get_if<ApiError>(&answer)) co_return co_await reply_error(*error, request);
  const Headers headers = std::get<Headers>(answer);
  co_return co_await reply(204, kJson, std::string(), request, headers);
}

asio::awaitable<bool> Session::page(const Incoming& request, PageHandler handler) {
  ApiResult<PageText> made = handler({*state_, request.head, request.route.rest});
  if (const auto* error = std::get_if<ApiError>(&made)) co_return co_await reply_error(*error, request);
  PageText& answer = std::get<PageText>(made);
  co_return co_await reply(200, answer.type, std::move(answer.text), request);
}

asio::awaitable<bool> Session::compute(Incoming& request, const JsonHandler& handler) {
  start_watch();
  MakeOfBody<Computed> make = [&](const json::object& fields, const ServedModel& model) {
    return compute_on_worker(fields, model, handler, parse_context(request.head));
  };
  ApiResult<Held<Computed>> answer = co_await read_body_with_model(std::move(request.body), std::move(make));
  co_await end_watch();
  if (client_gone_) co_return false;
  if (const auto* error = std::get_if<ApiError>(&answer)) co_return co_await reply_error(*error, request);
  auto& [text, notes] = std::get<Held<Computed>>(answer).made;
  account_->set(MemoryAccount::kBody, 0);
  if (!account_->set(MemoryAccount::kAnswer, text.size()))
    co_return co_await reply_error(state_->no_memory(ClientMemoryPart::kAnswer), request);
  state_->count_ignored_fields(handler.counted, notes.ignored_fields.size());
  Headers headers;
  for (const auto& [name, value] : notes.headers) headers.emplace_back(name, value);
  co_return co_await reply(200, kJson, std::move(text), request, headers);
}

ParseContext Session::parse_context(const RequestHead& head) const {
  ParseContext context;
  context.strict_fields = state_->config.strict_fields;
  context.keeps_client_headers = state_->config.keeps_client_headers;
  context.request_class = head.request_class;
  context.cache_salt = head.cache_salt;
  context.key_salt = caller_.key.cache_salt;
  context.key_adapters = caller_.key.adapters ? &*caller_.key.adapters : nullptr;
  if (head.request_class.empty() && caller_.key.request_class)
    context.request_class = request_class_name(*caller_.key.request_class);
  context.cancelled = &client_gone_;
  return context;
}

std::optional<ApiError> Session::admit(const Incoming& request, std::string* audit) {
  ApiResult<Caller> caller = state_->keys->admit(request.head, request.route, audit);
  if (auto* error = std::get_if<ApiError>(&caller)) {
    *audit = fmt::format("{} {} from {}", request.head.target, *audit, socket_.peer());
    return std::move(*error);
  }
  caller_ = std::get<Caller>(std::move(caller));
  return std::nullopt;
}

StreamLimits Session::stream_limits() const {
  const ServerConfig& config = state_->config;
  const ApiKey& key = caller_.key;
  return {key.slow_clients.value_or(config.slow_clients),
          key.stream_buffer_kib > 0 ? size_t{key.stream_buffer_kib} << 10 : config.outbox_bytes_max,
          key.stall_s > 0 ? static_cast<int>(key.stall_s) : config.write_s};
}

// What it has not read is not worth waiting for.
void Session::give_up(SlowOutcome why) {
  if (client_gone_.exchange(true)) return;
  state_->count_slow(why);
  const std::string peer = socket_.peer();
  state_->log_bounded(
      LogLevel::kInfo,
      fmt::format("a client is given up, as it reads too slowly ({}): {}, {}", kSlowOutcomes[static_cast<size_t>(why)],
                  peer, request_id_),
      {{"peer", peer}, {"request_id", request_id_}, {"trace_id", trace_id()}, {"key", caller_.key.name}});
  client_gone();
  socket_.close();
}

std::optional<ApiError> Session::begin_use(KeyUse* use) {
  if (!caller_.account) return std::nullopt;
  if (const auto refusal = caller_.account->begin_request(SteadyClock().now_ns())) return over_limit(*refusal);
  *use = KeyUse(caller_.account);
  return std::nullopt;
}

std::optional<ApiError> Session::charge_prompts(const ApiRequest& wanted) {
  if (!caller_.account) return std::nullopt;
  uint64_t num_tokens = 0;
  for (const PromptRequest& prompt : wanted.prompts) num_tokens += prompt.request.prompt.size();
  const auto refusal = caller_.account->charge_prompt(num_tokens, SteadyClock().now_ns());
  return refusal ? std::optional(over_limit(*refusal)) : std::nullopt;
}

// Who is reached at a loopback address without saying a name at all (HTTP/1.0) is no browser.
std::optional<ApiError> Session::refused_host(const RequestHead& head) const {
  const std::vector<std::string>& allowed = state_->config.allowed_hosts;
  if (head.host.empty() || is_listed_host(head.host, allowed)) return std::nullopt;
  if (on_loopback_ ? is_loopback_host(head.host) || is_listed_host(head.host, state_->config.hosts) : allowed.empty())
    return std::nullopt;
  return http_error(403, "host_not_allowed",
                    fmt::format("HTTP: this server is not served under the name '{}'; --allowed-hosts lists more names",
                                shown(host_without_port(head.host))));
}

// ---- writing -------------------------------------------------------------------------------------------------------

asio::awaitable<bool> Session::write(std::vector<std::string> pieces, const Outbox* outbox) {
  const StreamLimits limits = stream_limits();
  WritePace pace(limits, state_->config.answer_rate_min, SteadyTime::now());
  for (std::string& piece : pieces) {
    for (size_t sent = 0; sent < piece.size();) {
      set_deadline(limits.stall_s);
      const auto [error, size] = co_await socket_.async_write_some(asio::buffer(piece) + sent, kNoThrow);
      sent += size;
      const size_t waiting = piece.size() - sent + (outbox ? outbox->pending_bytes() : 0);
      const bool is_stalled = error ? timed_out_ : !pace.take(size, waiting, outbox != nullptr, SteadyTime::now());
      if (is_stalled) give_up(SlowOutcome::kStalled);
      if (error) client_gone_ = true;
      if (error || is_stalled) co_return false;
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

asio::awaitable<std::vector<std::string>> Session::encode(std::vector<std::string> pieces, Headers* headers) {
  const size_t num_bytes = size_of(pieces);
  if (!state_->config.compression || (num_bytes < kGzipBytesMin && gzip_ != GzipWish::kMust)) co_return pieces;
  headers->emplace_back("Vary", "Accept-Encoding");
  if (gzip_ == GzipWish::kNo) co_return pieces;
  headers->emplace_back("Content-Encoding", "gzip");
  if (num_bytes <= WorkQueue::kSmallBytes) co_return gzip(std::move(pieces));
  std::function<std::vector<std::string>()> work = [&] { return gzip(std::move(pieces)); };
  co_return co_await state_->answerers->run(num_bytes, std::move(work));
}

Headers Session::common_headers() const {
  Headers headers = cors_;
  headers.emplace_back("Date", date_now());
  headers.emplace_back("x-request-id", request_id_);
  if (errors_ == ErrorForm::kMessages) headers.emplace_back("request-id", request_id_);
  if (!client_request_id_.empty()) headers.emplace_back("x-client-request-id", client_request_id_);
  if (trace_) headers.emplace_back("traceparent", traceparent_of(*trace_));
  if (caller_.account) add_rate_headers(caller_.account->rates(SteadyClock().now_ns()), &headers);
  return headers;
}

asio::awaitable<bool> Session::reply(int status, std::string_view type, std::string body, const Incoming& request,
                                     const Headers& headers) {
  state_->count_response(status);
  const bool keep = keep_alive(request.head);
  Headers all = common_headers();
  all.insert(all.end(), headers.begin(), headers.end());
  std::vector<std::string> pieces;
  pieces.push_back(std::move(body));
  if (status == 200) pieces = co_await encode(std::move(pieces), &all);
  const size_t num_bytes = size_of(pieces);
  if (request.head.method == "HEAD") pieces.clear();
  pieces.insert(pieces.begin(), format_head(status, type, num_bytes, keep, all));
  const bool sent = co_await write(std::move(pieces));
  co_return sent&& keep;
}

asio::awaitable<bool> Session::reply_error(const ApiError& error, const Incoming& request, const Headers& headers) {
  state_->count_response(error_status(error, errors_));
  state_->log_error(error, request.head.target, log_origin());
  const bool keep = keep_alive(request.head);
  Headers all = common_headers();
  all.insert(all.end(), headers.begin(), headers.end());
  std::string answer = format_error(error, keep, all, request.head.method != "HEAD", error_shape());
  const bool sent = co_await write(std::move(answer));
  co_return sent&& keep;
}

}  // namespace llmrt::server
