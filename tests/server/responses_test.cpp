// /v1/responses: what agents send becomes a chat's prompt, errors come back under the client's names, and answers are
// items, whole and as events in the order that OpenAI's clients and Codex need.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>
#include <vector>

#include "server/chat_messages.h"
#include "server/responses_answer.h"
#include "server/responses_request.h"
#include "server/sealed_thought.h"
#include "tests/server/letter_model.h"
#include "tests/server/running.h"

namespace llmrt::server {
namespace {

// Shows all that reaches a template.
constexpr const char* kShowAll =
    "{% for t in tools or [] %}[{{ t.function.name }}|{{ t.function.description or '' }}]{% endfor %}"
    "{% for m in messages %}<{{ m.role }}{{ ' ' ~ m.name if m.name }}{{ ' #' ~ m.tool_call_id if m.tool_call_id }}>"
    "{{ '(' ~ m.reasoning_content ~ ')' if m.reasoning_content }}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}@{{ c.function.name }}#{{ c.id }}{{ c.function.arguments | tojson }}{% endfor %}"
    "{% endfor %}";

ServedModel agent_model(uint32_t context_max = 8192) {
  ServedModel model = letter_model(context_max);
  auto compiled = ChatTemplate::compile(kShowAll);
  REQUIRE(compiled.ok());
  model.chat_template = std::move(*compiled);
  const auto found = find_chat_format("hermes");
  REQUIRE(found.ok());
  model.chat_format = std::make_shared<const ResolvedFormat>(resolve_format(**found, marker_tokens(*model.tokenizer)));
  model.grammars = std::make_shared<GrammarCompiler>(TokenVocabulary::create(*model.tokenizer));
  return model;
}

using Parsed = ApiResult<ApiRequest>;
Parsed parse_body(const ServedModel& model, std::string_view text, bool strict = false) {
  return parse_responses(json::parse(text).as_object(), model, {.random_seed = 1, .strict_fields = strict});
}
const ApiRequest& accepted(const Parsed& parsed) {
  if (const auto* error = std::get_if<ApiError>(&parsed)) FAIL(error->param + " / " + error->message);
  return std::get<ApiRequest>(parsed);
}
std::string prompt_of(const ServedModel& model, const Parsed& parsed) {
  return model.tokenizer->decode(accepted(parsed).prompts[0].request.prompt, true);
}
std::string ignored_of(const Parsed& parsed) {
  std::string all;
  for (const auto& [name, value] : accepted(parsed).headers)
    if (name == "x-llmrt-ignored") all += value;
  return all;
}

// What Codex sends, by its public shapes: all kinds of tools, a history without ids of items, outputs as parts.
constexpr const char* kCodex = R"({"model": "letters", "instructions": "Be brief.", "store": false, "stream": true,
  "tool_choice": "auto", "parallel_tool_calls": true, "prompt_cache_key": "0198-af", "service_tier": "auto",
  "reasoning": {"effort": "medium", "summary": "auto"}, "include": ["reasoning.encrypted_content"],
  "text": {"verbosity": "low"}, "client_metadata": {"a": "b"},
  "tools": [
    {"type": "function", "name": "shell", "description": "Runs.", "strict": false,
     "parameters": {"type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}}}},
    {"type": "custom", "name": "apply_patch", "description": "Edits.",
     "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"*** Begin Patch\\n\" /[a-z]+/ \"\\n\""}},
    {"type": "web_search", "external_web_access": true, "search_content_types": ["text"]},
    {"type": "image_generation"}, {"type": "local_shell"},
    {"type": "namespace", "name": "mcp", "description": "A server.", "tools": [
      {"type": "function", "name": "look", "description": "Looks.", "parameters": {"type": "object"}},
      {"type": "custom", "name": "note"}, {"type": "mcp", "name": "x"}]}],
  "input": [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Sandboxed."}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "one"},
                                                    {"type": "input_text", "text": "two"}]},
    {"type": "reasoning", "summary": [], "encrypted_content": "SEALED"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "gAAAAfromelsewhere"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
    {"type": "function_call", "name": "shell", "arguments": "{\"command\": [\"ls\"]}", "call_id": "call_1"},
    {"type": "function_call", "name": "look", "namespace": "mcp", "arguments": "{}", "call_id": "call_2"},
    {"type": "custom_tool_call", "name": "apply_patch", "input": "*** x", "call_id": "call_3", "status": "completed"},
    {"type": "function_call_output", "call_id": "call_1", "output": "a.txt"},
    {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "seen"},
        {"type": "input_image", "image_url": "data:,"}]},
    {"type": "custom_tool_call_output", "call_id": "call_3", "output": "done"},
    {"type": "web_search_call", "status": "completed", "action": {"type": "search"}},
    {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "open"}], "summary": []},
    {"role": "assistant", "content": "Good."},
    {"role": "user", "content": "Go on."}]})";

