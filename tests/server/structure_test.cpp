// What clients ask of an answer's structure, and what they see of an answer that has one: every name for it, tools and
// their choice, the grammar that follows, thoughts and calls in whole answers and in streams, stops in content alone.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cctype>
#include <string>
#include <vector>

#include "server/api_answer.h"
#include "server/api_request.h"
#include "server/structure_source.h"
#include "tests/server/letter_model.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

ServedModel structured_model(const char* format = "hermes", std::string source = "{{ messages[-1].content }}") {
  ServedModel model = letter_model();
  auto compiled = ChatTemplate::compile(std::move(source));
  REQUIRE(compiled.ok());
  model.chat_template = std::move(*compiled);
  const auto found = find_chat_format(format);
  REQUIRE(found.ok());
  model.chat_format = std::make_shared<const ResolvedFormat>(resolve_format(**found, marker_tokens(*model.tokenizer)));
  model.grammars = std::make_shared<GrammarCompiler>(TokenVocabulary::create(*model.tokenizer));
  return model;
}

json::object object_of(std::string_view text) {
  return json::parse(text).as_object();
}

using Parsed = ApiResult<ApiRequest>;
Parsed parse(const ServedModel& model, std::string_view rest, const char* content = "hi") {
  return parse_chat(object_of(fmt::format(R"({{"messages": [{{"role": "user", "content": "{}"}}]{}}})", content, rest)),
                    model, 1);
}
const AnswerStructure& structure_of(const Parsed& parsed) {
  if (const auto* error = std::get_if<ApiError>(&parsed)) FAIL(error->message);
  return *std::get<ApiRequest>(parsed).form.structure;
}
ApiError error_of(const Parsed& parsed) {
  REQUIRE(std::holds_alternative<ApiError>(parsed));
  return std::get<ApiError>(parsed);
}

constexpr const char* kTools =
    R"("tools": [{"type": "function", "function": {"name": "w", "parameters": {"type": "object",
       "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": false}}},
       {"type": "function", "function": {"name": "f"}}])";

TEST_CASE("every name for a structure is read, and only one may be there") {
  const ServedModel model = structured_model();
  using Dialect = GrammarSource::Dialect;
  const std::pair<const char*, Dialect> rows[] = {
      {R"("response_format": {"type": "json_object"})", Dialect::kJsonObject},
      {R"("response_format": {"type": "json_object", "schema": {"type": "string"}})", Dialect::kJsonSchema},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}})",
       Dialect::kJsonSchema},
      {R"("structured_outputs": {"json": {"type": "null"}})", Dialect::kJsonSchema},
      {R"("structured_outputs": {"json": "{\"type\": \"null\"}"})", Dialect::kJsonSchema},
      {R"("structured_outputs": {"regex": "a+"})", Dialect::kRegex},
      {R"("structured_outputs": {"choice": ["a", "b"]})", Dialect::kChoice},
      {R"("structured_outputs": {"grammar": "root ::= \"a\""})", Dialect::kGbnf},
      {R"("structured_outputs": {"grammar": "start: \"a\""})", Dialect::kLark},
      {R"("structured_outputs": {"json_object": true})", Dialect::kJsonObject},
      {R"("guided_json": {})", Dialect::kJsonSchema},
      {R"("guided_regex": "a")", Dialect::kRegex},
      {R"("guided_choice": ["a"])", Dialect::kChoice},
      {R"("guided_grammar": "root ::= \"a\"")", Dialect::kGbnf},
      {R"("grammar": "root ::= \"a\"")", Dialect::kGbnf},
      {R"("json_schema": {"type": "object"})", Dialect::kJsonSchema},
  };
  for (const auto& [field, dialect] : rows) {
    CAPTURE(field);
    const Parsed parsed = parse(model, fmt::format(", {}", field));
    const AnswerStructure& structure = structure_of(parsed);
    REQUIRE(structure.content);
    CHECK(structure.content->dialect == dialect);
    CHECK(structure.is_constrained());
    CHECK(model.grammars->compile(grammar_job(std::get<ApiRequest>(parsed).form.structure, model, true, "")).ok());
  }
  CHECK_FALSE(structure_of(parse(model, R"(, "response_format": {"type": "text"}, "grammar": "")")).is_constrained());
  for (const char* wrong :
       {R"("response_format": {"type": "xml"})", R"("response_format": {"type": "json_schema"})",
        R"("response_format": {"type": "json_schema", "json_schema": {"schema": 5}})", R"("structured_outputs": {})",
        R"("structured_outputs": {"structural_tag": "x"})", R"("structured_outputs": {"json": {}, "regex": "a"})",
        R"("guided_choice": [])", R"("guided_choice": [5])", R"("guided_json": "{")",
        R"("guided_json": {}, "guided_regex": "a")", R"("guided_json": {}, "min_tokens": 2)",
        R"("guided_json": {}, "ignore_eos": true)"}) {
    CAPTURE(wrong);
    CHECK(error_of(parse(model, fmt::format(", {}", wrong))).status == 400);
  }
}

