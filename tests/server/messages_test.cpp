// Anthropic's Messages: bodies to prompts, errors under the client's own names, answers as blocks and as events in
// their order, and counts that agree.
#include <boost/json.hpp>

#include <set>

#include "server/known_fields.h"
#include "server/messages_answer.h"
#include "server/messages_request.h"
#include "tests/server/dialect_models.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

json::object messages_body(const std::string& members) {
  return json::parse("{\"max_tokens\": 64, " + members + "}").as_object();
}
ApiRequest accepted(const std::string& members, const ServedModel& model, const ParseContext& context = {}) {
  auto parsed = parse_messages(messages_body(members), model, context);
  if (const auto* error = std::get_if<ApiError>(&parsed)) FAIL(error->message);
  return std::get<ApiRequest>(std::move(parsed));
}
ApiError refused(const std::string& members, const ServedModel& model, const ParseContext& context = {}) {
  auto parsed = parse_messages(messages_body(members), model, context);
  INFO(members);
  REQUIRE(std::holds_alternative<ApiError>(parsed));
  return std::get<ApiError>(std::move(parsed));
}
std::string header_of(const ApiRequest& request, std::string_view wanted) {
  for (const auto& [name, value] : request.headers)
    if (name == wanted) return value;
  return "";
}
const std::string kAsk = R"("messages": [{"role": "user", "content": "hi"}])";
const std::string kWeather =
    R"("tools": [{"name": "w", "description": "of a city", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}, "cache_control": {"type": "ephemeral"}}])";

// ---- requests ------------------------------------------------------------------------------------------------------

TEST_CASE("messages: a body becomes the prompt of a chat") {
  const ServedModel model = dialect_model();
  CHECK(prompt_of(model, accepted(kAsk, model)) == "<|start|>user:hi<|end|><|start|>assistant:<no>");
  CHECK(prompt_of(model, accepted(R"("system": "be", "thinking": {"type": "adaptive"}, )" + kAsk, model)) ==
        "<|start|>system:be<|end|><|start|>user:hi<|end|><|start|>assistant:");
  CHECK(prompt_of(model, accepted(R"("output_config": {"effort": "max"}, "thinking": {"type": "enabled",
        "budget_tokens": 2048}, )" + kAsk,
                                  model)) == "<|start|>user:hi<|end|><|start|>assistant:<high>");
  const ApiRequest request =
      accepted(R"("system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
      {"type": "text", "text": "b"}], "stop_sequences": ["X"], "top_k": 3, "temperature": 0.5, "metadata": {"user_id":
      "{\"a\": 1}"}, "service_tier": "auto", "context_management": {"edits": []}, "stream": true, )" +
                   kAsk,
               model);
  CHECK(prompt_of(model, request).starts_with("<|start|>system:a\nb<|end|>"));
  CHECK(request.form.stream);
  CHECK(request.prompts[0].request.max_tokens == 64);
  CHECK(request.prompts[0].request.sampling.top_k == 3);
  CHECK(header_of(request, kIgnoredHeader).empty());
}

TEST_CASE("messages: blocks of every kind stand in the history as the template reads it") {
  const ServedModel model = dialect_model();
  const std::string history = R"("messages": [
    {"role": "user", "content": [{"type": "text", "text": "one", "cache_control": {"type": "ephemeral"}},
      {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "D"}},
      {"type": "search_result", "title": "S", "source": "u", "content": [{"type": "text", "text": "found"}]}]},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "x"},
      {"type": "redacted_thinking", "data": "zzz"}, {"type": "text", "text": "I look."},
      {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
      {"type": "tool_use", "id": "t1", "name": "w", "input": {"city": "Rome"}},
      {"type": "tool_use", "id": "t2", "name": "w", "input": {}}]},
    {"role": "user", "content": [{"type": "text", "text": "behind"},
      {"type": "tool_result", "tool_use_id": "t1", "content": "sun"},
      {"type": "tool_result", "tool_use_id": "t2", "is_error": true, "content": [{"type": "text", "text": "no such city"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}]}]}])";
  const ApiRequest request = accepted(history + ", " + kWeather, model);
  CHECK(prompt_of(model, request) ==
        "<T>w<|start|>user:one\nT\nD\nS\nu\nfound<|end|>"
        "<|start|>assistant:<th>hm</th>I look.<call>w={\"city\": \"Rome\"}<call>w={}<|end|>"
        "<|start|>tool:sun<|end|><|start|>tool:Error: no such city<|end|><|start|>user:behind<|end|>"
        "<|start|>assistant:<no>");
  CHECK(header_of(request, kIgnoredHeader) == "content.server_tool_use, tool_content.image");
}