std::string codex_body() {
  std::string body = kCodex;
  body.replace(body.find("SEALED"), 6, seal_thought("deep"));
  return body;
}

TEST_CASE("an agent's request becomes one prompt, and its turns are one message each") {
  const ServedModel model = agent_model();
  const Parsed parsed = parse_body(model, codex_body());
  CHECK(prompt_of(model, parsed) ==
        "[shell|Runs.][apply_patch|Edits.][mcp__look|mcp: A server.\n\nLooks.][mcp__note|]"
        "<system>Be brief.\n\nSandboxed.<user>one\ntwo"
        "<assistant>(deep)I look.@shell#call_1{\"command\": [\"ls\"]}@mcp__look#call_2{}"
        "@apply_patch#call_3{\"input\": \"*** x\"}"
        "<tool shell #call_1>a.txt<tool mcp__look #call_2>seen<tool apply_patch #call_3>done"
        "<assistant>(open)Good.<user>Go on.");
  CHECK(ignored_of(parsed) ==
        "input.web_search_call, tools.web_search, tools.image_generation, tools.local_shell, "
        "tools.namespace.mcp, tool_content.input_image, client_metadata");
  const ApiRequest& request = accepted(parsed);
  CHECK(request.form.stream);
  CHECK(request.prompts.size() == 1);
  CHECK(request.form.structure->choice == AnswerStructure::Choice::kAuto);
  CHECK(request.grammar);  // of the custom tools
  CHECK(static_cast<const ResponsesForm&>(*request.form.own).seals_thoughts);
  const json::object echo =
      json::parse("{" + static_cast<const ResponsesForm&>(*request.form.own).echo + "}").as_object();
  CHECK(echo.at("store") == false);
  CHECK(echo.at("instructions") == "Be brief.");
  CHECK(echo.at("tools").as_array().size() == 6);
  CHECK(echo.at("reasoning").at("effort") == "medium");
  CHECK(echo.at("text").at("verbosity") == "low");
}

TEST_CASE("other shapes of input") {
  const ServedModel model = agent_model();
  const std::pair<const char*, const char*> rows[] = {
      {R"({"input": "hi"})", "<user>hi"},
      {R"({"input": "", "max_output_tokens": 1})", "<user>"},
      {R"({"input": []})", "<user>"},
      {R"({"input": "hi", "instructions": ""})", "<user>hi"},
      {R"({"input": "hi", "store": true, "background": false, "previous_response_id": null, "truncation": "disabled",
          "metadata": {"a": "b"}, "max_tool_calls": 3, "user": "u", "stream_options": {"include_obfuscation": false}})",
       "<user>hi"},
      {R"({"input": [{"role": "user", "content": "a"}, {"role": "system", "content": "s"},
          {"role": "user", "content": [{"type": "input_text", "text": "b"}]}]})",
       "<user>a<user><system-reminder>\ns\n</system-reminder><user>b"},
      {R"({"input": [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
          {"type": "reasoning", "summary": [], "content": null}]})",
       "<assistant>no"},
      {R"({"input": [{"type": "reasoning", "content": [{"text": "x"}, {"text": "y"}]},
          {"type": "function_call", "call_id": "1", "name": "f", "arguments": ""}]})",
       "<assistant>(x\ny)@f#1{}"},
      {R"({"input": [{"type": "function_call_output", "call_id": "9", "output": "alone"}]})", "<tool #9>alone"},
  };
  for (const auto& [body, prompt] : rows) {
    CAPTURE(body);
    const Parsed parsed = parse_body(model, body);
    CHECK(prompt_of(model, parsed) == prompt);
    CHECK(ignored_of(parsed).empty());
  }
  ServedModel inline_system = agent_model();
  inline_system.shows_inline_system = true;
  const char* middle = R"({"instructions": "i", "input": [{"role": "user", "content": "a"},
      {"role": "developer", "content": "s"}]})";
  CHECK(prompt_of(inline_system, parse_body(inline_system, middle)) == "<system>i<user>a<system>s");
  CHECK(prompt_of(model, parse_body(model, middle)) ==
        "<system>i<user>a<user><system-reminder>\ns\n</system-reminder>");
  CHECK(ignored_of(parse_body(model, R"({"input": "a", "truncation": "auto", "include": ["x.y"], "foo": 1})")) ==
        "include.x.y, truncation, foo");
}

