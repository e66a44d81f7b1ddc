// The completion endpoints: body to Requests, events to one JSON answer or to a stream of chunks.
#include <random>

#include "server/json_reader.h"
#include "server/session.h"

namespace llmrt::server {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;

asio::awaitable<ApiResult<ApiRequest>> parse_on_worker(const std::string* body, const ServedModel* model, bool chat,
                                                       uint64_t random_seed) {
  Result<json::value> parsed = read_json(*body);
  if (!parsed) {
    ApiError error = to_api_error(parsed.error());
    error.code = "invalid_json";
    co_return error;
  }
  if (!parsed->is_object()) co_return invalid_field("body", "expected a JSON object");
  const json::object& object = parsed->get_object();
  co_return chat ? parse_chat(object, *model, random_seed) : parse_completion(object, *model, random_seed);
}

uint64_t random_seed() {
  thread_local std::mt19937_64 generator{(static_cast<uint64_t>(std::random_device{}()) << 32) |
                                         std::random_device{}()};
  return generator();
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
  AnswerForm form;
  std::shared_ptr<Outbox> outbox;
  std::vector<Choice> choices;
  std::vector<RequestId> ids;
  std::vector<SentTimes> sent;  // by choice
  AnswerWriter writer;

  Flight(std::shared_ptr<SharedState> shared, const ApiRequest& request, std::shared_ptr<Outbox> box, AnswerHead head)
      : state(std::move(shared)),
        form(request.form),
        outbox(std::move(box)),
        writer(&state->model, request.form, std::move(head)) {
    for (const PromptRequest& prompt : request.prompts)
      for (uint32_t branch = 0; branch < form.best_of; ++branch) choices.emplace_back(&state->model, form, prompt);
    sent.resize(choices.size());
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
};

asio::awaitable<bool> Session::complete(const Incoming& request, bool chat) {
  if (state_->draining) {
    const ApiError error = to_api_error(make_error(ErrorCode::kCancelled, "the server is shutting down"));
    co_return co_await reply_error(error, request);
  }
  ApiResult<ApiRequest> parsed = co_await asio::co_spawn(
      *state_->workers, parse_on_worker(&request.body, &state_->model, chat, random_seed()), asio::use_awaitable);
  if (const auto* error = std::get_if<ApiError>(&parsed)) co_return co_await reply_error(*error, request);
  ApiRequest& wanted = std::get<ApiRequest>(parsed);

  const auto outbox = std::make_shared<Outbox>(socket_.get_executor(), state_->door);
  AnswerHead head;
  head.id = fmt::format("{}-{:016x}{:08x}", chat ? "chatcmpl" : "cmpl", random_seed(), ++state_->num_answers);
  head.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const size_t num_prompts = wanted.prompts.size();
  for (size_t i = 0; i < num_prompts; ++i)
    wanted.prompts[i].request.name = num_prompts == 1 ? head.id : fmt::format("{}-{}", head.id, i);
  Flight flight(state_, wanted, outbox, std::move(head));
  if (const auto error = flight.submit(std::move(wanted))) co_return co_await reply_error(*error, request);

  outbox_ = outbox;
  asio::co_spawn(
      socket_.get_executor(), [self = shared_from_this(), outbox] { return self->watch_client(outbox); },
      asio::detached);
  const bool keep = flight.form.stream
                        ? co_await send_stream(flight, keep_alive(request.head) && !request.head.is_http_1_0,
                                               !request.head.is_http_1_0)
                        : co_await send_whole(flight, keep_alive(request.head));
  boost::system::error_code ignored;
  socket_.cancel(ignored);  // the watcher
  co_return keep;
}

// Tells the outbox when the client closes. Bytes that arrive meanwhile are the next request: they stay in the socket,
// and from then on only a failing write tells.
asio::awaitable<void> Session::watch_client(std::shared_ptr<Outbox> outbox) {
  boost::system::error_code error;
  co_await socket_.async_wait(asio::ip::tcp::socket::wait_read, asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return;
  char byte = 0;
  socket_.non_blocking(true, error);
  const size_t size = socket_.receive(asio::buffer(&byte, 1), asio::ip::tcp::socket::message_peek, error);
  if (error == asio::error::would_block || (!error && size > 0)) co_return;
  outbox->client_gone();
}

asio::awaitable<bool> Session::send_whole(Flight& flight, bool keep) {
  std::vector<ChoiceDelta> answers(flight.choices.size());
  for (size_t num_open = flight.choices.size(); num_open > 0;) {
    const std::vector<ChoiceEvent> events = co_await flight.outbox->take(std::chrono::hours(24));
    if (flight.outbox->gone()) co_return false;
    for (const ChoiceEvent& entry : events) {
      ChoiceDelta delta = flight.choices[entry.choice].advance(entry.event);
      if (ended_badly(delta.finish)) {
        const ApiError error = bad_end(delta);
        state_->count_response(error.status);
        state_->log_error(error, request_path(flight.form));
        co_return co_await write(format_error(error, keep)) && keep;
      }
      if (delta.finish != FinishReason::kNone) --num_open;
      answers[entry.choice].append(std::move(delta));
    }
  }
  state_->count_response(200);
  const std::string body = json::serialize(flight.writer.whole(flight.choices, std::move(answers)));
  const bool is_sent = co_await write(format_response(200, "application/json", body, keep));
  const TimeNs now = SteadyClock().now_ns();
  for (SentTimes& sent : flight.sent)
    if (is_sent) sent.add(now);
  co_return is_sent&& keep;
}

asio::awaitable<bool> Session::send_stream(Flight& flight, bool keep, bool chunked) {
  bool head_sent = false;
  std::vector<bool> begun(flight.choices.size());
  // An event whose delta says nothing new is not sent, except where tokens have no text at all.
  const bool has_text = flight.state->model.tokenizer != nullptr;
  for (size_t num_open = flight.choices.size(); num_open > 0;) {
    const std::vector<ChoiceEvent> events =
        co_await flight.outbox->take(std::chrono::seconds(state_->config.comment_s));
    if (flight.outbox->gone()) co_return false;
    std::string out = events.empty() ? ": waiting\n\n" : "";
    std::optional<ApiError> failure;
    for (const ChoiceEvent& entry : events) {
      const ChoiceDelta delta = flight.choices[entry.choice].advance(entry.event);
      if (ended_badly(delta.finish)) {
        failure = bad_end(delta);
        break;
      }
      if (delta.finish != FinishReason::kNone) --num_open;
      const bool first = !begun[entry.choice];
      if (first && flight.form.chat) out += format_event(flight.writer.first_chunk(entry.choice, flight.choices));
      begun[entry.choice] = true;
      if (!delta.empty() || !has_text)
        out += format_event(flight.writer.chunk(entry.choice, delta, first, flight.choices));
    }
    if (failure) state_->log_error(*failure, request_path(flight.form));
    if (failure && !head_sent && out.empty()) {
      state_->count_response(failure->status);
      co_return co_await write(format_error(*failure, keep)) && keep;
    }
    if (failure) out += format_event(error_body(*failure));
    if (!failure && num_open == 0) {
      if (flight.form.include_usage) out += format_event(flight.writer.usage_chunk(flight.choices));
      out += "data: [DONE]\n\n";
    }
    const bool last = failure || num_open == 0;
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
    for (const ChoiceEvent& entry : events)
      if (!entry.event.is_prompt) flight.sent[entry.choice].add(now);
    if (failure) co_return false;
  }
  co_return keep;
}

}  // namespace llmrt::server
