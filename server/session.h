// One connection: requests in, answers out, one after the other. A coroutine on a strand of its own; it lives until the
// client closes, breaks the protocol, is too slow, or the server drains. session.cpp is HTTP, session_answer.cpp what
// models write, session_files.cpp files.
#pragma once

#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/api_request.h"
#include "server/dialect.h"
#include "server/http.h"
#include "server/known_fields.h"
#include "server/outbox.h"
#include "server/routes.h"
#include "server/shared_state.h"
#include "server/transport.h"

namespace llmrt::server {

template <typename Made>
struct Held;

class Session : public std::enable_shared_from_this<Session> {
 public:
  // `on_loopback`: the address that it came in on, by which Host is judged (hosts.h). `tls`: null for none.
  Session(Transport::Socket socket, const std::shared_ptr<const TlsContext>& tls, std::shared_ptr<SharedState> state,
          bool on_loopback);
  ~Session();

  // Starts the coroutine, which keeps the session alive.
  void start();
  // Any thread: closes the connection; the second form only if no request is under way.
  void close();
  void close_if_idle();

 private:
  struct Incoming {
    RequestHead head;
    Route route;
    std::string body;  // whoever parses it takes it away: it must not stay for as long as the answer takes
  };
  struct Flight;

  boost::asio::awaitable<void> run();
  boost::asio::awaitable<bool> greet();  // of TLS; false: close
  void note_no_handshake(std::string_view problem) const;
  boost::asio::awaitable<void> shut_down();
  boost::asio::awaitable<bool> serve_one();  // false: close
  boost::asio::awaitable<std::optional<RequestHead>> read_head();
  void take_ids(const RequestHead& head);
  boost::asio::awaitable<bool> read_body(const RequestHead& head, std::string* body);
  struct BodyLimits {
    uint64_t bytes_max;
    bool is_timed;  // within body_s; else each piece of it is
  };
  // The body goes behind `bytes`; `take` is called whenever there is more, and may take it away, or says why no more is
  // read. False: close.
  using TakeBytes = std::function<boost::asio::awaitable<std::optional<ApiError>>(std::string* bytes)>;
  boost::asio::awaitable<bool> read_pieces(const RequestHead& head, BodyLimits limits, std::string* bytes,
                                           TakeBytes take);
  boost::asio::awaitable<std::optional<ApiError>> hold_body(std::string* bytes);
  // The rest of the input is not read: always false. `what` is for the log.
  boost::asio::awaitable<bool> refuse(ApiError error, std::string what = "a broken request");
  boost::asio::awaitable<bool> dispatch(Incoming request);
  // The body as it was before it was coded; on a worker.
  boost::asio::awaitable<std::optional<ApiError>> decode(Incoming& request);
  boost::asio::awaitable<bool> options(const Incoming& request);
  boost::asio::awaitable<bool> page(const Incoming& request, PageHandler handler);
  boost::asio::awaitable<bool> compute(Incoming& request, const JsonHandler& handler);
  // session_files.cpp
  boost::asio::awaitable<bool> ask_store(Incoming& request, StoreHandler handler);
  boost::asio::awaitable<bool> receive_file(const Incoming& request);
  boost::asio::awaitable<std::optional<ApiError>> feed_file(FileUpload& upload, std::string* bytes, size_t bytes_min);
  boost::asio::awaitable<bool> send_file(const Incoming& request);
  std::optional<ApiError> refused_upload(const RequestHead& head, KeyUse* use);
  std::string owner_name() const { return caller_.account ? caller_.key.name : std::string(); }

  std::optional<ApiError> refused_host(const RequestHead& head) const;
  // Whose request it is; 401 with what the log says of it.
  std::optional<ApiError> admit(const Incoming& request, std::string* audit);
  StreamLimits stream_limits() const;  // of the caller, else of the server
  void give_up(SlowOutcome why);       // the client reads too slowly
  bool client_left() const { return client_gone_ && !is_closed_; }
  std::optional<ApiError> begin_use(KeyUse* use);  // 429 where the caller's key has used up what it may
  std::optional<ApiError> charge_prompts(const ApiRequest& wanted);