TEST_CASE("messages: two turns of a role in a row are one, and an empty result says nothing") {
  const ServedModel model = dialect_model();
  CHECK(prompt_of(model, accepted(R"("messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "w", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}])",
                                  model)) ==
        "<|start|>user:a\nb<|end|><|start|>assistant:<call>w={}<|end|><|start|>tool:<|end|><|start|>assistant:<no>");
}

TEST_CASE("messages: a system message in the middle stays where it is") {
  const std::string turns = R"("system": "top", "messages": [{"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"}, {"role": "system", "content": [{"type": "text", "text": "mind"}]},
    {"role": "user", "content": "c"}])";
  const ServedModel model = dialect_model();
  REQUIRE(model.shows_inline_system);
  CHECK(prompt_of(model, accepted(turns, model)) ==
        "<|start|>system:top<|end|><|start|>user:a<|end|><|start|>assistant:b<|end|><|start|>system:mind<|end|>"
        "<|start|>user:c<|end|><|start|>assistant:<no>");
  // Templates that refuse it, move it to the top, or leave it out.
  for (const char* text :
       {"{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('first') }}{% endif %}"
        "<{{ m.role }}>{{ m.content }}{% endfor %}",
        "{% for m in messages if m.role == 'system' %}<system>{{ m.content }}{% endfor %}"
        "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}",
        "{% for m in messages %}{% if loop.first or m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endif %}"
        "{% endfor %}"}) {
    const ServedModel other = dialect_model("hermes", text);
    CHECK_FALSE(other.shows_inline_system);
    CHECK(prompt_of(other, accepted(turns, other)) ==
          "<system>top<user>a<assistant>b<user><system-reminder>\nmind\n</system-reminder>\nc");
  }
}

TEST_CASE("messages: a header line of agents is dropped from the system text") {
  const ServedModel model = dialect_model();
  const std::string line = "x-anthropic-billing-header: cc_version=2.1; cch=abcde;";
  const auto prompt = [&](const std::string& system, bool keeps = false) {
    return prompt_of(
        model, accepted("\"system\": " + system + ", " + kAsk, model, ParseContext{.keeps_client_headers = keeps}));
  };
  const std::string plain = prompt(R"([{"type": "text", "text": "be"}])");
  CHECK(prompt(fmt::format(R"([{{"type": "text", "text": "{}"}}, {{"type": "text", "text": "be"}}])", line)) == plain);
  CHECK(prompt(fmt::format(R"("{}\nbe")", line)) == plain);
  CHECK(prompt(fmt::format(R"("{}")", line)) == "<|start|>user:hi<|end|><|start|>assistant:<no>");
  CHECK(prompt(fmt::format(R"("{}\nbe")", line), /*keeps=*/true).find("cch=abcde") != std::string::npos);
  CHECK(prompt(fmt::format(R"("be\n{}")", line)).find("cch=abcde") != std::string::npos);  // not the first
}

TEST_CASE("messages: a last turn of the assistant is gone on with") {
  const ServedModel model = dialect_model();
  CHECK(prompt_of(model, accepted(R"("messages": [{"role": "user", "content": "hi"},
      {"role": "assistant", "content": "The answer is ("}])",
                                  model)) == "<|start|>user:hi<|end|><|start|>assistant:The answer is (");
  CHECK(prompt_of(model,
                  accepted(R"("messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}])",
                           model)) == "<|start|>user:hi<|end|><|start|>assistant:<no>");
  CHECK(refused(R"("messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [
      {"type": "tool_use", "id": "t", "name": "w", "input": {}}]}])",
                model)
            .param == "messages.1");
}