TEST_CASE("what cannot be compiled is a 400 that names field, place and keyword") {
  const ServedModel model = structured_model();
  const Parsed parsed = parse(model, R"x(, "response_format": {"type": "json_schema", "json_schema": {"schema":
      {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=b)"}}}}})x");
  const AnswerStructure& structure = structure_of(parsed);
  const auto asked = std::get<ApiRequest>(parsed).form.structure;
  const auto answer = model.grammars->compile(grammar_job(asked, model, true, ""));
  REQUIRE_FALSE(answer.ok());
  const ApiError error = structure_error(structure, answer.error());
  CHECK(error.status == 400);
  CHECK(error.code == "unsupported_schema");
  CHECK(error.param == "response_format");
  CHECK(error.message.find("/properties/a/pattern") != std::string::npos);
}

TEST_CASE("tool_choice says which calls may come, and whether they must") {
  const ServedModel model = structured_model();
  using Choice = AnswerStructure::Choice;
  const auto with = [&](std::string rest) { return structure_of(parse(model, fmt::format(", {}{}", kTools, rest))); };
  CHECK(with("").choice == Choice::kAuto);
  CHECK_FALSE(with("").is_constrained());
  CHECK(with(R"(, "parallel_tool_calls": false)").is_constrained());
  CHECK(with(R"(, "tool_choice": "none")").choice == Choice::kNone);
  CHECK(with(R"(, "tool_choice": "none")").is_constrained());  // it must not call what it is told of
  CHECK(with(R"(, "tool_choice": "required")").choice == Choice::kRequired);
  const AnswerStructure named = with(R"(, "tool_choice": {"type": "function", "function": {"name": "f"}})");
  CHECK(named.choice == Choice::kNamed);
  CHECK(named.allowed == std::vector<std::string>{"f"});
  const AnswerStructure allowed =
      with(R"(, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required",
      "tools": [{"type": "function", "function": {"name": "w"}}]}})");
  CHECK(allowed.choice == Choice::kRequired);
  CHECK_FALSE(allowed.may_call("f"));
  CHECK(with("").key() != with(R"(, "tool_choice": "required")").key());
  CHECK(structure_of(parse(model, R"(, "tools": [], "tool_choice": "auto")")).choice == Choice::kNone);
  for (const char* wrong : {R"({"type": "function", "function": {"name": "g"}})", R"({"type": "function"})", R"(5)",
                            R"({"type": "allowed_tools", "allowed_tools": {"mode": "never", "tools": []}})"}) {
    CHECK(error_of(parse(model, fmt::format(R"(, {}, "tool_choice": {})", kTools, wrong))).param == "tool_choice");
  }
}

