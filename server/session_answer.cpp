// What models write: body to Requests, events to one answer or to a stream. How both look is the dialect's.
#include <algorithm>
#include <limits>

#include "server/answer_run.h"
#include "server/answer_steps.h"
#include "server/session_model.h"

namespace llmrt::server {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;

// What a body asks for, and of which model.
using Wanted = Held<ApiRequest>;

// About the text that events become.
size_t text_bytes(std::span<const ChoiceEvent> events) {
  size_t bytes = 0;
  for (const ChoiceEvent& entry : events) bytes += 256 + 160 * entry.event.top_logprobs.size();
  return bytes;
}
constexpr size_t kInlineBytes = 8 << 10;   // made into text at once, on the connection's own thread
constexpr size_t kSliceBytes = 512 << 10;  // the most that is made into text in one go

// The first of `events` that make about a slice.
std::span<const ChoiceEvent> slice_of(std::span<const ChoiceEvent> events) {
  size_t count = 0, bytes = 0;
  while (count < events.size() && bytes < kSliceBytes) bytes += text_bytes(events.subspan(count++, 1));
  return events.first(count);
}

}  // namespace

// The engine's branches of one HTTP request. Whatever way the answer ends, each of them is either acknowledged
// (drained) or cancelled.
struct Session::Flight : AnswerRun {
  std::shared_ptr<SharedState> state;
  std::shared_ptr<MemoryAccount> account;
  const Dialect& dialect;
  std::shared_ptr<Outbox> outbox;
  std::shared_ptr<KeyAccount> key;  // that generated tokens are charged to; null: none
  Headers headers;                  // of the reply
  Session* session = nullptr;       // whose flight it is

  Flight(std::shared_ptr<SharedState> shared, std::shared_ptr<MemoryAccount> memory, const Wanted& wanted,
         const Dialect& spoken, std::shared_ptr<Outbox> box, AnswerHead head)
      : AnswerRun(wanted.lease, spoken, wanted.made, std::move(head)),
        state(std::move(shared)),
        account(std::move(memory)),
        dialect(spoken),
        outbox(std::move(box)) {}
  // What was sent is told before the outbox acknowledges ends that nobody has taken.
  ~Flight() {
    outbox->watch(std::numeric_limits<size_t>::max(), nullptr);
    give_back(session->client_left());
    outbox->abandon();
  }

  std::optional<ApiError> submit(ApiRequest&& request) {
    uint64_t held = 0;
    for (const PromptRequest& prompt : request.prompts) held += held_bytes(prompt.request) + prompt.echo_text.size();
    if (!account->set(MemoryAccount::kRequest, held)) return state->no_memory(ClientMemoryPart::kRequest);
    return AnswerRun::submit(std::move(request.prompts), [this](size_t first) { return outbox->sink(first); });
  }

  // What waits for the client of a stream is more than it should be, or has been read.
  void on_full(bool is_full, SlowClients policy) const {
    if (policy == SlowClients::kDisconnect) {
      if (is_full) session->give_up(SlowOutcome::kBufferFull);
      return;
    }
    if (is_full) state->count_slow(SlowOutcome::kThrottled);
    for (const RequestId id : ids) door->set_paused(id, is_full);
  }
  void charge(std::span<const ChoiceEvent> events) const {
    if (!key) return;
    const auto is_sampled = [](const ChoiceEvent& entry) { return !entry.event.is_prompt && entry.event.token >= 0; };
    const auto count = std::count_if(events.begin(), events.end(), is_sampled);
    key->charge_generated(static_cast<uint64_t>(count), SteadyClock().now_ns());
  }
  void note_end(size_t choice) const {
    if (const AnswerCounts* counts = choices[choice].counts()) state->count_oddities(*counts);
  }
  // `digest` on this thread, or where there is much to do on another one.
  asio::awaitable<std::optional<ApiError>> on_answerer(std::span<const ChoiceEvent> events,
                                                       std::function<std::optional<ApiError>()> digest) {
    const size_t bytes = text_bytes(events);
    if (bytes <= kInlineBytes) co_return digest();
    co_return co_await state->answerers->run(bytes, std::move(digest));
  }
  // Events become a draft, or chunks behind `out`; the error of a choice that ended badly.
  std::optional<ApiError> write_drafts(std::span<const ChoiceEvent> events);
  std::optional<ApiError> write_chunks(std::span<const ChoiceEvent> events, std::string& out);
};

std::optional<ApiError> Session::Flight::write_drafts(std::span<const ChoiceEvent> events) {
  charge(events);
  auto failure = digest(events, [&](size_t choice, const ChoiceDelta& delta, bool is_end) {
    if (is_end) note_end(choice);
    writer->add(choice, delta);
  });
  if (!failure && !account->set(MemoryAccount::kAnswer, writer->held_bytes()))
    failure = state->no_memory(ClientMemoryPart::kAnswer);
  return failure;
}

std::optional<ApiError> Session::Flight::write_chunks(std::span<const ChoiceEvent> events, std::string& out) {
  charge(events);
  return digest(events, [&](size_t choice, const ChoiceDelta& delta, bool is_end) {
    if (is_end) note_end(choice);
    writer->chunk(choice, delta, choices, is_end && num_open == 0, out);
  });
}

