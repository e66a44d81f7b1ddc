#include "tools/llmrt_bench/load/http_load.h"

#include <fmt/format.h>

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/json.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "server/json_reader.h"
#include "tools/llmrt_bench/load/answer_stream.h"

namespace llmrt::bench {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace json = boost::json;
using ErrorOf = boost::system::error_code;
using Endpoints = asio::ip::tcp::resolver::results_type;
using HttpRequest = http::request<http::string_body>;

constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
constexpr uint32_t kHeaderBytesMax = 64 << 10;
constexpr size_t kErrorBytesMax = 1 << 10;                       // of a body that is no answer, for a message
constexpr auto kLastChunkWait = std::chrono::milliseconds(100);  // for the end of an HTTP message whose answer is over

std::chrono::nanoseconds seconds_of(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

asio::steady_timer::time_point time_point_of(TimeNs time_ns) {
  return asio::steady_timer::time_point(std::chrono::nanoseconds(time_ns));
}

// A connection outlives its request where the server lets it.
struct Connection {
  explicit Connection(asio::io_context& io) : stream(io) {}
  beast::tcp_stream stream;
  beast::flat_buffer buffer;
  bool is_used = false;
};

using Parser = http::response_parser<http::buffer_body>;

// Reads some of the body.
asio::awaitable<ErrorOf> read_body(Connection& connection, Parser& parser, std::array<char, 16384>& bytes,
                                   std::string_view* read) {
  auto& body = parser.get().body();
  body.data = bytes.data();
  body.size = bytes.size();
  body.more = true;
  auto [error, size] = co_await http::async_read_some(connection.stream, connection.buffer, parser, kNoThrow);
  if (error == http::error::need_buffer) error = {};
  *read = {bytes.data(), bytes.size() - body.size};
  co_return error;
}

// What an error of the connection says of the answer.
void fail(Outcome* outcome, const ErrorOf& error, bool has_begun) {
  const bool is_end = error == http::error::end_of_stream || error == http::error::partial_message;
  Failure failure = has_begun ? Failure::kCutStream : Failure::kConnect;
  if (error == beast::error::timeout)
    failure = Failure::kTimeout;
  else if (!is_end && error.category() == ErrorOf(http::error::bad_version).category())
    failure = Failure::kBadReply;
  outcome->fail(failure, error.message());
}

HttpRequest make_get(const HttpTarget& target, const std::string& path) {
  HttpRequest request(http::verb::get, target.base + path, 11);
  const bool is_ipv6 = target.host.find(':') != std::string::npos;
  request.set(http::field::host, fmt::format("{}:{}", is_ipv6 ? "[" + target.host + "]" : target.host, target.port));
  for (const auto& [name, value] : target.headers) request.set(name, value);
  request.keep_alive(true);
  return request;
}

HttpRequest make_post(const HttpTarget& target, const LoadItem& item) {
  json::object body{{"model", item.adapter > 0 ? target.adapters[item.adapter - 1] : target.model},
                    {"max_tokens", item.output_tokens},
                    {"stream", true}};
  for (const auto& field : target.sampling) body.insert(field);
  if (!item.messages.empty())
    body["messages"] = item.messages;
  else if (target.is_chat)
    body["messages"] = json::array{{{"role", "user"}, {"content", item.prompt}}};
  else if (item.ids.empty())
    body["prompt"] = item.prompt;
  else
    body.insert({{"prompt", json::value_from(item.ids)}, {"return_token_ids", true}});
  if (target.asks_usage) body["stream_options"] = {{"include_usage", true}};
  if (!item.schema.is_null()) {
    json::object described{{"name", "record"}, {"strict", true}, {"schema", item.schema}};
    body["response_format"] = {{"type", "json_schema"}, {"json_schema", std::move(described)}};
  }
  if (!item.tools.empty()) body["tools"] = item.tools;
  if (!item.tool_choice.is_null()) body["tool_choice"] = item.tool_choice;
  if (target.forces_length && !item.is_structured()) {
    body["ignore_eos"] = true;
    body["min_tokens"] = item.output_tokens;
  }
  HttpRequest request = make_get(target, target.is_chat ? "/v1/chat/completions" : "/v1/completions");
  request.method(http::verb::post);
  request.set(http::field::content_type, "application/json");
  request.body() = json::serialize(body);
  request.prepare_payload();
  return request;
}

struct ListedModel {
  std::string id, parent;  // parent: of an adapter its model, else empty
};

std::vector<ListedModel> listed_models(const json::array& cards) {
  std::vector<ListedModel> models;
  for (const json::value& card : cards) {
    const json::object* object = card.if_object();
    const json::value* id = object ? object->if_contains("id") : nullptr;
    if (!id || !id->is_string()) continue;
    const json::value* parent = object->if_contains("parent");
    models.push_back({std::string(id->get_string()),
                      parent && parent->is_string() ? std::string(parent->get_string()) : std::string()});
  }
  return models;
}

// A connection is a file, and the usual limit of 1,024 is less than a load may need.
void allow_many_connections() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

struct HttpLoad::Impl {
  HttpTarget target;
  Endpoints endpoints;
  SteadyClock clock;
  asio::io_context io{1};
  std::vector<std::unique_ptr<Connection>> idle;

  asio::awaitable<Result<std::unique_ptr<Connection>>> connect(bool may_reuse);
  // A request on a connection, up to the answer's header; a kept connection that the server has closed meanwhile is
  // replaced once. Null: failed.
  asio::awaitable<std::unique_ptr<Connection>> begin(const HttpRequest* request, std::optional<Parser>* parser,
                                                     Outcome* outcome);
  asio::awaitable<void> ask(const HttpRequest* request, Outcome* outcome);
  asio::awaitable<void> read_answer(std::unique_ptr<Connection> connection, Parser* parser, Outcome* outcome);
  asio::awaitable<std::string> read_text(Connection& connection, Parser* parser, size_t bytes_max);

  Outcome ask_alone(const LoadItem& item);
  template <typename Coroutine>
  void spawn(Coroutine coroutine) {
    asio::co_spawn(io, std::move(coroutine), [](std::exception_ptr error) {
      if (error) std::rethrow_exception(error);
    });
  }
  void run_all() {
    io.restart();
    io.run();
  }
};

asio::awaitable<Result<std::unique_ptr<Connection>>> HttpLoad::Impl::connect(bool may_reuse) {
  if (may_reuse && !idle.empty()) {
    std::unique_ptr<Connection> kept = std::move(idle.back());
    idle.pop_back();
    kept->stream.expires_after(seconds_of(target.timeout_s));
    co_return std::move(kept);
  }
  auto connection = std::make_unique<Connection>(io);
  connection->stream.expires_after(seconds_of(target.timeout_s));
  const auto [error, endpoint] = co_await connection->stream.async_connect(endpoints, kNoThrow);
  if (error) co_return make_error(ErrorCode::kIo, "{}", error.message());
  ErrorOf ignored;
  connection->stream.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  co_return std::move(connection);
}

asio::awaitable<std::unique_ptr<Connection>> HttpLoad::Impl::begin(const HttpRequest* request,
                                                                   std::optional<Parser>* parser, Outcome* outcome) {
  for (bool may_reuse : {true, false}) {
    Result<std::unique_ptr<Connection>> opened = co_await connect(may_reuse);
    if (!opened) {
      outcome->fail(Failure::kConnect, opened.error().message);
      co_return nullptr;
    }
    std::unique_ptr<Connection> connection = std::move(*opened);
    parser->emplace();
    (*parser)->header_limit(kHeaderBytesMax);
    (*parser)->body_limit(boost::none);
    auto [error, sent] = co_await http::async_write(connection->stream, *request, kNoThrow);
    if (!error) {
      auto [problem, received] =
          co_await http::async_read_header(connection->stream, connection->buffer, **parser, kNoThrow);
      error = problem;
    }
    if (!error) co_return std::move(connection);
    if (connection->is_used && !(*parser)->got_some() && error != beast::error::timeout) {
      outcome->is_sent_again = true;
      continue;
    }
    fail(outcome, error, (*parser)->got_some());
    co_return nullptr;
  }
  co_return nullptr;
}

asio::awaitable<void> HttpLoad::Impl::ask(const HttpRequest* request, Outcome* outcome) {
  outcome->sent_ns = clock.now_ns();
  std::optional<Parser> parser;
  std::unique_ptr<Connection> connection = co_await begin(request, &parser, outcome);
  outcome->end_ns = clock.now_ns();
  if (!connection) co_return;
  const unsigned status = parser->get().result_int();
  const std::string type(parser->get()[http::field::content_type]);
  if (status != 200) {
    outcome->http_status = status;
    const std::string text = co_await read_text(*connection, &*parser, kErrorBytesMax);
    outcome->fail(Failure::kStatus, text);
  } else if (!type.starts_with("text/event-stream")) {
    const std::string text = co_await read_text(*connection, &*parser, kErrorBytesMax);
    outcome->fail(Failure::kBadReply,
                  fmt::format("expected content-type text/event-stream, found \"{}\": {}", type, text));
  } else {
    co_await read_answer(std::move(connection), &*parser, outcome);
  }
}

asio::awaitable<void> HttpLoad::Impl::read_answer(std::unique_ptr<Connection> connection, Parser* parser,
                                                  Outcome* outcome) {
  AnswerStream answer(outcome);
  std::array<char, 16384> bytes;
  std::string_view read;
  ErrorOf error;
  bool wants_more = true;
  while (!error && wants_more && !parser->is_done()) {
    error = co_await read_body(*connection, *parser, bytes, &read);
    wants_more = answer.feed(read, clock.now_ns());
  }
  if (wants_more) {
    if (error) fail(outcome, error, true);
    answer.end(clock.now_ns());
  }
  if (error || outcome->failure) co_return;
  connection->stream.expires_after(kLastChunkWait);
  while (!error && !parser->is_done()) error = co_await read_body(*connection, *parser, bytes, &read);
  if (error || !parser->keep_alive()) co_return;
  connection->is_used = true;
  idle.push_back(std::move(connection));
}

asio::awaitable<std::string> HttpLoad::Impl::read_text(Connection& connection, Parser* parser, size_t bytes_max) {
  std::string text;
  std::array<char, 16384> bytes;
  std::string_view read;
  ErrorOf error;
  while (!error && !parser->is_done() && text.size() < bytes_max) {
    error = co_await read_body(connection, *parser, bytes, &read);
    text += read;
  }
  co_return text.substr(0, bytes_max);
}

Outcome HttpLoad::Impl::ask_alone(const LoadItem& item) {
  const HttpRequest request = make_post(target, item);
  Outcome outcome;
  outcome.due_ns = clock.now_ns();
  outcome.asked_tokens = item.output_tokens;
  spawn(ask(&request, &outcome));
  run_all();
  return outcome;
}

HttpLoad::HttpLoad(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpLoad::~HttpLoad() = default;

const HttpTarget& HttpLoad::target() const {
  return impl_->target;
}

Result<std::unique_ptr<HttpLoad>> HttpLoad::open(HttpTarget target) {
  allow_many_connections();
  auto impl = std::make_unique<Impl>();
  ErrorOf error;
  impl->endpoints = asio::ip::tcp::resolver(impl->io).resolve(target.host, target.port, error);
  if (error) return make_error(ErrorCode::kNotFound, "--url: {}:{}: {}", target.host, target.port, error.message());
  impl->target = std::move(target);
  return std::unique_ptr<HttpLoad>(new HttpLoad(std::move(impl)));
}

Status HttpLoad::find_model() {
  HttpTarget& target = impl_->target;
  if (!target.model.empty() && target.num_adapters == 0) return {};
  const HttpRequest request = make_get(impl_->target, "/v1/models");
  Outcome outcome;
  std::string text;
  const auto get = [&]() -> asio::awaitable<void> {
    std::optional<Parser> parser;
    const std::unique_ptr<Connection> connection = co_await impl_->begin(&request, &parser, &outcome);
    if (connection) text = co_await impl_->read_text(*connection, &*parser, kStreamLineBytesMax);
  };
  impl_->spawn(get());
  impl_->run_all();
  if (outcome.failure)
    return make_error(ErrorCode::kIo, "--url: {}:{}/v1/models: {}", impl_->target.host, impl_->target.port,
                      outcome.failure_detail);
  ErrorOf error;
  Result<json::value> parsed = server::read_json(text);
  const json::value* data = parsed ? parsed->find_pointer("/data", error) : nullptr;
  const std::vector<ListedModel> models =
      data && data->is_array() ? listed_models(data->get_array()) : std::vector<ListedModel>();
  if (target.model.empty()) {
    const auto first = std::ranges::find(models, "", &ListedModel::parent);
    if (first == models.end())
      return make_error(ErrorCode::kIo, "--url: /v1/models: expected data[0].id, found {}; name it with --model-name",
                        printable(text.substr(0, 200)));
    target.model = first->id;
  }
  for (const ListedModel& model : models)
    if (model.parent == target.model && target.adapters.size() < target.num_adapters)
      target.adapters.push_back(model.id);
  if (target.adapters.size() < target.num_adapters)
    return make_error(ErrorCode::kNotFound, "--adapters: expected {} adapters with parent {} in /v1/models, found {}",
                      target.num_adapters, printable(target.model), target.adapters.size());
  return {};
}

Status HttpLoad::probe(const LoadItem& item) {
  HttpTarget& target = impl_->target;
  for (;;) {
    const Outcome outcome = impl_->ask_alone(item);
    if (!outcome.failure) return {};
    const bool is_refused = outcome.http_status == 400 || outcome.http_status == 422;
    if (is_refused && target.forces_length)
      target.forces_length = false;
    else if (is_refused && target.asks_usage)
      target.asks_usage = false;
    else
      return make_error(ErrorCode::kIo, "--url: the first request failed: {}: {}", outcome.failure_text(),
                        outcome.failure_detail);
  }
}

std::vector<Outcome> HttpLoad::run(const std::vector<LoadItem>& items, uint32_t concurrency,
                                   const OnOutcome& on_outcome) {
  constexpr auto kTick = std::chrono::milliseconds(200);
  std::vector<HttpRequest> requests;
  for (const LoadItem& item : items) requests.push_back(make_post(impl_->target, item));
  std::vector<Outcome> outcomes(items.size());
  size_t next = 0, num_over = 0;
  asio::steady_timer tick(impl_->io);
  const TimeNs begin_ns = impl_->clock.now_ns();

  const auto ask = [&](size_t i, TimeNs due_ns) -> asio::awaitable<void> {
    outcomes[i].due_ns = due_ns;
    outcomes[i].asked_tokens = items[i].output_tokens;
    outcomes[i].prompt_tokens = items[i].prompt_tokens;
    outcomes[i].is_structured = items[i].is_structured();
    outcomes[i].keeps_answer = items[i].keeps_answer;
    co_await impl_->ask(&requests[i], &outcomes[i]);
    on_outcome(&outcomes[i]);
    if (++num_over == items.size()) tick.cancel();
  };
  const auto worker = [&]() -> asio::awaitable<void> {
    while (next < items.size()) co_await ask(next++, impl_->clock.now_ns());
  };
  const auto arrivals = [&]() -> asio::awaitable<void> {
    asio::steady_timer timer(impl_->io);
    for (size_t i = 0; i < items.size(); ++i) {
      const TimeNs due_ns = begin_ns + static_cast<TimeNs>(items[i].arrival_s.value_or(0) * 1e9);
      timer.expires_at(time_point_of(due_ns));
      co_await timer.async_wait(kNoThrow);
      impl_->spawn(ask(i, due_ns));
    }
  };
  const auto ticks = [&]() -> asio::awaitable<void> {
    while (num_over < items.size()) {
      on_outcome(nullptr);
      tick.expires_after(kTick);
      co_await tick.async_wait(kNoThrow);
    }
  };
  for (size_t i = 0; i < std::min<size_t>(concurrency, items.size()); ++i) impl_->spawn(worker());
  if (concurrency == 0) impl_->spawn(arrivals());
  impl_->spawn(ticks());
  impl_->run_all();
  return outcomes;
}

Result<HttpTarget> parse_url(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  const auto bad = [&] {
    return make_error(ErrorCode::kInvalidArgument, "--url: expected http://HOST[:PORT][/BASE], found {}", url);
  };
  if (!url.starts_with(kScheme)) return bad();
  HttpTarget target;
  const std::string rest = url.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string place = rest.substr(0, slash);
  target.base = rest.substr(slash);
  while (target.base.ends_with('/')) target.base.pop_back();
  if (target.base.ends_with("/v1")) target.base.resize(target.base.size() - 3);
  target.port = "80";
  const size_t bracket = place.find(']'), colon = place.rfind(':');
  if (colon != std::string::npos && (bracket == std::string::npos || colon > bracket)) {
    target.port = place.substr(colon + 1);
    place.resize(colon);
  }
  if (place.starts_with('[') && place.ends_with(']')) place = place.substr(1, place.size() - 2);
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(target.port.data(), target.port.data() + target.port.size(), port);
  if (place.empty() || error != std::errc() || end != target.port.data() + target.port.size() || port == 0)
    return bad();
  for (const char c : url)
    if (static_cast<unsigned char>(c) <= ' ' || c == '?' || c == '#' || c == '@') return bad();
  target.host = place;
  return target;
}

}  // namespace llmrt::bench