TEST_CASE("fields of a response are those of a chat under other names") {
  const ServedModel model = agent_model();
  const Parsed parsed = parse_body(model, R"({"input": "a", "max_output_tokens": 7, "temperature": 0.5, "top_p": 0.25,
      "text": {"format": {"type": "json_schema", "name": "n", "strict": true, "schema": {"type": "integer"}}},
      "include": ["message.output_text.logprobs"], "top_logprobs": 3, "seed": 4, "stop": ["x"]})");
  const ApiRequest& request = accepted(parsed);
  CHECK(request.prompts[0].request.max_tokens == 7);
  CHECK(request.prompts[0].request.sampling.seed == 4);
  CHECK(request.form.logprobs == 3);
  CHECK(request.form.structure->content_field == "text.format");
  CHECK(request.grammar);
  const Parsed chosen = parse_body(model, R"({"input": "a", "tools": [{"type": "function", "name": "f"},
      {"type": "namespace", "name": "n", "description": "", "tools": [{"type": "function", "name": "f"}]}],
      "tool_choice": {"type": "function", "namespace": "n", "name": "f"}})");
  CHECK(accepted(chosen).form.structure->allowed == std::vector<std::string>{"n__f"});
  const Parsed allowed = parse_body(model, R"({"input": "a", "tools": [{"type": "function", "name": "f"},
      {"type": "custom", "name": "c"}, {"type": "web_search"}], "tool_choice": {"type": "allowed_tools",
      "mode": "required", "tools": [{"type": "custom", "name": "c"}, {"type": "web_search"}]}})");
  CHECK(accepted(allowed).form.structure->allowed == std::vector<std::string>{"c"});
  CHECK(accepted(allowed).form.structure->choice == AnswerStructure::Choice::kRequired);
  CHECK(ignored_of(allowed) == "tools.web_search, tool_choice.tools");
}

