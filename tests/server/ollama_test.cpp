// Ollama's API: bodies to prompts, answers as lines of JSON and as one object, the lists of models; and both dialects
// over real sockets with a fake engine behind them.
#include <boost/json.hpp>

#include "server/known_fields.h"
#include "server/ollama_answer.h"
#include "server/ollama_info.h"
#include "server/ollama_request.h"
#include "tests/fakes/sim_clock.h"
#include "tests/server/dialect_models.h"
#include "tests/server/running.h"

namespace llmrt::server {
namespace {

using Parse = decltype(&parse_ollama_chat);

ApiRequest ollama_accepted(Parse parse, const std::string& body, const ServedModel& model,
                           const ParseContext& context = {}) {
  auto parsed = parse(json::parse(body).as_object(), model, context);
  if (const auto* error = std::get_if<ApiError>(&parsed)) FAIL(error->message);
  return std::get<ApiRequest>(std::move(parsed));
}
ApiError ollama_refused(Parse parse, const std::string& body, const ServedModel& model,
                        const ParseContext& context = {}) {
  auto parsed = parse(json::parse(body).as_object(), model, context);
  INFO(body);
  REQUIRE(std::holds_alternative<ApiError>(parsed));
  return std::get<ApiError>(std::move(parsed));
}
std::string ignored_of(const ApiRequest& request) {
  for (const auto& [name, value] : request.headers)
    if (name == kIgnoredHeader) return value;
  return "";
}
std::vector<json::object> lines_of(std::string_view text) {
  std::vector<json::object> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    REQUIRE(end != text.npos);
    lines.push_back(json::parse(std::string(text.substr(0, end))).as_object());
    text.remove_prefix(end + 1);
  }
  return lines;
}

TEST_CASE("ollama: a chat becomes the prompt of a chat, and options its parameters") {
  const ServedModel model = dialect_model();
  const ApiRequest request = ollama_accepted(parse_ollama_chat, R"({"model": "letters:latest", "messages": [
      {"role": "system", "content": "be"}, {"role": "user", "content": "hi", "images": []},
      {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [{"function": {"name": "w", "arguments":
      {"city": "Rome"}}}]}, {"role": "tool", "content": "sun", "tool_name": "w"}],
      "tools": [{"function": {"name": "w", "parameters": {"type": "object"}}}], "think": false, "keep_alive": "5m",
      "options": {"temperature": 0.5, "num_predict": 7, "seed": 3, "stop": ["X"], "top_k": 4, "repeat_penalty": 1.5,
      "num_ctx": 2048, "num_gpu": 1, "num_thread": 4}})",
                                             model);
  CHECK(prompt_of(model, request) ==
        "<T>w<|start|>system:be<|end|><|start|>user:hi<|end|><|start|>assistant:<th>hm</th><call>w={\"city\": \"Rome\"}"
        "<|end|><|start|>tool:sun<|end|><|start|>assistant:<no>");
  CHECK(request.form.stream);
  const Request& wanted = request.prompts[0].request;
  CHECK(wanted.max_tokens == 7);
  CHECK(wanted.sampling.temperature == 0.5f);
  CHECK(wanted.sampling.seed == 3);
  CHECK(wanted.sampling.top_k == 4);
  CHECK(wanted.sampling.repetition_penalty == 1.5f);
  CHECK(ignored_of(request).empty());
}

TEST_CASE("ollama: what has no effect is named, and what would shape the answer is refused") {
  const ServedModel model = dialect_model();
  const std::string ask = R"("messages": [{"role": "user", "content": "hi"}])";
  const ApiRequest request = ollama_accepted(
      parse_ollama_chat,
      "{" + ask + R"(, "xyz": 1, "options": {"num_ctx": 1000000, "abc": 2, "seed": -1, "num_predict": -2}})", model);
  CHECK(ignored_of(request) == "options.num_ctx, options.abc, xyz");
  CHECK(request.prompts[0].request.max_tokens + request.prompts[0].request.prompt.size() == model.context_max);
  const auto param = [&](const std::string& members) {
    return ollama_refused(parse_ollama_chat, "{" + ask + ", " + members + "}", model).param;
  };
  CHECK(param(R"("options": {"mirostat": 2})") == "mirostat");
  CHECK(param(R"("options": {"temperature": "hot"})") == "options.temperature");
  CHECK(param(R"("options": {"repeat_penalty": 0})") == "options.repeat_penalty");
  CHECK(param(R"("format": "yaml")") == "format");
  CHECK(param(R"("think": 3)") == "think");
  CHECK(param(R"("logprobs": true)") == "logprobs");
  CHECK(param(R"("template": "x")") == "template");
  CHECK(param(R"("response_format": {"type": "json_object"})") == "response_format");
  CHECK(ollama_refused(parse_ollama_chat, R"({"messages": [{"role": "user", "content": "a", "images": ["AA=="]}]})",
                       model)
            .param == "messages[0].images");
  CHECK(ollama_refused(parse_ollama_chat, "{" + ask + R"(, "model": "other"})", model).status == 404);
  CHECK(ollama_refused(parse_ollama_chat, "{" + ask + R"(, "options": {"abc": 1}})", model,
                       ParseContext{.strict_fields = true})
            .param == "options.abc");
  CHECK(ollama_refused(parse_ollama_chat, "{" + ask + R"(, "think": true})", dialect_model("plain"))
            .message.find("does not support thinking") != std::string::npos);
}