TEST_CASE("messages: tools, their choice and dated tools") {
  const ServedModel model = dialect_model();
  const ApiRequest request = accepted(R"("tools": [{"name": "w", "input_schema": {"type": "object"}, "strict": true},
      {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}, {"type": "bash_20250124", "name": "bash"}],
      "tool_choice": {"type": "any", "disable_parallel_tool_use": true}, )" +
                                          kAsk,
                                      model);
  REQUIRE(request.form.structure->tools.size() == 1);
  CHECK(request.form.structure->tools[0].is_strict);
  CHECK(request.form.structure->choice == AnswerStructure::Choice::kRequired);
  CHECK_FALSE(request.form.structure->parallel);
  CHECK(header_of(request, kIgnoredHeader) == "tools.web_search_20250305, tools.bash_20250124");
  const std::string searches = R"("tools": [{"type": "web_search_20250305", "name": "web_search"}], )";
  CHECK(accepted(searches + kAsk, model).form.structure->tools.empty());
  CHECK(refused(searches + R"("tool_choice": {"type": "any"}, )" + kAsk, model).param == "tool_choice.type");
  CHECK(refused(searches + R"("tool_choice": {"type": "tool", "name": "web_search"}, )" + kAsk, model).param ==
        "tool_choice.name");
  const ApiRequest named = accepted(kWeather + R"(, "tool_choice": {"type": "tool", "name": "w"}, )" + kAsk, model);
  CHECK(named.form.structure->choice == AnswerStructure::Choice::kNamed);
  const ApiRequest none = accepted(kWeather + R"(, "tool_choice": {"type": "none"}, )" + kAsk, model);
  CHECK(none.form.structure->choice == AnswerStructure::Choice::kNone);
  CHECK(prompt_of(model, none).starts_with("<T>w"));
}

TEST_CASE("messages: a budget of thoughts counts where the model has thoughts, and is no error elsewhere") {
  const std::string budget = R"("thinking": {"type": "enabled", "budget_tokens": 1024}, )" + kAsk;
  CHECK(accepted(budget, dialect_model("hermes")).form.structure->thought_tokens_max == 1024u);
  CHECK_FALSE(accepted(budget, dialect_model("plain")).form.structure->thought_tokens_max);
}

TEST_CASE("messages: errors name the client's own fields") {
  const ServedModel model = dialect_model();
  struct Row {
    const char* members;
    const char* param;
  };
  const Row rows[] = {
      {R"("messages": [])", "messages"},
      {R"("messages": [{"role": "user", "content": "a"}, 7])", "messages.1"},
      {R"("messages": [{"role": "tool", "content": "a"}])", "messages.0.role"},
      {R"("messages": [{"role": "user"}])", "messages.0.content"},
      {R"("messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "source": {}}]}])",
       "messages.0.content.1.type"},
      {R"("messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "base64", "data": ""}}]}])",
       "messages.0.content.0.source.type"},
      {R"("messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}])",
       "messages.0.content.0.tool_use_id"},
      {R"("messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": [{"type":
          "text"}]}]}])",
       "messages.0.content.0.content.0.text"},
      {R"("messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": "c"}]}])",
       "messages.0.content.0.input"},
      {R"("system": [{"type": "image"}], "messages": [{"role": "user", "content": "a"}])", "system.0.type"},
      {R"("messages": [{"role": "user", "content": "a"}], "tools": [{"name": "w"}])", "tools.0.input_schema"},
      {R"("messages": [{"role": "user", "content": "a"}], "tools": [{"type": "bash_20250124", "name": "b"},
          {"name": "w w", "input_schema": {}}])",
       "tools.1.name"},
      {R"("messages": [{"role": "user", "content": "a"}], "tools": [{"type": "shell", "name": "b"}])", "tools.0.type"},
      {R"("messages": [{"role": "user", "content": "a"}], "stop_sequences": [7])", "stop_sequences.0"},
      {R"("messages": [{"role": "user", "content": "a"}], "stop": ["x"])", "stop"},
      {R"("messages": [{"role": "user", "content": "a"}], "n": 2)", "n"},
      {R"("messages": [{"role": "user", "content": "a"}], "thinking": {"type": "on"})", "thinking.type"},
      {R"("messages": [{"role": "user", "content": "a"}], "thinking": {"type": "enabled"})", "thinking.budget_tokens"},
      {R"("messages": [{"role": "user", "content": "a"}], "output_config": {"format": {"type": "text"}})",
       "output_config.format.type"},
      {R"("messages": [{"role": "user", "content": "a"}], "temperature": -1)", "temperature"},
      {R"("messages": [{"role": "user", "content": "a"}], "temprature": 1)", "temprature"},
      {R"("messages": [{"role": "user", "content": "a"}], "guided_decoding": 1, "regex": "a")", "regex"},
  };
  for (const Row& row : rows) {
    const ApiError error = refused(row.members, model);
    INFO(row.members << ": " << error.message);
    CHECK(error.param == row.param);
    CHECK(error.message.starts_with(row.param));
    CHECK(error.status == 400);
  }
  const auto missing = parse_messages(json::parse("{" + kAsk + "}").as_object(), model, {});
  CHECK(std::get<ApiError>(missing).param == "max_tokens");
  const ApiError model_error = refused(R"("model": "other", )" + kAsk, model);
  CHECK(model_error.status == 404);
  CHECK(error_body(model_error, {ErrorForm::kMessages, "req-1"}).at("error").at("type") == "not_found_error");
  // What fails behind the translation is told by the client's index, too: a template's own words.
  const ServedModel strict =
      dialect_model("hermes", "{% if messages[-1].role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}x");
  CHECK(refused(R"("messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}])", strict)
            .param == "messages");
}

