#include "server/answer_steps.h"

#include <random>

#include "server/ids.h"
#include "server/rfc3339.h"
#include "server/structure.h"
#include "server/thinking.h"

namespace llmrt::server {

uint64_t random_seed() {
  thread_local std::mt19937_64 generator{(static_cast<uint64_t>(std::random_device{}()) << 32) |
                                         std::random_device{}()};
  return generator();
}

AnswerHead make_answer_head(const Dialect& dialect, std::string request_id) {
  AnswerHead head;
  head.id = make_id_of(dialect.id_begin);
  head.request_id = std::move(request_id);
  head.created = unix_seconds();
  return head;
}

void name_requests(ApiRequest& wanted, const RequestNames& names) {
  const size_t num_prompts = wanted.prompts.size();
  for (size_t i = 0; i < num_prompts; ++i) {
    wanted.prompts[i].request.names = names;
    if (num_prompts > 1) wanted.prompts[i].request.names.answer = fmt::format("{}-{}", names.answer, i);
  }
}

std::optional<ApiError> take_constraint(ApiRequest& wanted, const ServedModel& model,
                                        const GrammarCompiler::Answer& compiled) {
  if (!compiled.ok()) return structure_error(*wanted.form.structure, compiled.error());
  wanted.form.warnings = structure_warnings(*wanted.form.structure, **compiled);
  auto constraint = with_thought_budget(*compiled, *wanted.form.structure, model);
  if (!constraint) return to_api_error(constraint.error());
  for (PromptRequest& prompt : wanted.prompts) prompt.request.constraint = *constraint;
  return std::nullopt;
}

std::optional<ApiError> end_error(const ChoiceDelta& delta) {
  switch (delta.finish) {
    case FinishReason::kCancelled:
    case FinishReason::kDisconnected:
    case FinishReason::kHandedOver:
    case FinishReason::kTimeout:
    case FinishReason::kError:
      return to_api_error(
          delta.error.value_or(make_error(ErrorCode::kCancelled, "the request was ended by the server")));
    default:
      return std::nullopt;
  }
}

}  // namespace llmrt::server
