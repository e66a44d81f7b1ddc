#include "server/offline.h"

#include <algorithm>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

#include "server/answer_run.h"
#include "server/answer_steps.h"
#include "server/ids.h"
#include "server/model_choice.h"
#include "server/outbox.h"
#include "server/routes.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

constexpr auto kLook = std::chrono::milliseconds(100);  // how often a wait looks whether it is cancelled
constexpr int kCancelledStatus = 499;                   // nginx's, for a client that left

ApiError was_cancelled() {
  return http_error(kCancelledStatus, "cancelled", "the batch was stopped before this answer was whole");
}

// Events of one request's branches, for the thread that waits for them.
class Collector : public std::enable_shared_from_this<Collector> {
 public:
  std::shared_ptr<EventSink> sink(size_t first_choice) {
    return std::make_shared<Sink>(shared_from_this(), first_choice);
  }
  // Empty when nothing came for a while.
  std::vector<ChoiceEvent> take() {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, kLook, [&] { return !events_.empty(); });
    return std::exchange(events_, {});
  }

 private:
  struct Sink final : EventSink {
    Sink(std::shared_ptr<Collector> its_owner, size_t first_choice)
        : owner(std::move(its_owner)), first(first_choice) {}
    void on_events(std::span<const TokenEvent> events) override {
      std::lock_guard lock(owner->mutex_);
      for (const TokenEvent& event : events) owner->events_.push_back({first + event.branch, event});
      owner->arrived_.notify_one();
    }
    const std::shared_ptr<Collector> owner;
    const size_t first;
  };

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<ChoiceEvent> events_;
};

// What a thread waits for that another one brings; nothing: cancelled.
template <typename T>
std::optional<T> wait_for(std::future<T>& future, const std::atomic<bool>& cancelled) {
  while (future.wait_for(kLook) != std::future_status::ready)
    if (cancelled) return std::nullopt;
  return future.get();
}

ApiResult<ServedLease> hold_model(ModelHost& models, ModelIdx model, const std::atomic<bool>& cancelled) {
  if (ModelLease lease = models.acquire_now(model)) return to_served(std::move(lease));
  const auto promise = std::make_shared<std::promise<Result<ModelLease>>>();
  std::future<Result<ModelLease>> future = promise->get_future();
  const WaiterId waiter =
      models.acquire(model, [promise](Result<ModelLease> lease) { promise->set_value(std::move(lease)); });
  std::optional<Result<ModelLease>> lease = wait_for(future, cancelled);
  if (!lease) {
    models.cancel(waiter);
    return was_cancelled();
  }
  if (!*lease) return to_api_error(lease->error());
  return to_served(*std::move(*lease));
}

std::optional<ApiError> constrain(ApiRequest& wanted, const ServedModel& model, const std::atomic<bool>& cancelled) {
  if (!wanted.grammar) return std::nullopt;
  const auto promise = std::make_shared<std::promise<GrammarCompiler::Answer>>();
  std::future<GrammarCompiler::Answer> future = promise->get_future();
  const auto ticket = model.grammars->compile(
      std::move(*wanted.grammar), [promise](GrammarCompiler::Answer answer) { promise->set_value(std::move(answer)); });
  std::optional<GrammarCompiler::Answer> answer = wait_for(future, cancelled);
  if (!answer) return was_cancelled();
  return take_constraint(wanted, model, *answer);
}

std::optional<ApiError> run_to_end(AnswerRun& run, std::vector<PromptRequest>&& prompts,
                                   const std::atomic<bool>& cancelled) {
  const auto collector = std::make_shared<Collector>();
  if (auto error = run.submit(std::move(prompts), [&](size_t first) { return collector->sink(first); })) return error;
  const auto add = [&](size_t choice, const ChoiceDelta& delta, bool) { run.writer->add(choice, delta); };
  while (run.num_open > 0) {
    if (cancelled) return was_cancelled();
    if (auto error = run.digest(collector->take(), add)) return error;
  }
  return std::nullopt;
}

bool wants_to_go_first(const ApiRequest& wanted) {
  return std::ranges::any_of(wanted.prompts, [](const PromptRequest& prompt) {
    return prompt.request.request_class == RequestClass::kInteractive ||
           prompt.request.request_class == RequestClass::kAgent;
  });
}

void write_answer(AnswerRun& run, OfflineAnswer* answer) {
  for (size_t i = 0; i < run.choices.size(); ++i) {
    answer->generated_tokens += run.choices[i].num_generated();
    if (i % run.form.best_of != 0) continue;
    answer->prompt_tokens += run.choices[i].prompt_tokens().size();
    answer->cached_tokens += run.choices[i].num_cached();
  }
  for (const std::string& piece : run.writer->whole(run.choices).take()) answer->body += piece;
}

}  // namespace

std::optional<ApiError> OfflineAnswerer::check_url(std::string_view url) const {
  const Route route = find_route("POST", url);
  if (route.row && std::holds_alternative<Endpoint>(route.row->handler)) return std::nullopt;
  return http_error(
      404, "not_found",
      fmt::format("url: expected an endpoint that models answer, as /v1/chat/completions, found '{}'", shown(url)));
}

OfflineAnswer OfflineAnswerer::answer(std::string_view url, const json::object& body,
                                      const std::atomic<bool>& cancelled) const {
  OfflineAnswer answer;
  answer.request_id = make_id("req");
  ErrorShape shape{.request_id = answer.request_id};
  const auto fail = [&](const ApiError& error) {
    answer.status = error_status(error, shape.form);
    answer.body = json::serialize(error_body(error, shape));
    return answer;
  };
  if (const auto error = check_url(url)) return fail(*error);
  const Route route = find_route("POST", url);
  shape.form = route.errors();
  const Dialect& dialect = dialect_of(std::get<Endpoint>(route.row->handler));

  const ApiResult<ModelIdx> model = choose_model(*models_, body);
  if (const auto* error = std::get_if<ApiError>(&model)) return fail(*error);
  ApiResult<ServedLease> held = hold_model(*models_, std::get<ModelIdx>(model), cancelled);
  if (const auto* error = std::get_if<ApiError>(&held)) return fail(*error);
  ServedLease lease = std::get<ServedLease>(std::move(held));

  ParseContext context;
  context.random_seed = random_seed();
  context.strict_fields = settings_.strict_fields;
  context.request_class = settings_.request_class;
  context.key_salt = settings_.key_salt;
  context.key_adapters = settings_.key_adapters ? &*settings_.key_adapters : nullptr;
  context.cancelled = &cancelled;
  ApiResult<ApiRequest> parsed = dialect.parse(body, lease->model, context);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return fail(*error);
  ApiRequest& wanted = std::get<ApiRequest>(parsed);
  if (wanted.form.stream) return fail(invalid_field("stream", "expected false: an answer in a batch is one object"));
  if (settings_.is_beside_others && wants_to_go_first(wanted))
    return fail(invalid_field("request_class", "expected batch, evaluation or background in a batch"));
  if (!wanted.ready.empty()) {
    answer.status = 200;
    answer.body = std::move(wanted.ready);
    return answer;
  }
  if (const auto error = constrain(wanted, lease->model, cancelled)) return fail(*error);
  AnswerHead head = make_answer_head(dialect, answer.request_id);
  name_requests(wanted, {head.id, answer.request_id, {}});
  AnswerRun run(std::move(lease), dialect, wanted, std::move(head));
  if (const auto error = run_to_end(run, std::move(wanted.prompts), cancelled)) return fail(*error);
  answer.status = 200;
  write_answer(run, &answer);
  return answer;
}

}  // namespace llmrt::server