TEST_CASE("ollama: format holds an answer to JSON, or to a schema") {
  const ServedModel model = dialect_model();
  for (const char* format : {"\"json\"", R"({"type": "object", "properties": {"a": {"type": "integer"}}})"}) {
    const ApiRequest request = ollama_accepted(
        parse_ollama_chat,
        fmt::format(R"({{"messages": [{{"role": "user", "content": "hi"}}], "format": {}}})", format), model);
    CHECK(request.form.structure->content);
    CHECK(request.grammar);
  }
}

TEST_CASE("ollama: a text is a chat of one turn, as it is where it is raw, and one between two others") {
  ServedModel model = dialect_model();
  const auto prompt = [&](const std::string& body) {
    return prompt_of(model, ollama_accepted(parse_ollama_generate, body, model));
  };
  CHECK(prompt(R"({"prompt": "hi", "system": "be"})") ==
        "<|start|>system:be<|end|><|start|>user:hi<|end|><|start|>assistant:");
  CHECK(prompt(R"({"prompt": "hi<|end|>", "raw": true, "think": true})") == "hi<|end|>");
  CHECK(
      ollama_accepted(parse_ollama_generate, R"({"prompt": "hi", "raw": true})", model).prompts[0].request.max_tokens ==
      model.context_max - 2);
  CHECK(ollama_refused(parse_ollama_generate, R"({"prompt": "hi", "raw": true, "system": "x"})", model).param ==
        "system");
  CHECK(ollama_refused(parse_ollama_generate, R"({"prompt": "hi", "context": [1, 2]})", model).param == "context");
  CHECK(ollama_refused(parse_ollama_generate, R"({"prompt": "a", "suffix": "b"})", model).param == "suffix");
  model.fim = FimTokens{.prefix = 300, .suffix = 301, .middle = 302};
  CHECK(ollama_accepted(parse_ollama_generate, R"({"prompt": "a", "suffix": "b"})", model).prompts[0].request.prompt ==
        std::vector<int32_t>{300, 'a', 301, 'b', 302});
  model.chat_template = nullptr;
  CHECK(prompt(R"({"prompt": "hi"})") == "hi");
}

TEST_CASE("ollama: nothing to write means that the model is there") {
  const ServedModel model = dialect_model();
  const auto ready = [&](Parse parse, const std::string& body) {
    return json::parse(ollama_accepted(parse, body, model).ready).as_object();
  };
  CHECK(ready(parse_ollama_chat, R"({"model": "letters"})").at("done_reason") == "load");
  CHECK(ready(parse_ollama_chat, R"({"model": "letters", "messages": [], "keep_alive": 0})").at("done_reason") ==
        "unload");
  CHECK(ready(parse_ollama_generate, R"({"model": "letters:latest"})").at("response") == "");
  CHECK(ollama_refused(parse_ollama_generate, R"({"model": "other"})", model).status == 404);
}