// Feeds text as tokens, one a byte.
struct Reading {
  explicit Reading(const ServedModel& served, const std::string& rest)
      : model(served), parsed(parse(model, rest)), request(std::get<ApiRequest>(parsed)) {
    choices.emplace_back(&model, request.form, request.prompts[0]);
    streamer = make_chat_writer(model, request.form, {"id", 1});
    drafter = make_chat_writer(model, request.form, {"id", 1});
  }
  ChoiceDelta feed(std::string_view text, FinishReason finish = FinishReason::kEos) {
    ChoiceDelta all;
    for (size_t i = 0; i <= text.size(); ++i) {
      TokenEvent event;
      event.token = i < text.size() ? static_cast<unsigned char>(text[i]) : kEndToken;
      if (i == text.size()) event.finish = finish;
      if (i == text.size() && finish == FinishReason::kLength) event.token = -1;
      ChoiceDelta delta = choices[0].advance(event);
      streamer->chunk(0, delta, choices, /*is_last=*/false, stream);
      drafter->add(0, delta);
      all.append(std::move(delta));
      if (choices[0].finished()) break;
    }
    return all;
  }
  json::object whole() {
    TextPieces body = drafter->whole(choices);
    std::string text;
    for (const std::string& piece : body.take()) text += piece;
    return json::parse(text).as_object();
  }
  // What a client adds up from the stream.
  json::object added() const {
    std::string content, thought;
    json::array calls;
    for (size_t at = 0; (at = stream.find("data: ", at)) != std::string::npos;) {
      at += 6;
      const json::object chunk =
          json::parse(std::string_view(stream).substr(at, stream.find("\n\n", at) - at)).as_object();
      const json::object& delta = chunk.at("choices").as_array()[0].as_object().at("delta").as_object();
      if (const auto* text = delta.if_contains("content")) content += text->as_string();
      if (const auto* text = delta.if_contains("reasoning_content")) thought += text->as_string();
      const auto* list = delta.if_contains("tool_calls");
      if (list == nullptr) continue;
      const json::object& call = list->as_array().at(0).as_object();
      const size_t index = call.at("index").to_number<size_t>();
      if (call.contains("id")) {
        CHECK(index == calls.size());
        calls.push_back({{"name", call.at("function").at("name")}, {"arguments", ""}});
      }
      json::value& arguments = calls.at(index).at("arguments");
      arguments = std::string(arguments.as_string()) + std::string(call.at("function").at("arguments").as_string());
    }
    return {{"content", content}, {"thought", thought}, {"calls", calls}};
  }
  const ServedModel model;
  const Parsed parsed;
  const ApiRequest request;
  std::vector<Choice> choices;
  std::unique_ptr<AnswerWriter> streamer, drafter;
  std::string stream;
};

constexpr const char* kCall = "<tool_call>\n{\"name\": \"w\", \"arguments\": {\"city\": \"R\\u00f6m\"}}\n</tool_call>";

TEST_CASE("thoughts, content and calls are told apart, whole and in a stream") {
  Reading reading(structured_model(), fmt::format(", {}", kTools));
  reading.feed(fmt::format("<think>\nplan\n</think>\n\nI look.\n{}\n{}", kCall, kCall));
  const json::object answer = reading.whole();
  const json::object& choice = answer.at("choices").as_array()[0].as_object();
  const json::object& message = choice.at("message").as_object();
  CHECK(choice.at("finish_reason") == "tool_calls");
  CHECK(message.at("content") == "I look.");
  CHECK(message.at("reasoning_content") == "plan");
  const json::array& calls = message.at("tool_calls").as_array();
  REQUIRE(calls.size() == 2);
  CHECK(calls[0].at("id") != calls[1].at("id"));
  CHECK(calls[0].at("type") == "function");
  CHECK(calls[0].at("function").at("name") == "w");
  CHECK(calls[0].at("function").at("arguments") == R"({"city": "R\u00f6m"})");
  CHECK(answer.at("usage").at("completion_tokens_details").at("reasoning_tokens").to_number<int>() > 4);
  const json::object added = reading.added();
  CHECK(added.at("content") == "I look.");
  CHECK(added.at("thought") == "plan");
  CHECK(added.at("calls").as_array().size() == 2);
  CHECK(added.at("calls").as_array()[1].at("arguments") == R"({"city": "R\u00f6m"})");
  CHECK(reading.stream.find("\"finish_reason\":\"tool_calls\"") != std::string::npos);
}

TEST_CASE("an answer of calls alone has null content; a named call ends in stop, a cut one in length") {
  Reading calls(structured_model(), fmt::format(", {}", kTools));
  calls.feed(kCall);
  const json::value message = calls.whole().at("choices").as_array()[0].at("message");
  CHECK(message.at("content").is_null());
  CHECK_FALSE(message.as_object().contains("reasoning_content"));
  Reading named(structured_model(),
                fmt::format(R"(, {}, "tool_choice": {{"type": "function", "function": {{"name": "w"}}}})", kTools));
  named.feed(kCall, FinishReason::kGrammarEnd);
  CHECK(named.whole().at("choices").as_array()[0].at("finish_reason") == "stop");
  Reading cut(structured_model(), fmt::format(", {}", kTools));
  cut.feed(std::string_view(kCall).substr(0, 50), FinishReason::kLength);
  const json::value choice = cut.whole().at("choices").as_array()[0];
  CHECK(choice.at("finish_reason") == "length");
  CHECK(choice.at("message").at("tool_calls").as_array().size() == 1);
}

