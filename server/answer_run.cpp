#include "server/answer_run.h"

#include "server/answer_steps.h"

namespace llmrt::server {

AnswerRun::AnswerRun(ServedLease held, const Dialect& dialect, const ApiRequest& wanted, AnswerHead head)
    : lease(std::move(held)),
      door(lease->door),
      model(lease->model),
      form(wanted.form),
      writer(dialect.make_writer(model, form, std::move(head))) {
  for (const PromptRequest& prompt : wanted.prompts) {
    const auto common = std::make_shared<ChoicePrompt>(prompt);
    for (uint32_t branch = 0; branch < form.best_of; ++branch) choices.emplace_back(&model, form, common);
  }
  sent.resize(choices.size());
  num_open = choices.size();
}

std::optional<ApiError> AnswerRun::submit(std::vector<PromptRequest>&& prompts, const SinkOf& sink_of) {
  for (PromptRequest& prompt : prompts) {
    prompt.request.sink = sink_of(ids.size());
    Result<RequestId> id = door->submit(std::move(prompt.request));
    if (!id) return to_api_error(id.error());
    for (uint32_t branch = 0; branch < form.best_of; ++branch) ids.push_back(*id + branch);
  }
  return std::nullopt;
}

std::optional<ApiError> AnswerRun::digest(std::span<const ChoiceEvent> events, const Use& use) {
  for (const ChoiceEvent& entry : events) {
    Choice& choice = choices[entry.choice];
    if (choice.ends_early()) continue;
    writer->note(entry.event);
    const ChoiceDelta delta = choice.advance(entry.event);
    if (auto error = end_error(delta)) return error;
    const bool is_end = delta.finish != FinishReason::kNone;
    num_open -= is_end;
    // Where it goes on in the engine, it need not.
    if (is_end && choice.ends_early()) door->cancel(ids[entry.choice], sent[entry.choice]);
    use(entry.choice, delta, is_end);
  }
  return std::nullopt;
}

void AnswerRun::give_back(bool has_left) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (choices[i].ends_early()) continue;  // cancelled already
    if (choices[i].finished())
      door->drained(ids[i], sent[i]);
    else if (has_left)
      door->disconnect(ids[i], sent[i]);
    else
      door->cancel(ids[i], sent[i]);
  }
  ids.clear();
}

}  // namespace llmrt::server