TEST_CASE("what is wrong is told under the client's names") {
  struct Wrong {
    const char *body, *param, *code;
  };
  const Wrong rows[] = {
      {R"({})", "input", "invalid_argument"},
      {R"({"input": 5})", "input", "invalid_argument"},
      {R"({"input": "a", "previous_response_id": "resp_1"})", "previous_response_id", "unsupported"},
      {R"({"input": "a", "conversation": "c"})", "conversation", "unsupported"},
      {R"({"input": "a", "background": true})", "background", "unsupported"},
      {R"({"input": "a", "prompt": {"id": "p"}})", "prompt", "unsupported"},
      {R"({"input": "a", "n": 2})", "n", "invalid_argument"},
      {R"({"input": "a", "best_of": 2})", "best_of", "unsupported"},
      {R"({"input": "a", "messages": []})", "messages", "unsupported"},
      {R"({"input": "a", "max_tokens": 5})", "max_tokens", "unsupported"},
      {R"({"input": "a", "response_format": {"type": "text"}})", "response_format", "unsupported"},
      {R"({"input": "a", "max_output_tokens": 0})", "max_output_tokens", "invalid_argument"},
      {R"({"input": "a", "max_output_token": 5})", "max_output_token", "unknown_field"},
      {R"({"input": "a", "temperature": 200})", "temperature", "invalid_argument"},
      {R"({"input": "a", "model": "other"})", "model", "model_not_found"},
      {R"({"input": "a", "reasoning": 5})", "reasoning", "invalid_argument"},
      {R"({"input": "a", "reasoning": {"effort": 5}})", "reasoning.effort", "invalid_argument"},
      {R"({"input": "a", "text": {"format": {"type": "yaml"}}})", "text.format.type", "invalid_argument"},
      {R"({"input": "a", "text": {"format": {"type": "json_schema"}}})", "text.format", "invalid_argument"},
      {R"({"input": "a", "text": {"format": {"type": "json_schema", "schema": 5}}})", "text.format",
       "invalid_argument"},
      {R"({"input": "a", "include": [5]})", "include[0]", "invalid_argument"},
      {R"({"input": [5]})", "input[0]", "invalid_argument"},
      {R"({"input": [{"role": "user", "content": "a"}, {"type": "computer_call"}]})", "input[1].type", "unsupported"},
      {R"({"input": [{"type": "item_reference", "id": "msg_1"}]})", "input[0].type", "unsupported"},
      {R"({"input": [{"role": "tool", "content": "a"}]})", "input[0].role", "invalid_argument"},
      {R"({"input": [{"role": "user"}]})", "input[0].content", "invalid_argument"},
      {R"({"input": [{"role": "user", "content": 5}]})", "input[0].content", "invalid_argument"},
      {R"({"instructions": "s", "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"},
          {"type": "input_image", "image_url": "x"}]}]})",
       "input[0].content[1].type", "unsupported"},
      {R"({"input": [{"role": "assistant", "content": [{"type": "input_image"}]}]})", "input[0].content[0].type",
       "unsupported"},
      {R"({"input": [{"type": "function_call", "call_id": "1", "arguments": "{}"}]})", "input[0].name",
       "invalid_argument"},
      {R"({"input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": {}}]})", "input[0].arguments",
       "invalid_argument"},
      {R"({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]})", "input[0].call_id",
       "invalid_argument"},
      {R"({"input": [{"type": "function_call_output", "call_id": "1"}]})", "input[0].output", "invalid_argument"},
      {R"({"input": [{"role": "user", "content": "a"},
          {"type": "function_call_output", "call_id": "1", "output": [5]}]})",
       "input[1].output[0]", "invalid_argument"},
      {R"({"input": [{"type": "reasoning", "content": [5]}]})", "input[0].content[0]", "invalid_argument"},
      {R"({"input": "a", "tools": 5})", "tools", "invalid_argument"},
      {R"({"input": "a", "tools": [{"name": "f"}]})", "tools[0].type", "invalid_argument"},
      {R"({"input": "a", "tools": [{"type": "web_search"}, {"type": "function", "name": "a b"}]})", "tools[1].name",
       "invalid_argument"},
      {R"({"input": "a", "tools": [{"type": "function", "name": "f", "parameters": 5}]})", "tools[0].parameters",
       "invalid_argument"},
      {R"({"input": "a", "tools": [{"type": "custom", "name": "f", "format": {"type": "grammar", "syntax": "x",
          "definition": "a"}}]})",
       "tools[0].format.syntax", "unsupported"},
      {R"({"input": "a", "tools": [{"type": "function", "name": "n__f"}, {"type": "namespace", "name": "n",
          "tools": [{"type": "function", "name": "f"}]}]})",
       "tools[1].tools[0]", "invalid_argument"},
      {R"({"input": "a", "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"},
          {"type": "custom", "name": "f"}]}]})",
       "tools[0].tools[1].name", "invalid_argument"},
      {R"({"input": "a", "tools": [{"type": "namespace", "tools": []}]})", "tools[0].name", "invalid_argument"},
      {R"({"input": "a", "tool_choice": "required"})", "tool_choice", "invalid_argument"},
      {R"({"input": "a", "tools": [{"type": "web_search"}], "tool_choice": "required"})", "tool_choice",
       "invalid_argument"},
      {R"({"input": "a", "tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "web_search"}})",
       "tool_choice", "unsupported"},
      {R"({"input": "a", "tools": [{"type": "function", "name": "f"}],
          "tool_choice": {"type": "function", "name": "g"}})",
       "tool_choice", "invalid_argument"},
  };
  const ServedModel model = agent_model();
  for (const auto& [body, param, code] : rows) {
    CAPTURE(body);
    const Parsed parsed = parse_body(model, body);
    REQUIRE(std::holds_alternative<ApiError>(parsed));
    const ApiError& error = std::get<ApiError>(parsed);
    CHECK(error.param == param);
    CHECK(error.code == code);
    CHECK(error.message.starts_with(error.param + ":"));
    CHECK(error.status == (std::string_view(code) == "model_not_found" ? 404 : 400));
  }
  const ApiError long_one = std::get<ApiError>(parse_body(agent_model(64), codex_body()));
  CHECK(long_one.code == "context_length_exceeded");
  CHECK(long_one.param == "input");
  CHECK(long_one.message.find("maximum context length is") != std::string::npos);
  CHECK(std::get<ApiError>(parse_body(model, R"({"input": [{"role": "user", "content": "a", "x": 1}]})", true)).param ==
        "input[0].x");
  std::string many = R"({"input": [)";
  for (size_t i = 0; i <= kInputItemsMax; ++i) many += i == 0 ? "{}" : ",{}";
  CHECK(std::get<ApiError>(parse_body(model, many + "]}")).param == "input");
}