TEST_CASE("what is no call is content, whole, and so is all where calls are not read") {
  const std::string broken = "<tool_call>\nnot json\n</tool_call> bye";
  Reading reading(structured_model(), fmt::format(", {}", kTools));
  reading.feed(broken);
  const json::value choice = reading.whole().at("choices").as_array()[0];
  CHECK(choice.at("message").at("content").as_string() == broken);
  CHECK(choice.at("finish_reason") == "stop");
  ServedModel plain = structured_model("plain");
  Reading text(plain, "");
  text.feed("<think>a</think>b");
  CHECK(text.whole().at("choices").as_array()[0].at("message").at("content") == "<think>a</think>b");
}

TEST_CASE("stop strings are looked for in content alone") {
  Reading reading(structured_model(), fmt::format(R"(, {}, "stop": ["Stop:"])", kTools));
  CHECK(reading.request.prompts[0].request.stop.strings.empty());
  const ChoiceDelta delta = reading.feed("<think>\nStop: no\n</think>\n\nSome Sto. Stop: gone");
  CHECK(delta.finish == FinishReason::kStopString);
  CHECK(reading.choices[0].ends_early());
  CHECK(reading.added().at("thought") == "Stop: no");
  CHECK(reading.added().at("content") == "Some Sto. ");
}

TEST_CASE("custom tools are functions of one string to the model, and bare text to the client") {
  const std::string tools = R"(, "tools": [{"type": "custom", "custom": {"name": "sh", "format": {"type": "grammar",
      "grammar": {"syntax": "regex", "definition": "ls( -l)?"}}}}], "tool_choice": "required")";
  Reading reading(structured_model(), tools);
  const AnswerStructure& structure = *reading.request.form.structure;
  CHECK(structure.tools[0].parameters.at("properties").at("input").at("pattern") == "^(?:ls( -l)?)$");
  CHECK(reading.model.grammars->compile(grammar_job(reading.request.form.structure, reading.model, true, "")).ok());
  reading.feed("<tool_call>\n{\"name\": \"sh\", \"arguments\": {\"input\": \"ls -l\"}}\n</tool_call>");
  const json::value call = reading.whole().at("choices").as_array()[0].at("message").at("tool_calls").as_array()[0];
  CHECK(call.at("type") == "custom");
  CHECK(call.at("custom").at("name") == "sh");
  CHECK(call.at("custom").at("input") == "ls -l");
}

// All that the grammar of a request takes: its texts, with tokens as bytes.
bool takes(const ServedModel& model, const std::string& rest, std::string_view text) {
  const Parsed parsed = parse(model, rest);
  const auto grammar =
      model.grammars->compile(grammar_job(std::get<ApiRequest>(parsed).form.structure, model, true, ""));
  if (!grammar.ok()) FAIL(grammar.error().message);
  const auto matcher = (*grammar)->start();
  for (const char c : text) {
    if (!matcher->advance(static_cast<unsigned char>(c))) return false;
  }
  return matcher->accepts();
}

std::string lark_tool(std::string_view definition) {
  return fmt::format(R"(, "tools": [{{"type": "custom", "custom": {{"name": "sh", "format": {{"type": "grammar",
      "grammar": {{"syntax": "lark", "definition": {}}}}}}}}}], "tool_choice": "required")",
                     json::serialize(json::string(definition)));
}

TEST_CASE("a custom tool's Lark grammar holds for the text behind the escapes of its JSON string") {
  const ServedModel model = structured_model();
  const std::string tool = lark_tool(
      "start: \"say \" value (NL value)*\nvalue: STRING | \"(\" value \")\"\n"
      "STRING: /\"[^\"\\n]*\"/\nNL: \"\\n\"\n%ignore /\\t/");
  const auto call = [](std::string_view input) {
    return fmt::format("<tool_call>\n{{\"name\": \"sh\", \"arguments\": {{\"input\": \"{}\"}}}}\n</tool_call>", input);
  };
  CHECK(takes(model, tool, call(R"(say \"a\")")));
  CHECK(takes(model, tool, call(R"(say ((\"a\\b\")))")));
  CHECK(takes(model, tool, call(R"(say \"a\"\n(\"\u0001\t\"))")));
  CHECK(takes(model, tool, call(R"(say \t\"ä\"\t)")));
  CHECK_FALSE(takes(model, tool, call(R"(say "a")")));
  CHECK_FALSE(takes(model, tool, call(R"(say \"a)")));
  CHECK_FALSE(takes(model, tool, call(R"(say (\"a\")")));
  CHECK_FALSE(takes(model, tool, call(R"(say \"a\n\")")));
  CHECK_FALSE(takes(model, tool, call(R"(say \"\u0009\")")));  // one spelling of each character
  CHECK_FALSE(takes(model, tool, call("say \\\"\n\\\"")));
  Reading reading(model, tool);
  const std::string source = structure_source(*reading.request.form.structure, model, true);
  const auto again = make_constraint(source, model);
  if (!again.ok()) FAIL(again.error().message);
  for (const bool is_right : {true, false}) {
    const auto matcher = (*again)->start();
    bool is_taken = true;
    for (const char c : call(is_right ? R"(say \"a\")" : "say a"))
      is_taken = is_taken && matcher->advance(static_cast<unsigned char>(c));
    CHECK(is_taken == is_right);
  }
  CHECK(reading.request.form.structure->tools[0]
            .parameters.at("properties")
            .at("input")
            .at("description")
            .as_string()
            .starts_with("A text of this Lark grammar:\nstart: "));
  reading.feed(call(R"(say \"a\"\n(\"b\"))"));
  const json::value made = reading.whole().at("choices").as_array()[0].at("message").at("tool_calls").as_array()[0];
  CHECK(made.at("custom").at("input") == "say \"a\"\n(\"b\")");
}