asio::awaitable<bool> Session::complete(Incoming& request, const Dialect& dialect) {
  if (state_->draining) co_return co_await reply_error(*state_->not_ready(), request);
  start_watch();
  const bool keep = co_await answer(request, dialect);
  co_await end_watch();
  co_return keep && !client_gone_;
}

asio::awaitable<bool> Session::answer(Incoming& request, const Dialect& dialect) {
  MakeOfBody<ApiRequest> make = [&](const json::object& fields, const ServedModel& model) {
    ParseContext context = parse_context(request.head);
    context.random_seed = random_seed();
    return dialect.parse(fields, model, context);
  };
  ApiResult<Wanted> parsed = co_await read_body_with_model(std::move(request.body), std::move(make));
  account_->set(MemoryAccount::kBody, 0);
  if (client_gone_) co_return false;
  if (const auto* error = std::get_if<ApiError>(&parsed)) co_return co_await reply_error(*error, request);
  Wanted& wanted = std::get<Wanted>(parsed);
  const ParseNotes notes = wanted.made;
  state_->count_ignored_fields(dialect.counted, notes.ignored_fields.size());

  if (!wanted.made.ready.empty()) {
    Headers headers;
    for (const auto& [name, value] : notes.headers) headers.emplace_back(name, value);
    std::string ready = std::move(wanted.made.ready);
    co_return co_await reply(200, "application/json", std::move(ready), request, headers);
  }
  const auto outbox = std::make_shared<Outbox>(socket_.get_executor(), wanted.lease->door, account_);
  AnswerHead head = make_answer_head(dialect, request_id_);
  if (const auto error = co_await constrain(wanted.made, wanted.lease->model))
    co_return co_await reply_error(*error, request);
  if (client_gone_) co_return false;
  if (const auto error = charge_prompts(wanted.made)) co_return co_await reply_error(*error, request);
  name_requests(wanted.made, names_of(head.id));
  Flight flight(state_, account_, wanted, dialect, outbox, std::move(head));
  flight.session = this;
  flight.key = caller_.account;
  const StreamLimits limits = stream_limits();
  if (flight.form.stream && limits.slow_clients != SlowClients::kBuffer)
    outbox->watch(limits.buffer_bytes,
                  [&flight, policy = limits.slow_clients](bool is_full) { flight.on_full(is_full, policy); });
  flight.headers = common_headers();
  for (const auto& [name, value] : notes.headers) flight.headers.emplace_back(name, value);
  if (const auto error = flight.submit(std::move(wanted.made))) co_return co_await reply_error(*error, request);
  outbox_ = outbox;
  const bool keep = keep_alive(request.head), is_old = request.head.is_http_1_0;
  // Not by ?: GCC 12 begins both of its sides where they wait.
  if (flight.form.stream) co_return co_await send_stream(flight, keep && !is_old, !is_old);
  co_return co_await send_whole(flight, keep);
}

