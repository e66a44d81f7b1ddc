// Budgets of thoughts: where a thought is ended, in every format that has thoughts, with its marks as tokens and as
// text, with and without a grammar behind it; the fields that ask for it.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <string>
#include <vector>

#include "core/request/branch_constraint.h"
#include "server/api_answer.h"
#include "server/api_request.h"
#include "server/thinking.h"
#include "tests/server/letter_model.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

const ChatFormat& format_of(const std::string& name) {
  const auto found = find_chat_format(name);
  REQUIRE(found.ok());
  return **found;
}

// A model of a format; `as_tokens`: the vocabulary has the format's tokens.
ServedModel thinking_model(const ChatFormat& format, bool as_tokens, const std::string& behind_prompt) {
  ServedModel model = letter_model(4096);
  if (as_tokens) {
    auto tokenizer = std::make_shared<LetterTokenizer>(format.tokens);
    model.vocab_size = static_cast<uint32_t>(tokenizer->vocab_size());
    model.tokenizer = std::move(tokenizer);
  }
  auto compiled = ChatTemplate::compile("{{ messages[-1].content }}" + behind_prompt);
  REQUIRE(compiled.ok());
  model.chat_template = std::move(*compiled);
  model.chat_format = std::make_shared<const ResolvedFormat>(resolve_format(format, marker_tokens(*model.tokenizer)));
  model.grammars = std::make_shared<GrammarCompiler>(TokenVocabulary::create(*model.tokenizer));
  return model;
}

struct Answered {
  json::object message, usage;
  std::string finish;
};

// Answers as a model would that always wants the next token of `wishes`, or the end, or the first that it may have.
Answered answer(const ServedModel& model, std::string_view fields, const std::vector<int32_t>& wishes) {
  const auto parsed = parse_chat(
      json::parse(fmt::format(R"({{"messages": [{{"role": "user", "content": "q"}}]{}}})", fields)).as_object(), model,
      1);
  if (const auto* error = std::get_if<ApiError>(&parsed)) FAIL(error->message);
  const auto& request = std::get<ApiRequest>(parsed);
  std::shared_ptr<const TokenConstraint> constraint = request.prompts[0].request.constraint;
  if (request.grammar) {
    auto grammar = model.grammars->compile(*request.grammar);
    if (!grammar.ok()) FAIL(grammar.error().message);
    auto limited = with_thought_budget(*grammar, *request.form.structure, model);
    REQUIRE(limited.ok());
    constraint = *limited;
  }
  REQUIRE(constraint);
  std::unique_ptr<ConstraintMatcher> matcher = constraint->start();
  std::vector<Choice> choices;
  choices.emplace_back(&model, request.form, request.prompts[0]);
  const auto writer = make_chat_writer(model, request.form, {"id", 1});
  std::vector<int32_t> tokens;
  size_t wish = 0;
  for (int i = 0; i < 400 && !choices[0].finished(); ++i) {
    NextTokens next = matcher->next();
    while (next.state == NextTokens::State::kLate) {
      matcher->wait(std::chrono::milliseconds(100));
      next = matcher->next();
    }
    if (next.error) FAIL(next.error->message);
    int32_t token = wish < wishes.size() ? wishes[wish] : kEndToken;
    if (!next.mask || next.mask->allows(token)) {
      ++wish;
    } else if (next.mask->allows(kEndToken)) {
      token = kEndToken;
    } else {
      for (token = 0; !next.mask->allows(token);) ++token;
    }
    if (i % 3 == 0) matcher = matcher->fork();
    if (i % 5 == 0) {  // behind tokens that are there already, as a replay of a trace has it
      BranchConstraint behind(*constraint, tokens);
      while (!behind.is_ready()) behind.wait(std::chrono::milliseconds(100));
      REQUIRE_FALSE(behind.error());
      CHECK((behind.mask() ? behind.mask()->digest() : 0) == (next.mask ? next.mask->digest() : 0));
    }
    tokens.push_back(token);
    REQUIRE(matcher->advance(token));
    TokenEvent event;
    event.token = token;
    if (model.tokenizer->is_end_of_generation(token)) event.finish = FinishReason::kEos;
    if (matcher->ended()) event.finish = FinishReason::kGrammarEnd;
    writer->add(0, choices[0].advance(event));
  }
  REQUIRE(choices[0].finished());
  std::string text;
  TextPieces body = writer->whole(choices);
  for (const std::string& piece : body.take()) text += piece;
  const json::object whole = json::parse(text).as_object();
  const json::object& choice = whole.at("choices").as_array()[0].as_object();
  return {choice.at("message").as_object(), whole.at("usage").as_object(),
          std::string(choice.at("finish_reason").as_string())};
}