TEST_CASE("what a response repeats of its request is bounded") {
  const ServedModel model = agent_model(100000);
  const std::string text(kResponsesEchoBytesMax, 'x');
  const Parsed parsed = parse_body(model, fmt::format(R"({{"input": "a", "instructions": "{}"}})", text));
  const std::string& echo = static_cast<const ResponsesForm&>(*accepted(parsed).form.own).echo;
  CHECK(echo.size() < 1000);
  CHECK(json::parse("{" + echo + "}").at("instructions").is_null());
  CHECK_FALSE(json::parse("{" + echo + "}").as_object().contains("text"));
  std::string tools = R"({"input": "a", "tools": [{"type": "function", "name": "f", "parameters": {"enum": [)";
  for (size_t i = 0; i <= kTemplateValuesMax; ++i) tools += i == 0 ? "0" : ",0";
  CHECK(std::get<ApiError>(parse_body(model, tools + "]}}]}")).param == "tools");
}

TEST_CASE("sealed thoughts open here, and nothing else does") {
  for (const std::string& thought :
       {std::string(), std::string("a"), std::string("ab"), std::string("abc\n\u00e4"), std::string(100000, 'x')}) {
    const std::string sealed = seal_thought(thought);
    REQUIRE(open_thought(sealed));
    CHECK(*open_thought(sealed) == thought);
    for (const size_t at : {size_t{0}, size_t{3}, size_t{9}, sealed.size() - 2}) {
      std::string changed = sealed;
      changed[at] = changed[at] == 'A' ? 'B' : 'A';
      CHECK_FALSE(open_thought(changed));
    }
    CHECK_FALSE(open_thought(sealed.substr(0, 27)));
  }
  for (const char* foreign : {"", "A", "gAAAAABo", "AQ==", "\xff"}) CHECK_FALSE(open_thought(foreign));
}

// ---- answers -------------------------------------------------------------------------------------------------------

// An answer's text as tokens, one a byte, whole and as a stream.
struct Answering {
  explicit Answering(std::string_view body, const ServedModel& served = agent_model())
      : model(served), request(accepted(parse_body(model, body))) {
    choices.emplace_back(&model, request.form, request.prompts[0]);
    streamer = make_responses_writer(model, request.form, {"resp_1", 5});
    drafter = make_responses_writer(model, request.form, {"resp_1", 5});
  }
  void feed(std::string_view text, FinishReason finish = FinishReason::kEos) {
    for (size_t i = 0; i <= text.size(); ++i) {
      TokenEvent event;
      event.token = i < text.size() ? static_cast<unsigned char>(text[i]) : kEndToken;
      event.has_logprob = true;
      event.logprob = -1;
      if (i == text.size()) {
        event.finish = finish;
        event.cached_tokens = 2;
        if (finish != FinishReason::kEos) event.token = -1;
      }
      const ChoiceDelta delta = choices[0].advance(event);
      streamer->chunk(0, delta, choices, i == text.size(), stream);
      drafter->add(0, delta);
    }
    streamer->end(choices, stream);
  }
  json::object whole() {
    std::string text;
    for (const std::string& piece : drafter->whole(choices).take()) text += piece;
    return json::parse(text).as_object();
  }
  // Each event is told twice, in its line and in its data, and numbered.
  std::vector<json::object> events() const {
    std::vector<json::object> all;
    for (size_t at = 0; at < stream.size();) {
      const size_t line = stream.find('\n', at), end = stream.find("\n\n", at);
      REQUIRE(end != std::string::npos);
      REQUIRE(stream.compare(line, 7, "\ndata: ") == 0);
      all.push_back(json::parse(std::string_view(stream).substr(line + 7, end - line - 7)).as_object());
      CHECK("event: " + std::string(all.back().at("type").as_string()) == stream.substr(at, line - at));
      CHECK(all.back().at("sequence_number") == all.size() - 1);
      at = end + 2;
    }
    return all;
  }
  const ServedModel model;
  const ApiRequest request;
  std::vector<Choice> choices;
  std::unique_ptr<AnswerWriter> streamer, drafter;
  std::string stream;
};