// Compiles the grammar of the answer, on threads for that; the connection's own thread goes on meanwhile.
asio::awaitable<std::optional<ApiError>> Session::constrain(ApiRequest& wanted, const ServedModel& model) {
  if (!wanted.grammar) co_return std::nullopt;
  struct Compiled {
    explicit Compiled(asio::any_io_executor executor) : arrived(executor, asio::steady_timer::time_point::max()) {}
    asio::steady_timer arrived;
    std::optional<GrammarCompiler::Answer> answer;
  };
  const asio::any_io_executor executor = socket_.get_executor();
  const auto compiled = std::make_shared<Compiled>(executor);
  const auto ticket =
      model.grammars->compile(std::move(*wanted.grammar), [compiled, executor](GrammarCompiler::Answer answer) {
        auto kept = std::make_shared<GrammarCompiler::Answer>(std::move(answer));
        asio::post(executor, [compiled, kept] {
          compiled->answer = std::move(*kept);
          compiled->arrived.cancel();
        });
      });
  boost::system::error_code ignored;
  while (!compiled->answer && !client_gone_) {
    compiled->arrived.expires_after(std::chrono::milliseconds(50));
    co_await compiled->arrived.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  if (!compiled->answer) co_return client_has_gone();
  co_return take_constraint(wanted, model, *compiled->answer);
}

void Session::start_watch() {
  is_watching_ = true;
  asio::co_spawn(
      socket_.get_executor(), [self = shared_from_this()] { return self->watch_client(); }, asio::detached);
}

// Tells when the client leaves, whatever it has sent before: bytes that arrive meanwhile are the next request, and are
// read so that the end behind them is seen.
asio::awaitable<void> Session::watch_client() {
  while (!ends_watch_ && buffer_.size() < state_->config.ahead_bytes_max) {
    boost::system::error_code error;
    const size_t size =
        co_await socket_.async_read_some(buffer_.prepare(4096), asio::redirect_error(asio::use_awaitable, error));
    buffer_.commit(size);
    if (!error) continue;
    if (error != asio::error::operation_aborted) client_gone();
    break;
  }
  if (buffer_.size() >= state_->config.ahead_bytes_max) {
    state_->log_bounded(LogLevel::kInfo,
                        fmt::format("a connection is closed: expected at most {} bytes ahead of an answer's end",
                                    state_->config.ahead_bytes_max));
    client_gone();
  }
  is_watching_ = false;
  watch_.cancel();
}

void Session::client_gone() {
  client_gone_ = true;
  if (const auto outbox = outbox_.lock()) outbox->client_gone();
}

// The watcher must be gone before anybody else reads.
asio::awaitable<void> Session::end_watch() {
  ends_watch_ = true;
  boost::system::error_code ignored;
  if (is_watching_) socket_.cancel();
  while (is_watching_) {
    watch_.expires_at(std::chrono::steady_clock::time_point::max());
    co_await watch_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  ends_watch_ = false;
}

// Before anything else was sent.
asio::awaitable<bool> Session::send_failure(Flight& flight, const ApiError& failure, bool keep) {
  state_->count_response(error_status(failure, errors_));
  std::string answer = format_error(failure, keep, flight.headers, /*with_body=*/true, error_shape());
  const bool is_sent = co_await write(std::move(answer));
  co_return is_sent&& keep;
}

asio::awaitable<bool> Session::send_whole(Flight& flight, bool keep) {
  while (flight.num_open > 0) {
    const std::vector<ChoiceEvent> events = co_await flight.outbox->take(std::chrono::hours(24));
    if (flight.outbox->gone()) co_return false;
    std::optional<ApiError> failure;
    if (flight.outbox->overflowed()) failure = state_->no_memory(ClientMemoryPart::kAnswer);
    for (std::span<const ChoiceEvent> rest(events); !failure && !rest.empty();) {
      const std::span<const ChoiceEvent> slice = slice_of(rest);
      failure = co_await flight.on_answerer(slice, [&flight, slice] { return flight.write_drafts(slice); });
      rest = rest.subspan(slice.size());
      if (client_gone_) co_return false;
    }
    if (!failure) continue;
    state_->log_error(*failure, flight.dialect.path, log_origin(flight.model.id));
    co_return co_await send_failure(flight, *failure, keep);
  }
  state_->count_response(200);
  std::vector<std::string> pieces = flight.writer->whole(flight.choices).take();
  pieces = co_await encode(std::move(pieces), &flight.headers);
  pieces.insert(pieces.begin(), format_head(200, "application/json", size_of(pieces), keep, flight.headers));
  const bool is_sent = co_await write(std::move(pieces));
  const TimeNs now = SteadyClock().now_ns();
  for (SentTimes& sent : flight.sent)
    if (is_sent) sent.add(now);
  co_return is_sent&& keep;
}

asio::awaitable<bool> Session::send_stream(Flight& flight, bool keep, bool chunked) {
  bool head_sent = false;
  constexpr std::chrono::seconds kNoHeartbeat = std::chrono::hours(24);
  const int comment_s = state_->config.comment_s;
  const std::chrono::seconds silence = comment_s > 0 ? std::chrono::seconds(comment_s) : kNoHeartbeat;
  while (flight.num_open > 0) {
    const std::vector<ChoiceEvent> events = co_await flight.outbox->take(silence);
    if (flight.outbox->gone()) co_return false;
    std::span<const ChoiceEvent> rest(events);
    do {
      const std::span<const ChoiceEvent> slice = slice_of(rest);
      rest = rest.subspan(slice.size());
      std::string out;
      if (events.empty()) flight.writer->keep_alive(out);
      std::optional<ApiError> failure;
      if (flight.outbox->overflowed()) failure = state_->no_memory(ClientMemoryPart::kAnswer);
      if (!failure) failure = co_await flight.on_answerer(slice, [&] { return flight.write_chunks(slice, out); });
      if (!failure && !flight.account->set(MemoryAccount::kAnswer, out.capacity() + flight.writer->held_bytes()))
        failure = state_->no_memory(ClientMemoryPart::kAnswer);
      if (failure) state_->log_error(*failure, flight.dialect.path, log_origin(flight.model.id));
      if (failure && !head_sent && out.empty()) co_return co_await send_failure(flight, *failure, keep);
      if (failure) flight.writer->fail(*failure, out);
      const bool last = failure || (flight.num_open == 0 && rest.empty());
      if (last && !failure) flight.writer->end(flight.choices, out);
      std::string bytes;
      if (!head_sent) {
        state_->count_response(200);
        bytes = format_stream_head(chunked, keep, flight.headers, flight.dialect.stream_type);
        head_sent = true;
      }
      if (!out.empty()) bytes += format_chunk(out, chunked);
      if (last && chunked) bytes += kLastChunk;
      if (!co_await write(std::move(bytes), flight.outbox.get())) co_return false;
      const TimeNs now = SteadyClock().now_ns();
      for (const ChoiceEvent& entry : slice)
        if (!entry.event.is_prompt) flight.sent[entry.choice].add(now);
      if (failure) co_return false;
    } while (!rest.empty());
  }
  co_return keep;
}

}  // namespace llmrt::server