std::vector<int32_t> tokens_of(const ServedModel& model, std::string_view text) {
  return model.tokenizer->encode(text, {.parse_special = true, .add_bos = false});
}
size_t num_tokens(const ServedModel& model, std::string_view text) {
  return tokens_of(model, text).size();
}
size_t thought_tokens(const Answered& answered) {
  return answered.usage.at("completion_tokens_details").at("reasoning_tokens").to_number<size_t>();
}

TEST_CASE("in every format a thought ends at its budget, and the answer goes on") {
  size_t num_formats = 0;
  for (const ChatFormat& format : chat_formats()) {
    if (!format.has_thoughts() || format.header.used()) continue;
    ++num_formats;
    for (const bool as_tokens : {false, true}) {
      for (const bool is_open : {false, true}) {  // by the prompt
        for (const char* structure : {"", R"(, "structured_outputs": {"choice": ["Yes", "No"]})"}) {
          for (const size_t budget : {0u, 1u, 2u, 7u, 30u}) {
            CAPTURE(format.name, as_tokens, is_open, structure, budget);
            const ServedModel model = thinking_model(format, as_tokens, is_open ? format.thought.open + "\n" : "");
            std::vector<int32_t> wishes = is_open ? std::vector<int32_t>() : tokens_of(model, format.thought.open);
            const size_t num_opening = wishes.size();
            wishes.insert(wishes.end(), 60, 't');
            const Answered got =
                answer(model, fmt::format(R"(, "thinking_token_budget": {}{})", budget, structure), wishes);
            const size_t end = num_tokens(model, format.thought.close);
            const std::string content(got.message.at("content").as_string());
            if (structure[0] != 0)
              CHECK((content == "Yes" || content == "No"));
            else
              CHECK(content.starts_with("tttt"));
            // A grammar lets no model think that does not know the mark.
            if (!is_open && !model.chat_format->has_token(format.thought.open) && structure[0] != 0) continue;
            // Marks of text are known as such when they are whole.
            CHECK(thought_tokens(got) <= std::max<size_t>(budget, as_tokens ? num_opening : 1) + end);
            CHECK(thought_tokens(got) >= budget);
            if (budget > num_opening) CHECK(got.message.at("reasoning_content").as_string().starts_with("t"));
          }
        }
      }
    }
  }
  CHECK(num_formats > 10);
}

TEST_CASE("a thought that ends by itself, or by a call, is left alone; a later one has what is left") {
  const ServedModel model = thinking_model(format_of("hermes"), true, "<think>\n");
  const auto with = [&](std::string_view text, size_t budget) {
    return answer(model,
                  fmt::format(R"(, "reasoning_budget_tokens": {}, "tools": [{{"type": "function", "function":
                      {{"name": "f"}}}}])",
                              budget),
                  tokens_of(model, text));
  };
  const Answered early = with("plan</think>Yes.", 9);
  CHECK(early.message.at("reasoning_content") == "plan");
  CHECK(early.message.at("content") == "Yes.");
  const Answered call = with("plan<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", 6);
  CHECK(call.message.at("reasoning_content") == "plan");
  CHECK(call.message.at("tool_calls").as_array().size() == 1);
  CHECK(call.finish == "tool_calls");
  const Answered twice = with("plan</think>Yes.<think>more and more</think>", 9);
  CHECK(thought_tokens(twice) == 5 + 4 + 1);
  CHECK(twice.message.at("content").as_string().starts_with("Yes."));
}

