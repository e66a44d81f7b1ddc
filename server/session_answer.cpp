// The completion endpoints: body to Requests, events to one JSON answer or to a stream of chunks.
#include <random>

#include "server/json_reader.h"
#include "server/session.h"

namespace llmrt::server {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;

ApiResult<ApiRequest> parse_on_worker(const std::string& body, const ServedModel& model, bool chat,
                                      uint64_t random_seed) {
  Result<json::value> parsed = read_json(body);
  if (!parsed) {
    ApiError error = to_api_error(parsed.error());
    error.code = "invalid_json";
    return error;
  }
  if (!parsed->is_object()) return invalid_field("body", "expected a JSON object");
  const json::object& object = parsed->get_object();
  return chat ? parse_chat(object, model, random_seed) : parse_completion(object, model, random_seed);
}

uint64_t random_seed() {
  thread_local std::mt19937_64 generator{(static_cast<uint64_t>(std::random_device{}()) << 32) |
                                         std::random_device{}()};
  return generator();
}

ApiError no_memory(const ClientMemory& memory) {
  Error error =
      make_error(ErrorCode::kOverloaded,
                 "client memory: expected at most {} MiB held for bodies, waiting requests and answers, {} MiB "
                 "are taken (--client-memory-mib)",
                 memory.limit_bytes() >> 20, memory.used_bytes() >> 20);
  return to_api_error(error);
}

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

// How a choice ended badly.
ApiError bad_end(const ChoiceDelta& delta) {
  if (delta.error) return to_api_error(*delta.error);
  return to_api_error(make_error(ErrorCode::kCancelled, "the request was ended by the server"));
}
const char* request_path(const AnswerForm& form) {
  return form.chat ? "/v1/chat/completions" : "/v1/completions";
}
bool ended_badly(FinishReason finish) {
  return finish == FinishReason::kCancelled || finish == FinishReason::kTimeout || finish == FinishReason::kError;
}

}  // namespace

// The engine's branches of one HTTP request. Whatever way the answer ends, each of them is either acknowledged
// (drained) or cancelled.
struct Session::Flight {
  std::shared_ptr<SharedState> state;
  std::shared_ptr<MemoryAccount> account;
  AnswerForm form;
  std::shared_ptr<Outbox> outbox;
  std::vector<Choice> choices;
  std::vector<RequestId> ids;
  std::vector<SentTimes> sent;  // by choice
  AnswerWriter writer;
  size_t num_open = 0;              // choices that have not ended
  std::vector<AnswerDraft> drafts;  // of a whole answer, by choice
  std::vector<bool> begun;          // of a stream, by choice

  Flight(std::shared_ptr<SharedState> shared, std::shared_ptr<MemoryAccount> memory, const ApiRequest& request,
         std::shared_ptr<Outbox> box, AnswerHead head)
      : state(std::move(shared)),
        account(std::move(memory)),
        form(request.form),
        outbox(std::move(box)),
        writer(&state->model, request.form, std::move(head)) {
    for (const PromptRequest& prompt : request.prompts) {
      const auto common = std::make_shared<ChoicePrompt>(prompt);
      for (uint32_t branch = 0; branch < form.best_of; ++branch) choices.emplace_back(&state->model, form, common);
    }
    sent.resize(choices.size());
    num_open = choices.size();
    if (!form.stream) drafts.resize(choices.size());
    if (form.stream) begun.resize(choices.size());
  }
  Flight(const Flight&) = delete;
  // What was sent is told before the outbox acknowledges ends that nobody has taken.
  ~Flight() {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (choices[i].finished())
        state->door->drained(ids[i], sent[i]);
      else
        state->door->cancel(ids[i], sent[i]);
    }
    outbox->abandon();
  }

  std::optional<ApiError> submit(ApiRequest&& request) {
    for (PromptRequest& prompt : request.prompts) {
      prompt.request.sink = outbox->sink(ids.size());
      Result<RequestId> id = state->door->submit(std::move(prompt.request));
      if (!id) return to_api_error(id.error());
      for (uint32_t branch = 0; branch < form.best_of; ++branch) ids.push_back(*id + branch);
    }
    return std::nullopt;
  }

  // `digest` on this thread, or where there is much to do on another one.
  asio::awaitable<std::optional<ApiError>> on_answerer(std::span<const ChoiceEvent> events,
                                                       std::function<std::optional<ApiError>()> digest) {
    const size_t bytes = text_bytes(events);
    if (bytes <= kInlineBytes) co_return digest();
    co_return co_await state->answerers->run(bytes, std::move(digest));
  }
  // Events become drafts, or chunks behind `out`; the error of a choice that ended badly.
  std::optional<ApiError> write_drafts(std::span<const ChoiceEvent> events);
  std::optional<ApiError> write_chunks(std::span<const ChoiceEvent> events, std::string& out);
};