// As text, several deltas of a kind as one.
std::string types_of(const std::vector<json::object>& events) {
  std::string all, last;
  for (const json::object& event : events) {
    std::string type(event.at("type").as_string());
    if (type.starts_with("response.")) type = type.substr(9);
    if (type != last || !type.ends_with("delta")) all += type + "\n";
    last = type;
  }
  return all;
}

// Everything but ids.
json::value without_ids(json::value value) {
  if (auto* object = value.if_object()) {
    object->erase("id");
    object->erase("call_id");
    object->erase("encrypted_content");
    for (auto& member : *object) member.value() = without_ids(member.value());
  } else if (auto* array = value.if_array()) {
    for (json::value& item : *array) item = without_ids(item);
  }
  return value;
}

TEST_CASE("an answer is items, and the events of a stream build them up") {
  Answering answering(codex_body());
  answering.feed(
      "<think>\nplan\n</think>\n\nI look.\n"
      "<tool_call>\n{\"name\": \"mcp__look\", \"arguments\": {\"a\": \"\\u00e9\"}}\n</tool_call>\n"
      "<tool_call>\n{\"name\": \"apply_patch\", \"arguments\": {\"input\": \"*** \\\"x\\\"\\n\"}}\n</tool_call>");
  const std::vector<json::object> events = answering.events();
  CHECK(types_of(events) ==
        "created\nin_progress\n"
        "output_item.added\ncontent_part.added\nreasoning_text.delta\nreasoning_text.done\ncontent_part.done\n"
        "output_item.done\n"
        "output_item.added\ncontent_part.added\noutput_text.delta\noutput_text.done\ncontent_part.done\n"
        "output_item.done\n"
        "output_item.added\nfunction_call_arguments.delta\nfunction_call_arguments.done\noutput_item.done\n"
        "output_item.added\ncustom_tool_call_input.delta\ncustom_tool_call_input.done\noutput_item.done\n"
        "completed\n");
  CHECK(answering.streamer->held_bytes() > 0);
  const json::object response = events.back().at("response").as_object();
  CHECK(response.at("id") == "resp_1");
  CHECK(events[0].at("response").at("id") == "resp_1");
  CHECK(events[0].at("response").at("output").as_array().empty());
  CHECK(events[0].at("response").at("status") == "in_progress");
  CHECK(response.at("status") == "completed");
  const json::array& output = response.at("output").as_array();
  REQUIRE(output.size() == 4);
  CHECK(output[0].at("type") == "reasoning");
  CHECK(output[0].at("content").as_array()[0].at("text") == "plan");
  CHECK(open_thought(output[0].at("encrypted_content").as_string()) == "plan");
  CHECK(output[1].at("content").as_array()[0].at("text") == "I look.");
  CHECK(output[2].at("type") == "function_call");
  CHECK(output[2].at("namespace") == "mcp");
  CHECK(output[2].at("name") == "look");
  CHECK(output[2].at("arguments") == R"({"a": "\u00e9"})");
  CHECK(output[3].at("type") == "custom_tool_call");
  CHECK(output[3].at("name") == "apply_patch");
  CHECK(output[3].at("input") == "*** \"x\"\n");
  CHECK(output[2].at("call_id") != output[3].at("call_id"));
  // An item is the same when it is added, done and part of the response; deltas add up to what is done.
  std::vector<std::string> ids(4), texts(4);
  std::set<std::string> all_ids;
  for (const json::object& event : events) {
    const std::string type(event.at("type").as_string());
    if (!event.contains("output_index")) continue;
    const auto index = event.at("output_index").to_number<size_t>();
    if (type == "response.output_item.added") ids.at(index) = event.at("item").at("id").as_string();
    if (type == "response.output_item.done") CHECK(event.at("item") == output[index]);
    const json::value* id = event.if_contains("item_id");
    CHECK((id ? id->as_string() : event.at("item").at("id").as_string()) == ids.at(index));
    if (const json::value* delta = event.if_contains("delta")) texts[index] += delta->as_string();
    for (const char* member : {"text", "arguments", "input"})
      if (const json::value* whole = event.if_contains(member)) CHECK(whole->as_string() == texts[index]);
  }
  for (size_t i = 0; i < 4; ++i) CHECK(output[i].at("id").as_string() == ids[i]);
  all_ids.insert(ids.begin(), ids.end());
  CHECK(all_ids.size() == 4);
  const json::object& usage = response.at("usage").as_object();
  CHECK(usage.at("input_tokens") == answering.choices[0].prompt_tokens().size());
  CHECK(usage.at("input_tokens_details").at("cached_tokens") == 2);
  CHECK(usage.at("output_tokens_details").at("reasoning_tokens").to_number<int>() > 4);
  CHECK(usage.at("total_tokens").to_number<size_t>() ==
        usage.at("input_tokens").to_number<size_t>() + usage.at("output_tokens").to_number<size_t>());
  CHECK(without_ids(answering.whole()) == without_ids(response));
}

