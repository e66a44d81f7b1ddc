// A model with thoughts and calls for tests of dialects, in the format of Qwen3 or another: letters are tokens.
#pragma once

#include <catch2/catch_test_macros.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/answer_writer.h"
#include "server/messages_request.h"
#include "tests/server/letter_model.h"

namespace llmrt::server {

inline constexpr const char* kTurnsTemplate =
    "{% for t in tools or [] %}<T>{{ t.function.name }}{% endfor %}"
    "{% for m in messages %}<|start|>{{ m.role }}:"
    "{% if m.reasoning_content %}<th>{{ m.reasoning_content }}</th>{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}={{ c.function.arguments | tojson }}{% endfor %}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant:"
    "{% if enable_thinking is defined and not enable_thinking %}<no>{% endif %}"
    "{% if reasoning_effort is defined %}<{{ reasoning_effort }}>{% endif %}{% endif %}";

inline ServedModel dialect_model(const std::string& format = "hermes", const std::string& text = kTurnsTemplate,
                                 uint32_t context_max = 4096) {
  ServedModel model = letter_model(context_max);
  auto compiled = ChatTemplate::compile(text);
  REQUIRE(compiled.ok());
  model.chat_template = std::move(*compiled);
  const auto found = find_chat_format(format);
  REQUIRE(found.ok());
  model.chat_format = std::make_shared<const ResolvedFormat>(resolve_format(**found, marker_tokens(*model.tokenizer)));
  model.grammars = std::make_shared<GrammarCompiler>(TokenVocabulary::create(*model.tokenizer));
  model.shows_inline_system = renders_inline_system(model);
  return model;
}

inline std::string prompt_of(const ServedModel& model, const ApiRequest& request) {
  return model.tokenizer->decode(request.prompts[0].request.prompt, /*special=*/true);
}

// What a writer makes of a text that the model writes, a token a byte.
struct WrittenAnswer {
  std::string text;
  std::vector<Choice> choices;
};
inline WrittenAnswer write_answer(const ServedModel& model, const ApiRequest& request, AnswerWriter& writer,
                                  const std::string& said, FinishReason finish = FinishReason::kEos,
                                  uint32_t cached = 0) {
  WrittenAnswer out;
  out.choices.emplace_back(&model, request.form, request.prompts[0]);
  Choice& choice = out.choices[0];
  for (size_t i = 0; i <= said.size() && !choice.finished(); ++i) {
    TokenEvent event;
    event.cached_tokens = cached;
    const bool at_end = i == said.size();
    event.token = at_end ? kEndToken : static_cast<unsigned char>(said[i]);
    if (at_end && finish == FinishReason::kLength) event.token = -1;
    if (at_end) event.finish = finish;
    writer.note(event);
    const ChoiceDelta delta = choice.advance(event);
    if (request.form.stream)
      writer.chunk(0, delta, out.choices, delta.finish != FinishReason::kNone, out.text);
    else
      writer.add(0, delta);
  }
  if (request.form.stream) {
    writer.end(out.choices, out.text);
  } else {
    for (const std::string& piece : writer.whole(out.choices).take()) out.text += piece;
  }
  return out;
}

}  // namespace llmrt::server