TEST_CASE("a Harmony thought ends with its message, and one that follows it leads to the final channel") {
  const ServedModel model = thinking_model(format_of("harmony"), true, "<|start|>assistant");
  std::string thoughts;
  for (int i = 0; i < 4; ++i) thoughts += "<|channel|>analysis<|message|>tttttttttttttttt";
  for (const bool has_grammar : {false, true}) {
    const Answered got = answer(model,
                                std::string(R"(, "thinking_budget_tokens": 20)") +
                                    (has_grammar ? R"(, "structured_outputs": {"regex": "t+"})" : ""),
                                tokens_of(model, thoughts + "<|return|>"));
    CHECK(got.message.at("reasoning_content").as_string().starts_with("tttt"));
    CHECK(got.message.at("content").as_string().starts_with("t"));
  }
}

TEST_CASE("every name of the budget is read; what cannot be is refused by name") {
  const ServedModel model = thinking_model(format_of("hermes"), true, "");
  const auto budget = [&](const ServedModel& of, std::string_view fields) -> std::string {
    const auto parsed = parse_chat(
        json::parse(fmt::format(R"({{"messages": [{{"role": "user", "content": "q"}}]{}}})", fields)).as_object(), of,
        1);
    if (const auto* error = std::get_if<ApiError>(&parsed)) return error->param + ": " + error->message;
    const auto& request = std::get<ApiRequest>(parsed);
    const auto& max = request.form.structure->thought_tokens_max;
    CHECK(max.has_value() == (request.prompts[0].request.constraint != nullptr));
    if (request.prompts[0].request.constraint) CHECK_FALSE(request.prompts[0].request.constraint->decides_end());
    return max ? fmt::to_string(*max) : "none";
  };
  for (const char* name : {"thinking_token_budget", "reasoning_budget_tokens", "thinking_budget_tokens",
                           "thinking_budget", "reasoning_budget"}) {
    CHECK(budget(model, fmt::format(R"(, "{}": 5)", name)) == "5");
    CHECK(budget(model, fmt::format(R"(, "{}": 0, "min_tokens": 4)", name)) == "0");
    CHECK(budget(model, fmt::format(R"(, "{}": -1)", name)) == "none");
    CHECK(budget(model, fmt::format(R"(, "{}": null)", name)) == "none");
    CHECK(budget(model, fmt::format(R"(, "{}": -2)", name)).starts_with(std::string(name) + ": "));
  }
  CHECK(budget(model, R"(, "chat_template_kwargs": {"thinking_budget": 6})") == "6");
  CHECK(budget(model, R"(, "chat_template_kwargs": {"thinking_budget": 6}, "thinking_budget": 7)") == "7");
  CHECK(budget(model, R"(, "thinking_token_budget": 6, "thinking_budget": 7)").starts_with("thinking_budget: "));
  CHECK(budget(model, R"(, "thinking_token_budget": 6, "use_beam_search": true)").starts_with("use_beam_search: "));
  ServedModel limited = model;
  limited.thought_tokens_max = 3;
  CHECK(budget(limited, "") == "3");
  CHECK(budget(limited, R"(, "thinking_budget": 9)") == "9");
  CHECK(budget(limited, R"(, "thinking_budget": -1)") == "none");
  const ServedModel plain = thinking_model(format_of("plain"), true, "");
  CHECK(budget(plain, R"(, "thinking_budget": 9)").find("(plain) has no thoughts") != std::string::npos);
  CHECK(budget(plain, R"(, "thinking_budget": -1)") == "none");
  CHECK(budget(plain, R"(, "chat_template_kwargs": {"thinking_budget": 6})") == "none");
  const auto raw =
      parse_completion(json::parse(R"({"prompt": "a", "thinking_token_budget": 4})").as_object(), model, 1);
  CHECK(std::get<ApiError>(raw).param == "thinking_token_budget");
}

}  // namespace
}  // namespace llmrt::server