TEST_CASE("an answer that is cut is incomplete, and so is the item that was open") {
  Answering answering(R"({"input": "a", "tools": [{"type": "function", "name": "f"}]})");
  answering.feed("Hm. <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a", FinishReason::kLength);
  const json::object response = answering.events().back().at("response").as_object();
  CHECK(answering.events().back().at("type") == "response.incomplete");
  CHECK(response.at("status") == "incomplete");
  CHECK(response.at("incomplete_details").at("reason") == "max_output_tokens");
  CHECK(response.at("usage").at("output_tokens").to_number<int>() > 0);
  const json::array& output = response.at("output").as_array();
  REQUIRE(output.size() == 2);
  CHECK(output[0].at("status") == "completed");
  CHECK(output[1].at("status") == "incomplete");
  CHECK(output[1].at("arguments") == "{\"a");
  CHECK(without_ids(answering.whole()) == without_ids(response));
}

TEST_CASE("an answer without a text is one empty message") {
  Answering answering(R"({"input": "a"})");
  answering.feed("");
  CHECK(types_of(answering.events()) ==
        "created\nin_progress\noutput_item.added\ncontent_part.added\noutput_text.done\ncontent_part.done\n"
        "output_item.done\ncompleted\n");
  const json::object whole = answering.whole();
  REQUIRE(whole.at("output").as_array().size() == 1);
  CHECK(whole.at("output").as_array()[0].at("content").as_array()[0].at("text") == "");
}

TEST_CASE("log-probabilities are those of the message's text") {
  Answering answering(R"({"input": "a", "include": ["message.output_text.logprobs"]})");
  answering.feed("<think>\nno\n</think>\n\nyes");
  const json::object response = answering.whole();
  const json::value& part = response.at("output").as_array()[1].at("content").as_array()[0];
  CHECK(part.at("text") == "yes");
  std::string text;
  for (const json::value& entry : part.at("logprobs").as_array()) text += entry.at("token").as_string();
  CHECK(text == "yes");
  CHECK(without_ids(answering.events().back().at("response")) == without_ids(response));
  CHECK(answering.stream.find("encrypted_content") == std::string::npos);
}

TEST_CASE("a response is in progress while its prompt is computed") {
  Answering answering(R"({"input": "a"})");
  for (int i = 0; i < 3; ++i) answering.streamer->keep_alive(answering.stream);
  CHECK(types_of(answering.events()) == "created\nin_progress\nin_progress\nin_progress\n");
  answering.feed("hi");
  CHECK(types_of(answering.events()) ==
        "created\nin_progress\nin_progress\nin_progress\noutput_item.added\ncontent_part.added\noutput_text.delta\n"
        "output_text.done\ncontent_part.done\noutput_item.done\ncompleted\n");
  std::string late;
  answering.streamer->keep_alive(late);
  CHECK(late == ": waiting\n\n");
}