TEST_CASE("messages: unknown fields are ignored and named, or refused where that is asked for") {
  const ServedModel model = dialect_model();
  const std::string members = R"("speed": "fast", "mcp_servers": [], "xyzzy": 1, )" + kAsk;
  CHECK(header_of(accepted(members, model), kIgnoredHeader).find("xyzzy") != std::string::npos);
  CHECK(refused(members, model, ParseContext{.strict_fields = true}).status == 400);
  CHECK(refused(R"("messages": [{"role": "user", "content": [{"type": "text", "text": "a", "odd": 1}]}])", model,
                ParseContext{.strict_fields = true})
            .param == "messages.0.content.0.odd");
  accepted(R"("messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type":
      "ephemeral"}, "citations": null}]}])",
           model, ParseContext{.strict_fields = true});
}

TEST_CASE("messages: a prompt that is too long is told in the words that clients look for") {
  const ServedModel model = dialect_model("hermes", kTurnsTemplate, 64);
  const ApiError error = refused(
      R"("messages": [{"role": "user", "content": "this text is one of more than sixty-four bytes, a token each, so there"}])",
      model);
  CHECK(error.status == 400);
  const json::object body = error_body(error, {ErrorForm::kMessages, "req-7"});
  CHECK(body.at("type") == "error");
  CHECK(body.at("request_id") == "req-7");
  CHECK(body.at("error").at("type") == "invalid_request_error");
  CHECK(body.at("error").at("message") == "prompt is too long: 92 tokens > 63 maximum");
}

TEST_CASE("messages: the count is that of the prompt of the same request") {
  const ServedModel model = dialect_model("hermes");
  for (const std::string& members :
       {kAsk, kWeather + ", " + kAsk, kWeather + R"(, "thinking": {"type": "adaptive"}, "system": "s", )" + kAsk,
        R"("messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])" + std::string()}) {
    json::object body = messages_body(members);
    const auto parsed = parse_messages(body, model, {});
    body.erase("max_tokens");
    const auto counted = count_messages(body, model, {});
    REQUIRE(std::holds_alternative<ApiRequest>(parsed));
    REQUIRE(std::holds_alternative<json::object>(counted));
    CHECK(std::get<json::object>(counted).at("input_tokens").to_number<size_t>() ==
          std::get<ApiRequest>(parsed).prompts[0].request.prompt.size());
  }
}

// ---- answers -------------------------------------------------------------------------------------------------------

struct MessageEvent {
  std::string name;
  json::object data;
};
std::vector<MessageEvent> read_events(std::string_view text) {
  std::vector<MessageEvent> events;
  while (!text.empty()) {
    const size_t end = text.find("\n\n");
    REQUIRE(end != text.npos);
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(end + 2);
    const size_t line = one.find('\n');
    REQUIRE(one.starts_with("event: "));
    REQUIRE(one.substr(line + 1).starts_with("data: "));
    events.push_back(
        {std::string(one.substr(7, line - 7)), json::parse(std::string(one.substr(line + 7))).as_object()});
    CHECK(events.back().data.at("type").as_string() == events.back().name);
  }
  return events;
}