TEST_CASE("ollama: lines of a stream say what the whole answer says") {
  const ServedModel model = dialect_model();
  const std::string said =
      "<think>\nhm\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"w\", \"arguments\": {\"city\": "
      "\"Rome\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"w\", \"arguments\": {}}\n</tool_call>";
  json::value whole, streamed;
  for (const bool stream : {false, true}) {
    const ApiRequest request =
        ollama_accepted(parse_ollama_chat,
                        fmt::format(R"({{"model": "letters:latest", "stream": {}, "think": true, "messages": [{{"role":
        "user", "content": "hi"}}], "tools": [{{"type": "function", "function": {{"name": "w"}}}}]}})",
                                    stream),
                        model);
    const test::SimClock clock;
    const auto writer = make_ollama_writer(model, request.form, {"x", 1764472577, ""}, clock);
    const WrittenAnswer answer = write_answer(model, request, *writer, said);
    if (!stream) {
      const json::object object = json::parse(answer.text).as_object();
      CHECK(object.at("model") == "letters:latest");
      CHECK(object.at("created_at") == "2025-11-30T03:16:17Z");
      CHECK(object.at("done") == true);
      CHECK(object.at("done_reason") == "stop");
      CHECK(object.at("eval_count").to_number<size_t>() == said.size() + 1);
      CHECK(object.at("prompt_eval_count").to_number<size_t>() == request.prompts[0].request.prompt.size());
      whole = object.at("message");
      continue;
    }
    const auto lines = lines_of(answer.text);
    std::string content, thinking;
    json::array calls;
    for (const json::object& line : lines) {
      CHECK(line.at("done").as_bool() == (&line == &lines.back()));
      const json::object& message = line.at("message").as_object();
      content += message.at("content").as_string();
      if (const auto* text = message.if_contains("thinking")) thinking += text->as_string();
      if (const auto* list = message.if_contains("tool_calls"))
        for (const json::value& call : list->as_array()) calls.push_back(call);
    }
    for (const char* name : {"total_duration", "load_duration", "prompt_eval_duration", "eval_duration"})
      CHECK(lines.back().at(name).is_number());
    streamed = json::object{{"role", "assistant"}, {"content", content}, {"thinking", thinking}, {"tool_calls", calls}};
  }
  for (json::value* message : {&whole, &streamed})
    for (json::value& call : message->at("tool_calls").as_array()) CHECK(call.as_object().erase("id") == 1);
  CHECK(whole == streamed);
  CHECK(whole.at("tool_calls").as_array().size() == 2);
  CHECK(whole.at("tool_calls").at(0).at("function") ==
        json::parse(R"({"index": 0, "name": "w", "arguments": {"city": "Rome"}})"));
}

TEST_CASE("ollama: times are those of the prompt and of the answer, in nanoseconds") {
  const ServedModel model = dialect_model("plain");
  const ApiRequest request = ollama_accepted(parse_ollama_generate, R"({"prompt": "hi", "stream": false})", model);
  test::SimClock clock;
  const auto writer = make_ollama_writer(model, request.form, {"x", 1, ""}, clock);
  std::vector<Choice> choices;
  choices.emplace_back(&model, request.form, request.prompts[0]);
  for (int i = 0; i < 3; ++i) {
    clock.advance_ns(i == 0 ? 700 : 50);
    TokenEvent event;
    event.token = 'a' + i;
    if (i == 2) event.finish = FinishReason::kLength;
    writer->note(event);
    writer->add(0, choices[0].advance(event));
  }
  std::string text;
  for (const std::string& piece : writer->whole(choices).take()) text += piece;
  const json::object answer = json::parse(text).as_object();
  CHECK(answer.at("response") == "abc");
  CHECK(answer.at("done_reason") == "length");
  CHECK(answer.at("total_duration") == 800);
  CHECK(answer.at("prompt_eval_duration") == 700);
  CHECK(answer.at("eval_duration") == 100);
  CHECK(answer.at("eval_count") == 3);
}

TEST_CASE("ollama: a call that is no JSON is a text") {
  const ServedModel model = dialect_model();
  const ApiRequest request = ollama_accepted(
      parse_ollama_chat,
      R"({"stream": false, "messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function",
      "function": {"name": "w"}}]})",
      model);
  const test::SimClock clock;
  const auto writer = make_ollama_writer(model, request.form, {"x", 1, ""}, clock);
  const WrittenAnswer answer = write_answer(
      model, request, *writer, "<tool_call>\n{\"name\": \"w\", \"arguments\": {\"city\": Rome}}\n</tool_call>");
  const json::object message = json::parse(answer.text).at("message").as_object();
  CHECK_FALSE(message.contains("tool_calls"));
  CHECK(message.at("content") == R"({"name": "w", "arguments": {"city": Rome}})");
}

TEST_CASE("ollama: the lists name the model with a tag, and what it can do") {
  ServedModel model = dialect_model();
  model.file = {
      .architecture = "llama", .encoding = "q4_1", .num_weights = 134515008, .num_bytes = 92000000, .digest = "ab"};
  const json::object row = ollama_tag(model);
  CHECK(row.at("name") == "letters:latest");
  CHECK(row.at("details").at("parameter_size") == "134.5M");
  CHECK(row.at("details").at("quantization_level") == "Q4_1");
  CHECK(ollama_running(model).at("context_length").to_number<uint32_t>() == model.context_max);
  const auto shown = ollama_show(json::object{{"model", "letters"}}, model, {}, nullptr);
  const json::object& show = std::get<json::object>(shown);
  CHECK(show.at("capabilities") == json::array{"completion", "tools", "thinking"});
  CHECK(show.at("model_info").at("llama.context_length").to_number<uint32_t>() == model.context_max);
  const auto other = ollama_show(json::object{{"model", "x"}}, model, {}, nullptr);
  CHECK(std::get<ApiError>(other).status == 404);
  CHECK(std::get<ApiError>(ollama_show(json::object{}, model, {}, nullptr)).param == "model");
  CHECK(ollama_name("a/b") == "a/b:latest");
  CHECK(ollama_name("a:b/c") == "a:b/c:latest");
  CHECK(ollama_name("a:7b") == "a:7b");
}