TEST_CASE("an error inside a stream is a failed response") {
  ApiError busy = to_api_error(Error{ErrorCode::kOverloaded, "full"});
  busy.retry_after_s = 3;
  Answering early(R"({"input": "a"})");
  early.streamer->fail(busy, early.stream);
  CHECK(types_of(early.events()) == "created\nin_progress\nfailed\n");
  const json::object response = early.events().back().at("response").as_object();
  CHECK(response.at("status") == "failed");
  CHECK(response.at("error").at("code") == "rate_limit_exceeded");
  CHECK(response.at("error").at("message").as_string().find("try again in 3s") != std::string::npos);
  Answering late(R"({"input": "a"})");
  TokenEvent event;
  event.token = 'h';
  late.streamer->chunk(0, late.choices[0].advance(event), late.choices, false, late.stream);
  late.streamer->fail(to_api_error(Error{ErrorCode::kNotFinite, "x"}), late.stream);
  CHECK(late.events().back().at("response").at("error").at("code") == "server_error");
  CHECK(late.events().back().at("response").at("output").as_array().empty());
}

// ---- over HTTP -----------------------------------------------------------------------------------------------------

std::string asked(const std::string& method, const std::string& path) {
  return fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", method, path);
}

TEST_CASE("responses over HTTP, which keeps none of them") {
  Running run({}, agent_model());
  run.engine->tokens = {'h', 'i'};
  const json::object whole = body_of(run.exchange(post("/v1/responses", R"({"input": "a", "max_output_tokens": 2})")));
  CHECK(whole.at("object") == "response");
  CHECK(whole.at("id").as_string().starts_with("resp_"));
  CHECK(whole.at("output").as_array()[0].at("content").as_array()[0].at("text") == "hi");
  const std::string stream = run.exchange(post("/v1/responses", R"({"input": "a", "stream": true, "tools": [
      {"type": "web_search"}]})"));
  CHECK(stream.find("Content-Type: text/event-stream") != std::string::npos);
  CHECK(stream.find("x-llmrt-ignored: tools.web_search\r\n") != std::string::npos);
  CHECK(stream.find("event: response.created\ndata: {") != std::string::npos);
  CHECK(stream.find("event: response.incomplete\ndata: {") != std::string::npos);  // the fake engine ends by length
  CHECK(stream.find("[DONE]") == std::string::npos);
  for (const char* method : {"GET", "DELETE"}) {
    const std::string none = run.exchange(asked(method, "/v1/responses/resp_1"));
    CHECK(status_of(none) == 404);
    CHECK(body_of(none).at("error").at("param") == "response_id");
    CHECK(body_of(none).at("error").at("message").as_string().find("resp_1") != std::string::npos);
  }
  const std::string wrong = run.exchange(asked("PUT", "/v1/responses/resp_1"));
  CHECK(status_of(wrong) == 405);
  CHECK(wrong.find("Allow: GET, HEAD, DELETE, OPTIONS\r\n") != std::string::npos);
  const json::object count = body_of(run.exchange(post("/v1/responses/input_tokens", R"({"input": "abc"})")));
  CHECK(count.at("object") == "response.input_tokens");
  CHECK(count.at("input_tokens") == std::string_view("<user>abc").size());
  CHECK(status_of(run.exchange(post("/v1/responses", R"({"input": 5})"))) == 400);
  CHECK(body_of(run.exchange(get("/v1/models"))).at("models").as_array().empty());
  CHECK(run.engine->wait_drained(2));
}

TEST_CASE("a response that fails while it is streamed says so, and one that fails before is an HTTP error") {
  Running run({}, agent_model());
  run.engine->tokens = {'h', 'i', 'x'};
  run.engine->fail_at_end = Error{ErrorCode::kNotFinite, "row 3"};
  const std::string stream = run.exchange(post("/v1/responses", R"({"input": "a", "stream": true})"));
  CHECK(stream.find("event: response.failed\ndata: {") != std::string::npos);
  CHECK(status_of(run.exchange(post("/v1/responses", R"({"input": "a"})"))) == 500);
  run.engine->wait_ended();
  run.engine->refuse = Error{ErrorCode::kOverloaded, "full"};
  const std::string refused = run.exchange(post("/v1/responses", R"({"input": "a", "stream": true})"));
  CHECK(status_of(refused) == 503);
  CHECK(body_of(refused).at("error").at("code") == "overloaded");
}

}  // namespace
}  // namespace llmrt::server
