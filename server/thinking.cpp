#include "server/thinking.h"

#include <array>

#include "core/chat/thought_budget.h"

namespace llmrt::server {
namespace {

// As vLLM, llama.cpp, Qwen's own service and llama.cpp's flag have it.
constexpr std::array kBudgetNames = {"thinking_token_budget", "reasoning_budget_tokens", "thinking_budget_tokens",
                                     "thinking_budget", "reasoning_budget"};
constexpr int64_t kBudgetMax = 1 << 30;

}  // namespace

void read_thought_budget(Fields& fields, const ServedModel& model, const boost::json::object* template_variables,
                         bool only_counting, AnswerStructure* structure) {
  std::optional<int64_t> budget;
  const char* field = nullptr;
  for (const char* name : kBudgetNames) {
    const auto found = fields.integer(name, -1, kBudgetMax);
    if (found && budget && *found != *budget)
      fields.fail(name, fmt::format("expected the same as {} = {}, found {}", field, *budget, *found));
    if (found && !budget) field = name;
    if (found) budget = found;
  }
  const bool has_thoughts = model.chat_format && model.tokenizer && model.chat_format->format->has_thoughts();
  if (fields.failed() || only_counting) return;
  if (budget && *budget >= 0 && !has_thoughts) {
    fields.fail(
        field,
        fmt::format("this model's chat format ({}) has no thoughts: expected -1 or nothing, or a server started "
                    "with --chat-format",
                    model.chat_format ? model.chat_format->format->name : "unknown"),
        "unsupported");
    return;
  }
  if (!has_thoughts) return;
  if (!budget && template_variables) {
    // Some templates tell their model of it; it is held to it as well.
    const boost::json::value* told = template_variables->if_contains("thinking_budget");
    boost::json::error_code error;
    const int64_t value = told && told->is_number() ? told->to_number<int64_t>(error) : -1;
    if (told && told->is_number() && !error && value >= 0 && value <= kBudgetMax) budget = value;
    if (told && told->is_number() && !error && value < 0) budget = -1;
  }
  if (!budget) {
    structure->thought_tokens_max = model.thought_tokens_max;
  } else if (*budget >= 0) {
    structure->thought_tokens_max = static_cast<uint32_t>(*budget);
  }
}

Result<std::shared_ptr<const TokenConstraint>> with_thought_budget(std::shared_ptr<const TokenConstraint> grammar,
                                                                   const AnswerStructure& structure,
                                                                   const ServedModel& model) {
  if (!structure.thought_tokens_max) return grammar;
  using Choice = AnswerStructure::Choice;
  ThoughtBudget budget{.tokens_max = *structure.thought_tokens_max, .start = structure.start};
  budget.reads_calls = structure.choice != Choice::kNone && model.chat_format->format->has_calls();
  budget.must_call = structure.choice == Choice::kRequired || structure.choice == Choice::kNamed;
  for (const Tool& tool : structure.tools) budget.tools.push_back(tool.name);
  return limit_thoughts(budget, std::move(grammar), model.chat_format, model.tokenizer);
}

}  // namespace llmrt::server