  // server/session_model.h; start_watch() comes before.
  template <typename Made>
  boost::asio::awaitable<ApiResult<Held<Made>>> read_body_with_model(
      std::string body, std::function<ApiResult<Made>(const boost::json::object&, const ServedModel&)> make);
  boost::asio::awaitable<ApiResult<ServedLease>> wait_for_model(ModelIdx model);

  boost::asio::awaitable<bool> complete(Incoming& request, const Dialect& dialect);
  boost::asio::awaitable<bool> answer(Incoming& request, const Dialect& dialect);
  boost::asio::awaitable<std::optional<ApiError>> constrain(ApiRequest& wanted, const ServedModel& model);
  boost::asio::awaitable<bool> send_whole(Flight& flight, bool keep_alive);
  boost::asio::awaitable<bool> send_failure(Flight& flight, const ApiError& failure, bool keep_alive);
  boost::asio::awaitable<bool> send_stream(Flight& flight, bool keep_alive, bool chunked);
  // From start_watch to end_watch nobody else reads; what arrives meanwhile stays in buffer_.
  void start_watch();
  boost::asio::awaitable<void> watch_client();
  boost::asio::awaitable<void> end_watch();
  void client_gone();
  ParseContext parse_context(const RequestHead& head) const;  // views of `head`

  // Writes all of it, and frees each piece when it is sent; false when the client is gone or does not read. `outbox` is
  // what would wait behind it.
  boost::asio::awaitable<bool> write(std::vector<std::string> pieces, const Outbox* outbox = nullptr);
  boost::asio::awaitable<bool> write(std::string bytes, const Outbox* outbox = nullptr);
  // An answer's body as the client takes it, and the headers that say so; large ones on a worker.
  boost::asio::awaitable<std::vector<std::string>> encode(std::vector<std::string> pieces, Headers* headers);
  // Date, the client's ids or a new one, and what pages of other origins need: in every answer to the request under
  // way.
  Headers common_headers() const;
  boost::asio::awaitable<bool> reply(int status, std::string_view type, std::string body, const Incoming& request,
                                     const Headers& headers = {});
  boost::asio::awaitable<bool> reply_error(const ApiError& error, const Incoming& request, const Headers& headers = {});
  ErrorShape error_shape() const { return {errors_, request_id_}; }
  LogOrigin log_origin(std::string_view model = {}) const { return {request_id_, trace_id(), caller_.key.name, model}; }
  RequestNames names_of(const std::string& answer_id) const {
    return {answer_id, request_id_, std::string(trace_id())};
  }
  std::string_view trace_id() const { return trace_ ? std::string_view(trace_->trace_id) : std::string_view(); }
  bool keep_alive(const RequestHead& head) const { return head.keep_alive && !state_->draining; }

  std::shared_ptr<SharedState> state_;
  // At most one deadline at a time; past it, what the socket is waiting for ends as aborted, and timed_out_ is set.
  void set_deadline(std::chrono::steady_clock::time_point at);
  void set_deadline(int seconds) { set_deadline(std::chrono::steady_clock::now() + std::chrono::seconds(seconds)); }
  void clear_deadline();

  Transport socket_;
  boost::asio::steady_timer deadline_;
  uint64_t deadline_number_ = 0;  // a wait that ends late must not hit the next operation
  bool timed_out_ = false;
  boost::beast::flat_buffer buffer_;
  std::weak_ptr<Outbox> outbox_;     // of the answer under way
  boost::asio::steady_timer watch_;  // of the client, while an answer is under way
  bool is_watching_ = false, ends_watch_ = false;
  std::atomic<bool> client_gone_{false};  // of the request under way; workers look at it
  const std::shared_ptr<MemoryAccount> account_;
  std::atomic<bool> idle_{true};
  bool is_closed_ = false;  // by the server, while an answer may have been under way
  const bool on_loopback_;

  // These belong to the request under way.
  std::string request_id_, client_request_id_;
  std::optional<TraceContext> trace_;
  GzipWish gzip_ = GzipWish::kNo;
  ErrorForm errors_ = ErrorForm::kOpenAi;
  Headers cors_;
  Caller caller_;
};

}  // namespace llmrt::server