// The message that a client puts together; checks the order on the way.
json::object assembled(const std::vector<MessageEvent>& events) {
  REQUIRE(events.size() >= 3);
  REQUIRE(events[0].name == "message_start");
  json::object message = events[0].data.at("message").as_object();
  CHECK(message.at("content").as_array().empty());
  CHECK(message.at("stop_reason").is_null());
  bool is_open = false, is_signed = false;
  std::string input;
  for (size_t i = 1; i < events.size(); ++i) {
    const json::object& data = events[i].data;
    json::array& content = message.at("content").as_array();
    const std::string& name = events[i].name;
    if (name == "content_block_start") {
      CHECK_FALSE(is_open);
      CHECK(data.at("index").as_int64() == static_cast<int64_t>(content.size()));
      content.push_back(data.at("content_block"));
      is_open = true;
      is_signed = false;
      input.clear();
      if (content.back().at("type") == "tool_use") CHECK(content.back().at("input").as_object().empty());
    } else if (name == "content_block_delta") {
      REQUIRE(is_open);
      CHECK(data.at("index").as_int64() == static_cast<int64_t>(content.size()) - 1);
      const json::object& delta = data.at("delta").as_object();
      json::object& block = content.back().as_object();
      const auto add = [&](const char* field) {
        block[field] = std::string(block.at(field).as_string()) + std::string(delta.at(field).as_string());
      };
      if (delta.at("type") == "text_delta") add("text");
      if (delta.at("type") == "thinking_delta") add("thinking");
      if (delta.at("type") == "signature_delta") {
        block["signature"] = delta.at("signature");
        is_signed = true;
      }
      if (delta.at("type") == "input_json_delta") input += delta.at("partial_json").as_string();
    } else if (name == "content_block_stop") {
      REQUIRE(is_open);
      is_open = false;
      json::object& block = content.back().as_object();
      if (block.at("type") == "thinking") CHECK(is_signed);
      if (block.at("type") == "tool_use" && !input.empty()) block["input"] = json::parse(input);
    } else if (name == "message_delta") {
      CHECK_FALSE(is_open);
      for (const auto& member : data.at("delta").as_object()) message[member.key()] = member.value();
      message["usage"] = data.at("usage");
    } else {
      CHECK(name == "message_stop");
      CHECK(i + 1 == events.size());
    }
  }
  CHECK(events.back().name == "message_stop");
  return message;
}

struct AnswerCase {
  const char* says;
  FinishReason finish;
  const char* content;  // without signatures
  const char* stop_reason;
};

TEST_CASE("messages: a streamed answer is the whole one, in blocks one behind the other") {
  const ServedModel model = dialect_model("hermes");
  const AnswerCase cases[] = {
      {"Hello \"you\"", FinishReason::kEos, R"([{"type": "text", "text": "Hello \"you\""}])", "end_turn"},
      {"", FinishReason::kEos, R"([{"type": "text", "text": ""}])", "end_turn"},
      {"Hello", FinishReason::kLength, R"([{"type": "text", "text": "Hello"}])", "max_tokens"},
      {"<think>\nhm\n</think>\n\nHi", FinishReason::kEos,
       R"([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Hi"}])", "end_turn"},
      {"I look.\n<tool_call>\n{\"name\": \"w\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>\n<tool_call>\n"
       "{\"name\": \"w\", \"arguments\": {}}\n</tool_call>",
       FinishReason::kEos,
       R"([{"type": "text", "text": "I look."}, {"type": "tool_use", "name": "w", "input": {"city": "Rome"}},
           {"type": "tool_use", "name": "w", "input": {}}])",
       "tool_use"},
  };
  for (const AnswerCase& one : cases) {
    INFO(one.says);
    std::vector<json::object> messages;
    for (const bool stream : {false, true}) {
      const ApiRequest request = accepted(
          fmt::format(R"("stream": {}, "thinking": {{"type": "adaptive"}}, {}, {})", stream, kWeather, kAsk), model);
      const auto writer = make_messages_writer(model, request.form, {"msg_1", 1, "req-1"});
      const WrittenAnswer answer = write_answer(model, request, *writer, one.says, one.finish, /*cached=*/5);
      json::object message = stream ? assembled(read_events(answer.text)) : json::parse(answer.text).as_object();
      CHECK(message.at("id") == "msg_1");
      CHECK(message.at("role") == "assistant");
      CHECK(message.at("stop_reason") == one.stop_reason);
      CHECK(message.at("stop_sequence").is_null());
      const size_t prompt = request.prompts[0].request.prompt.size();
      const json::object& usage = message.at("usage").as_object();
      CHECK(usage.at("input_tokens").to_number<size_t>() + 5 == prompt);
      CHECK(usage.at("cache_read_input_tokens").to_number<size_t>() == 5);
      CHECK(usage.at("cache_creation_input_tokens").to_number<size_t>() == 0);
      std::set<std::string> ids;
      json::array bare = message.at("content").as_array();
      for (json::value& block : bare) {
        json::object& object = block.as_object();
        if (object.at("type") == "thinking") CHECK(object.at("signature").as_string().size() == 64);
        if (object.at("type") == "tool_use") CHECK(ids.insert(std::string(object.at("id").as_string())).second);
        object.erase("signature");
        object.erase("id");
      }
      CHECK(bare == json::parse(one.content).as_array());
    }
  }
}