TEST_CASE("a Lark grammar stands in every notation whose marks it cannot write, and is refused in others") {
  const std::string tool = lark_tool("start: \"a\" start | \"b\"");
  const auto compiled = [&](const char* format, const std::string& rest) {
    ServedModel model = structured_model(format);
    std::vector<std::string> marks = model.chat_format->format->tokens;
    model.tokenizer = std::make_shared<LetterTokenizer>(marks);
    model.vocab_size = static_cast<uint32_t>(model.tokenizer->vocab_size());
    model.chat_format = std::make_shared<const ResolvedFormat>(
        resolve_format(*model.chat_format->format, marker_tokens(*model.tokenizer)));
    model.grammars = std::make_shared<GrammarCompiler>(TokenVocabulary::create(*model.tokenizer));
    const Parsed parsed = parse(model, rest);
    const AnswerStructure& structure = structure_of(parsed);
    const auto answer =
        model.grammars->compile(grammar_job(std::get<ApiRequest>(parsed).form.structure, model, true, ""));
    return answer.ok() ? std::string() : structure_error(structure, answer.error()).message;
  };
  for (const char* format : {"hermes", "llama3", "mistral-v11", "mistral-old", "harmony", "kimi-k2", "deepseek-v3.1",
                             "llama4-pythonic", "lfm2", "gemma4", "functiongemma", "glm-4.5", "deepseek-dsml"}) {
    CAPTURE(format);
    CHECK(compiled(format, tool).empty());
  }
  for (const char* format : {"qwen-xml", "minimax-m2"}) {
    CHECK(compiled(format, tool).find("expected syntax regex") != std::string::npos);
  }
  CHECK(compiled("hermes", lark_tool("start: \"a")).starts_with("tools: tool sh: format: Lark"));
  CHECK(compiled("hermes", lark_tool("start: <[256]>")).find("special token") != std::string::npos);
}

TEST_CASE("keywords that no draft knows are told, also where the grammar was there already") {
  const ServedModel model = structured_model();
  const std::string rest = R"(, "tools": [{"type": "function", "function": {"name": "f", "strict": true, "parameters":
      {"type": "object", "properties": {"a": {"type": "integer", "nullable": true}}}}}],
      "guided_json": {"type": "string", "x-show": 1, "title": "t"})";
  for (int i = 0; i < 2; ++i) {
    Reading reading(model, rest);
    const AnswerStructure& structure = *reading.request.form.structure;
    const auto grammar = model.grammars->compile(*reading.request.grammar);
    REQUIRE(grammar.ok());
    AnswerForm form = reading.request.form;
    form.warnings = structure_warnings(structure, **grammar);
    REQUIRE(form.warnings.size() == 2);
    CHECK(form.warnings[0].param == "guided_json");
    CHECK(form.warnings[0].message.find("x-show") != std::string::npos);
    CHECK(form.warnings[1].param == "tools[0].function.parameters");
    CHECK(form.warnings[1].message.find("/properties/a: nullable") != std::string::npos);
    std::vector<Choice> choices;
    choices.emplace_back(&model, form, reading.request.prompts[0]);
    TokenEvent event;
    event.token = kEndToken;
    event.finish = FinishReason::kEos;
    const ChoiceDelta delta = choices[0].advance(event);
    const auto writer = make_chat_writer(model, form, {"id", 1});
    writer->add(0, delta);
    std::string whole, first, last, other;
    TextPieces body = writer->whole(choices);
    for (const std::string& piece : body.take()) whole += piece;
    CHECK(json::parse(whole).at("warnings").as_array()[1].at("param") == "tools[0].function.parameters");
    writer->chunk(0, ChoiceDelta(), choices, /*is_last=*/false, first);
    writer->chunk(0, delta, choices, /*is_last=*/true, last);
    CHECK(json::parse(std::string_view(last).substr(6)).at("warnings").as_array().size() == 2);
    writer->chunk(0, delta, choices, /*is_last=*/false, other);
    CHECK_FALSE(json::parse(std::string_view(other).substr(6)).as_object().contains("warnings"));
  }
  CHECK(model.grammars->figures().num_compiled == 1);
  CHECK(model.grammars->figures().num_cached == 1);
}

