#include "server/offline.h"

#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

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

// One request in the engine. Its branches are acknowledged or cancelled whatever happens.
class Job {
 public:
  Job(ServedLease lease, const Dialect& dialect, const ApiRequest& wanted, AnswerHead head)
      : lease_(std::move(lease)),
        form_(wanted.form),
        collector_(std::make_shared<Collector>()),
        writer_(dialect.make_writer(lease_->model, form_, std::move(head))) {
    for (const PromptRequest& prompt : wanted.prompts) {
      const auto common = std::make_shared<ChoicePrompt>(prompt);
      for (uint32_t branch = 0; branch < form_.best_of; ++branch) choices_.emplace_back(&lease_->model, form_, common);
    }
  }
  Job(const Job&) = delete;
  ~Job() {
    for (size_t i = 0; i < ids_.size(); ++i) {
      if (choices_[i].ends_early()) continue;  // cancelled already
      if (choices_[i].finished())
        lease_->door->drained(ids_[i], {});
      else
        lease_->door->cancel(ids_[i], {});
    }
  }

  std::optional<ApiError> run(ApiRequest&& wanted, const std::atomic<bool>& cancelled) {
    for (PromptRequest& prompt : wanted.prompts) {
      prompt.request.sink = collector_->sink(ids_.size());
      Result<RequestId> id = lease_->door->submit(std::move(prompt.request));
      if (!id) return to_api_error(id.error());
      for (uint32_t branch = 0; branch < form_.best_of; ++branch) ids_.push_back(*id + branch);
    }
    for (size_t num_open = choices_.size(); num_open > 0;) {
      if (cancelled) return was_cancelled();
      for (const ChoiceEvent& entry : collector_->take()) {
        Choice& choice = choices_[entry.choice];
        if (choice.ends_early()) continue;
        writer_->note(entry.event);
        const ChoiceDelta delta = choice.advance(entry.event);
        if (auto error = end_error(delta)) return error;
        if (delta.finish != FinishReason::kNone) --num_open;
        if (choice.ends_early()) lease_->door->cancel(ids_[entry.choice], {});
        writer_->add(entry.choice, delta);
      }
    }
    return std::nullopt;
  }

  void write(OfflineAnswer* answer) {
    for (size_t i = 0; i < choices_.size(); ++i) {
      answer->generated_tokens += choices_[i].num_generated();
      if (i % form_.best_of != 0) continue;
      answer->prompt_tokens += choices_[i].prompt_tokens().size();
      answer->cached_tokens += choices_[i].num_cached();
    }
    for (const std::string& piece : writer_->whole(choices_).take()) answer->body += piece;
  }

 private:
  const ServedLease lease_;
  const AnswerForm form_;
  const std::shared_ptr<Collector> collector_;
  const std::unique_ptr<AnswerWriter> writer_;
  std::vector<Choice> choices_;
  std::vector<RequestId> ids_;
};

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
  context.cancelled = &cancelled;
  ApiResult<ApiRequest> parsed = dialect.parse(body, lease->model, context);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return fail(*error);
  ApiRequest& wanted = std::get<ApiRequest>(parsed);
  if (wanted.form.stream) return fail(invalid_field("stream", "expected false: an answer in a batch is one object"));
  if (const auto error = constrain(wanted, lease->model, cancelled)) return fail(*error);
  const AnswerHead head = make_answer_head(dialect, answer.request_id);
  name_requests(wanted, head.id);
  Job job(std::move(lease), dialect, wanted, head);
  if (const auto error = job.run(std::move(wanted), cancelled)) return fail(*error);
  answer.status = 200;
  job.write(&answer);
  return answer;
}

}  // namespace llmrt::server