std::optional<ApiError> Session::Flight::write_drafts(std::span<const ChoiceEvent> events) {
  for (const ChoiceEvent& entry : events) {
    const ChoiceDelta delta = choices[entry.choice].advance(entry.event);
    if (ended_badly(delta.finish)) return bad_end(delta);
    if (delta.finish != FinishReason::kNone) --num_open;
    writer.add(delta, drafts[entry.choice]);
  }
  size_t bytes = 0;
  for (const AnswerDraft& draft : drafts) bytes += draft.held_bytes();
  if (!account->set(MemoryAccount::kAnswer, bytes)) return no_memory(*state->memory);
  return std::nullopt;
}

std::optional<ApiError> Session::Flight::write_chunks(std::span<const ChoiceEvent> events, std::string& out) {
  // An event whose delta says nothing new is not sent, except where tokens have no text at all.
  const bool has_text = state->model.tokenizer != nullptr;
  for (const ChoiceEvent& entry : events) {
    const ChoiceDelta delta = choices[entry.choice].advance(entry.event);
    if (ended_badly(delta.finish)) return bad_end(delta);
    if (delta.finish != FinishReason::kNone) --num_open;
    const bool first = !begun[entry.choice];
    if (first && form.chat) writer.first_chunk(entry.choice, choices, out);
    begun[entry.choice] = true;
    if (!delta.empty() || !has_text) writer.chunk(entry.choice, delta, first, choices, out);
  }
  return std::nullopt;
}

asio::awaitable<bool> Session::complete(const Incoming& request, bool chat) {
  if (state_->draining) {
    const ApiError error = to_api_error(make_error(ErrorCode::kCancelled, "the server is shutting down"));
    co_return co_await reply_error(error, request);
  }
  std::function<ApiResult<ApiRequest>()> work = [&] {
    return parse_on_worker(request.body, state_->model, chat, random_seed());
  };
  ApiResult<ApiRequest> parsed = co_await state_->workers->run(request.body.size(), std::move(work));
  if (const auto* error = std::get_if<ApiError>(&parsed)) co_return co_await reply_error(*error, request);
  ApiRequest& wanted = std::get<ApiRequest>(parsed);

  const auto outbox = std::make_shared<Outbox>(socket_.get_executor(), state_->door, account_);
  AnswerHead head;
  head.id = fmt::format("{}-{:016x}{:08x}", chat ? "chatcmpl" : "cmpl", random_seed(), ++state_->num_answers);
  head.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const size_t num_prompts = wanted.prompts.size();
  for (size_t i = 0; i < num_prompts; ++i)
    wanted.prompts[i].request.name = num_prompts == 1 ? head.id : fmt::format("{}-{}", head.id, i);
  Flight flight(state_, account_, wanted, outbox, std::move(head));
  if (const auto error = flight.submit(std::move(wanted))) co_return co_await reply_error(*error, request);

  outbox_ = outbox;
  is_watching_ = true;
  asio::co_spawn(
      socket_.get_executor(), [self = shared_from_this(), outbox] { return self->watch_client(outbox); },
      asio::detached);
  const bool keep = flight.form.stream
                        ? co_await send_stream(flight, keep_alive(request.head) && !request.head.is_http_1_0,
                                               !request.head.is_http_1_0)
                        : co_await send_whole(flight, keep_alive(request.head));
  co_await end_watch();
  co_return keep;
}