// ---- over sockets --------------------------------------------------------------------------------------------------

TEST_CASE("dialects: both are served over HTTP, with their own headers, errors and kinds of streams") {
  Running running;
  running.engine->tokens = {'H', 'i'};
  const std::string ask = R"("messages": [{"role": "user", "content": "a"}])";
  const std::string whole =
      running.exchange(post("/v1/messages?beta=true", R"({"max_tokens": 9, )" + ask + "}",
                            "Connection: close\r\nanthropic-version: 2023-06-01\r\nanthropic-beta: "
                            "nobody-knows-2099-01-01\r\nx-api-key: k\r\n"
                            "x-request-id: mine\r\n"));
  CHECK(status_of(whole) == 200);
  CHECK(whole.find("request-id: mine\r\n") != std::string::npos);
  const json::object message = body_of(whole);
  CHECK(message.at("id").as_string().starts_with("msg_"));
  CHECK(message.at("content").at(0).at("text") == "Hi");
  CHECK(message.at("stop_reason") == "max_tokens");

  const std::string stream =
      running.exchange(post("/v1/messages", R"({"stream": true, "max_tokens": 9, )" + ask + "}"));
  CHECK(stream.find("Content-Type: text/event-stream") != std::string::npos);
  CHECK(stream.find("event: message_start\ndata: ") != std::string::npos);
  CHECK(stream.find("event: message_stop\ndata: ") != std::string::npos);
  CHECK(stream.find("[DONE]") == std::string::npos);

  const size_t before = running.engine->requests().size();
  const std::string counted = running.exchange(post("/v1/messages/count_tokens", "{" + ask + "}"));
  CHECK(body_of(counted).at("input_tokens").to_number<size_t>() == running.engine->requests()[0].prompt.size());
  CHECK(running.engine->requests().size() == before);

  const std::string wrong =
      running.exchange(post("/v1/messages", "{" + ask + "}", "Connection: close\r\nx-request-id: mine\r\n"));
  CHECK(status_of(wrong) == 400);
  CHECK(body_of(wrong).at("error").at("type") == "invalid_request_error");
  CHECK(body_of(wrong).at("request_id") == "mine");
  const std::string method = running.exchange(get("/v1/messages"));
  CHECK(status_of(method) == 405);
  CHECK(body_of(method).at("type") == "error");

  const std::string lines = running.exchange(post("/api/chat", "{" + ask + "}"));
  CHECK(lines.find("Content-Type: application/x-ndjson") != std::string::npos);
  CHECK(lines.find("\"done\":true") != std::string::npos);
  CHECK(body_of(running.exchange(post("/api/generate", R"({"prompt": "a", "stream": false})"))).at("response") == "Hi");
  CHECK(body_of(running.exchange(post("/api/generate", R"({"model": "letters"})"))).at("done_reason") == "load");
  const std::string refused = running.exchange(post("/api/chat", R"({"messages": 1})"));
  CHECK(status_of(refused) == 400);
  CHECK(body_of(refused).at("error").is_string());
  CHECK(body_of(running.exchange(get("/api/version"))).at("version") == kOllamaVersion);
  CHECK(body_of(running.exchange(get("/api/tags"))).at("models").at(0).at("model") == "letters:latest");
  CHECK(running.exchange(get("/")).ends_with("Ollama is running"));
  CHECK(status_of(running.exchange(post("/v1/chat/completions", R"({"model": "letters:latest", )" + ask + "}"))) ==
        200);
}

TEST_CASE("dialects: an engine that is full is told as each dialect has it") {
  Running running;
  running.engine->refuse = make_error(ErrorCode::kOverloaded, "full");
  const std::string ask = R"({"max_tokens": 9, "messages": [{"role": "user", "content": "a"}]})";
  const std::string messages = running.exchange(post("/v1/messages", ask));
  CHECK(status_of(messages) == 529);
  CHECK(body_of(messages).at("error").at("type") == "overloaded_error");
  CHECK(messages.find("Retry-After: ") != std::string::npos);
  const std::string ollama = running.exchange(post("/api/chat", ask));
  CHECK(status_of(ollama) == 503);
  CHECK(body_of(ollama).at("error").is_string());
}

}  // namespace
}  // namespace llmrt::server