TEST_CASE("messages: a stop string ends the answer and is told") {
  const ServedModel model = dialect_model("hermes");
  for (const bool stream : {false, true}) {
    const ApiRequest request = accepted(
        fmt::format(R"("stream": {}, "stop_sequences": ["Observation:", "END"], {}, {})", stream, kWeather, kAsk),
        model);
    const auto writer = make_messages_writer(model, request.form, {"msg_1", 1, ""});
    const WrittenAnswer answer = write_answer(model, request, *writer, "Thought.\nEND of it");
    const json::object message = stream ? assembled(read_events(answer.text)) : json::parse(answer.text).as_object();
    CHECK(message.at("stop_reason") == "stop_sequence");
    CHECK(message.at("stop_sequence") == "END");
    CHECK(message.at("content").at(0).at("text") == "Thought.\n");
    // A call that is whole beats a stop string behind it.
    const auto other = make_messages_writer(model, request.form, {"msg_1", 1, ""});
    const WrittenAnswer called =
        write_answer(model, request, *other, "<tool_call>\n{\"name\": \"w\", \"arguments\": {}}\n</tool_call>\nEND");
    const json::object second = stream ? assembled(read_events(called.text)) : json::parse(called.text).as_object();
    CHECK(second.at("stop_reason") == "tool_use");
    CHECK(second.at("stop_sequence").is_null());
  }
}

TEST_CASE("messages: a stop string that the engine met is told, too") {
  const ServedModel model = dialect_model("plain");
  const ApiRequest request = accepted(R"("stop_sequences": ["ENDE", "END"], )" + kAsk, model);
  std::vector<Choice> choices;
  choices.emplace_back(&model, request.form, request.prompts[0]);
  const auto writer = make_messages_writer(model, request.form, {"msg_1", 1, ""});
  const std::string said = "okEND";
  for (size_t i = 0; i < said.size(); ++i) {
    TokenEvent event;
    event.token = said[i];
    event.hold_bytes = i >= 2 ? static_cast<uint32_t>(i - 1) : 0;
    if (i + 1 == said.size()) {
      event.finish = FinishReason::kStopString;
      event.cut_bytes = 3;
    }
    writer->add(0, choices[0].advance(event));
  }
  std::string text;
  for (const std::string& piece : writer->whole(choices).take()) text += piece;
  const json::object message = json::parse(text).as_object();
  CHECK(message.at("stop_sequence") == "END");
  CHECK(message.at("content").at(0).at("text") == "ok");
}