// Tells the outbox when the client leaves, whatever it has sent before: bytes that arrive meanwhile are the next
// request, and are read so that the end behind them is seen.
asio::awaitable<void> Session::watch_client(std::shared_ptr<Outbox> outbox) {
  while (!ends_watch_ && buffer_.size() < state_->config.ahead_bytes_max) {
    boost::system::error_code error;
    const size_t size =
        co_await socket_.async_read_some(buffer_.prepare(4096), asio::redirect_error(asio::use_awaitable, error));
    buffer_.commit(size);
    if (!error) continue;
    if (error != asio::error::operation_aborted) outbox->client_gone();
    break;
  }
  if (buffer_.size() >= state_->config.ahead_bytes_max) {
    state_->log->info("a connection is closed: expected at most {} bytes ahead of an answer's end",
                      state_->config.ahead_bytes_max);
    outbox->client_gone();
  }
  is_watching_ = false;
  watch_.cancel();
}

// The watcher must be gone before anybody else reads.
asio::awaitable<void> Session::end_watch() {
  ends_watch_ = true;
  boost::system::error_code ignored;
  if (is_watching_) socket_.cancel(ignored);
  while (is_watching_) {
    watch_.expires_at(std::chrono::steady_clock::time_point::max());
    co_await watch_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  ends_watch_ = false;
}

asio::awaitable<bool> Session::send_whole(Flight& flight, bool keep) {
  while (flight.num_open > 0) {
    const std::vector<ChoiceEvent> events = co_await flight.outbox->take(std::chrono::hours(24));
    if (flight.outbox->gone()) co_return false;
    std::optional<ApiError> failure;
    if (flight.outbox->overflowed()) failure = no_memory(*state_->memory);
    for (std::span<const ChoiceEvent> rest(events); !failure && !rest.empty();) {
      const std::span<const ChoiceEvent> slice = slice_of(rest);
      failure = co_await flight.on_answerer(slice, [&flight, slice] { return flight.write_drafts(slice); });
      rest = rest.subspan(slice.size());
    }
    if (!failure) continue;
    state_->count_response(failure->status);
    state_->log_error(*failure, request_path(flight.form));
    co_return co_await write(format_error(*failure, keep)) && keep;
  }
  state_->count_response(200);
  TextPieces body = flight.writer.whole(flight.choices, std::move(flight.drafts));
  std::vector<std::string> pieces;
  pieces.push_back(format_head(200, "application/json", body.size(), keep));
  for (std::string& piece : body.take()) pieces.push_back(std::move(piece));
  const bool is_sent = co_await write(std::move(pieces));
  const TimeNs now = SteadyClock().now_ns();
  for (SentTimes& sent : flight.sent)
    if (is_sent) sent.add(now);
  co_return is_sent&& keep;
}

asio::awaitable<bool> Session::send_stream(Flight& flight, bool keep, bool chunked) {
  bool head_sent = false;
  while (flight.num_open > 0) {
    const std::vector<ChoiceEvent> events =
        co_await flight.outbox->take(std::chrono::seconds(state_->config.comment_s));
    if (flight.outbox->gone()) co_return false;
    std::span<const ChoiceEvent> rest(events);
    do {
      const std::span<const ChoiceEvent> slice = slice_of(rest);
      rest = rest.subspan(slice.size());
      std::string out = events.empty() ? ": waiting\n\n" : "";
      std::optional<ApiError> failure;
      if (flight.outbox->overflowed()) failure = no_memory(*state_->memory);
      if (!failure) failure = co_await flight.on_answerer(slice, [&] { return flight.write_chunks(slice, out); });
      if (!failure && !flight.account->set(MemoryAccount::kAnswer, out.capacity()))
        failure = no_memory(*state_->memory);
      if (failure) state_->log_error(*failure, request_path(flight.form));
      if (failure && !head_sent && out.empty()) {
        state_->count_response(failure->status);
        co_return co_await write(format_error(*failure, keep)) && keep;
      }
      if (failure) out += format_event(error_body(*failure));
      const bool last = failure || (flight.num_open == 0 && rest.empty());
      if (last && !failure) {
        if (flight.form.include_usage) flight.writer.usage_chunk(flight.choices, out);
        out += "data: [DONE]\n\n";
      }
      std::string bytes;
      if (!head_sent) {
        state_->count_response(200);
        bytes = format_stream_head(chunked, keep);
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