TEST_CASE("ids of calls are as the format's template takes them, and the same in calls and results") {
  const std::string show =
      "{% for m in messages %}{{ m.role }}{% for c in m.tool_calls or [] %}({{ c.id }}){% endfor %}"
      "{{ '[' ~ m.tool_call_id ~ ']' if m.tool_call_id else '' }};{% endfor %}";
  const auto prompt = [&](const char* format) {
    const ServedModel model = structured_model(format, show);
    const Parsed parsed = parse_chat(object_of(R"({"messages": [{"role": "user", "content": "a"},
        {"role": "assistant", "content": null, "tool_calls": [
          {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
          {"id": "abcDEF123", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "abcDEF123", "content": "x"},
        {"role": "tool", "tool_call_id": "call_1", "content": "y"}]})"),
                                     model, 1);
    if (const auto* error = std::get_if<ApiError>(&parsed)) FAIL(error->message);
    return model.tokenizer->decode(std::get<ApiRequest>(parsed).prompts[0].request.prompt, true);
  };
  CHECK(prompt("hermes") == "user;assistant(call_1)(abcDEF123);tool[abcDEF123];tool[call_1];");
  const std::string mapped = prompt("mistral-v11");
  const std::string id = mapped.substr(mapped.find('(') + 1, 9);
  CHECK(std::ranges::all_of(id, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }));
  CHECK(mapped == fmt::format("user;assistant({0})(abcDEF123);tool[abcDEF123];tool[{0}];", id));
  CHECK(prompt("mistral-old") == mapped);
  Reading made(structured_model("mistral-old"), fmt::format(", {}", kTools));
  made.feed(R"([TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "f", "arguments": {}}])");
  const json::value message = made.whole().at("choices").as_array()[0].at("message");
  const json::array& calls = message.at("tool_calls").as_array();
  REQUIRE(calls.size() == 2);
  CHECK(calls[0].at("id").as_string().size() == 9);
  CHECK(calls[0].at("id") != calls[1].at("id"));
}

TEST_CASE("an answer may go on with the last message, and documents reach the template") {
  const ServedModel model = structured_model("hermes",
                                             "{% for m in messages %}[{{ m.role }}]{{ m.content }}<|end|>{% endfor %}"
                                             "{% if add_generation_prompt %}[assistant]{% endif %}");
  const auto prompt = [&](std::string_view body) {
    const Parsed parsed = parse_chat(object_of(body), model, 1);
    if (const auto* error = std::get_if<ApiError>(&parsed)) return error->param + ": " + error->message;
    return model.tokenizer->decode(std::get<ApiRequest>(parsed).prompts[0].request.prompt, true);
  };
  CHECK(prompt(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": " It is "}],
      "continue_final_message": true})") == "[user]a<|end|>[assistant] It is");
  CHECK(prompt(R"({"messages": [{"role": "user", "content": "a"}], "continue_final_message": true})")
            .starts_with("continue_final_message: "));
  CHECK(prompt(R"({"messages": [{"role": "assistant", "content": "a"}], "continue_final_message": true,
      "add_generation_prompt": true})")
            .starts_with("continue_final_message: "));
  const ServedModel shows = structured_model("hermes", "{% for d in documents %}{{ d.text }};{% endfor %}");
  const Parsed parsed = parse(shows, R"(, "documents": [{"text": "one"}, {"text": "two"}])");
  CHECK(shows.tokenizer->decode(std::get<ApiRequest>(parsed).prompts[0].request.prompt, true) == "one;two;");
  CHECK(error_of(parse(shows, R"(, "documents": [5])")).param == "documents");
}

}  // namespace
}  // namespace llmrt::server