TEST_CASE("messages: a call that is no JSON is a text in a whole answer, and comes as it is in a stream") {
  const ServedModel model = dialect_model("hermes");
  struct Row {
    const char* says;
    FinishReason finish;
    const char* text;
    const char* stop_reason;
    const char* fragments;
  };
  const Row rows[] = {
      {"<tool_call>\n{\"name\": \"w\", \"arguments\": {\"city\": Rome}}\n</tool_call>", FinishReason::kEos,
       R"({"name": "w", "arguments": {"city": Rome}})", "end_turn", R"({"city": Rome})"},
      {"<tool_call>\n{\"name\": \"w\", \"arguments\": {\"city\": \"Ro", FinishReason::kLength,
       R"({"name": "w", "arguments": {"city": "Ro})", "max_tokens", R"({"city": "Ro)"}};
  for (const Row& row : rows) {
    const ApiRequest whole = accepted(kWeather + ", " + kAsk, model);
    const auto writer = make_messages_writer(model, whole.form, {"msg_1", 1, ""});
    const json::object message =
        json::parse(write_answer(model, whole, *writer, row.says, row.finish).text).as_object();
    CHECK(message.at("stop_reason") == row.stop_reason);
    CHECK(message.at("content").as_array().size() == 1);
    CHECK(message.at("content").at(0).at("text") == row.text);

    const ApiRequest streamed = accepted("\"stream\": true, " + kWeather + ", " + kAsk, model);
    const auto other = make_messages_writer(model, streamed.form, {"msg_1", 1, ""});
    std::string fragments;
    for (const MessageEvent& event : read_events(write_answer(model, streamed, *other, row.says, row.finish).text)) {
      if (event.name != "content_block_delta") continue;
      CHECK(event.data.at("delta").at("type") == "input_json_delta");
      fragments += event.data.at("delta").at("partial_json").as_string();
    }
    CHECK(fragments == row.fragments);
  }
}

TEST_CASE("messages: thoughts may be left out, and so may the answer") {
  const ServedModel model = dialect_model("hermes");
  for (const bool stream : {false, true}) {
    const ApiRequest request = accepted(
        fmt::format(R"("stream": {}, "thinking": {{"type": "adaptive", "display": "omitted"}}, {})", stream, kAsk),
        model);
    const auto writer = make_messages_writer(model, request.form, {"msg_1", 1, ""});
    const WrittenAnswer answer = write_answer(model, request, *writer, "<think>\nsecret\n</think>\n\nHi");
    const json::object message = stream ? assembled(read_events(answer.text)) : json::parse(answer.text).as_object();
    CHECK(message.at("content").at(0).at("thinking") == "");
    CHECK(message.at("content").at(0).at("signature").as_string().size() == 64);
    CHECK(answer.text.find("secret") == std::string::npos);
    CHECK(message.at("usage").at("output_tokens_details").at("thinking_tokens").to_number<size_t>() > 0);

    json::object body = json::parse("{\"max_tokens\": 0, " + kAsk + "}").as_object();
    body["stream"] = stream;
    const auto warmed = parse_messages(body, model, {});
    const auto& warm = std::get<ApiRequest>(warmed);
    const auto other = make_messages_writer(model, warm.form, {"msg_1", 1, ""});
    const WrittenAnswer nothing = write_answer(model, warm, *other, "x", FinishReason::kLength);
    const json::object empty = stream ? assembled(read_events(nothing.text)) : json::parse(nothing.text).as_object();
    CHECK(empty.at("content").as_array().empty());
    CHECK(empty.at("usage").at("output_tokens").to_number<size_t>() == 0);
  }
}

TEST_CASE("messages: an answer that the context cuts says so, and one that fails ends in an error event") {
  const ServedModel model = dialect_model("hermes", kTurnsTemplate, 80);
  const ApiRequest request = accepted("\"stream\": true, " + kAsk, model);
  CHECK(header_of(request, "x-llmrt-max-tokens") == std::to_string(request.prompts[0].request.max_tokens));
  const auto writer = make_messages_writer(model, request.form, {"msg_1", 1, "req-9"});
  const WrittenAnswer answer = write_answer(model, request, *writer, "xx", FinishReason::kLength);
  CHECK(assembled(read_events(answer.text)).at("stop_reason") == "model_context_window_exceeded");
  std::string text;
  const auto other = make_messages_writer(model, request.form, {"msg_1", 1, "req-9"});
  other->keep_alive(text);
  other->fail(to_api_error(make_error(ErrorCode::kOverloaded, "full")), text);
  const auto events = read_events(text);
  REQUIRE(events.size() == 2);
  CHECK(events[0].name == "ping");
  CHECK(events[1].data.at("error").at("type") == "overloaded_error");
  CHECK(events[1].data.at("request_id") == "req-9");
}

}  // namespace
}  // namespace llmrt::server
