// The server over real sockets, with a fake engine behind it: streams, disconnects, slow and hostile clients, draining.
#include <map>

#include "tests/server/http_vectors.h"
#include "tests/server/running.h"

namespace llmrt::server {
namespace {

TEST_CASE("a chat answer in one piece") {
  Running run;
  run.engine->tokens = {'h', 'i'};
  const json::object body = body_of(run.exchange(post("/v1/chat/completions", kChat)));
  CHECK(body.at("choices").as_array()[0].at("message").at("content") == "hi");
  CHECK(body.at("usage").at("completion_tokens") == 2);
  CHECK(run.engine->wait_drained(1));
  CHECK(run.engine->num_cancelled() == 0);
}

TEST_CASE("a stream follows the rules that clients test") {
  Running run;
  run.engine->tokens = {'h', 0xC3, 0xA4, '!'};
  const std::string response = run.exchange(post(
      "/v1/chat/completions",
      R"({"messages": [{"role": "user", "content": "a"}], "stream": true, "stream_options": {"include_usage": true}})"));
  CHECK(response.find("Content-Type: text/event-stream") != std::string::npos);
  const std::vector<std::string> events = events_of(response);
  REQUIRE(events.size() >= 4);
  CHECK(events.back() == "[DONE]");
  std::string text, id;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const json::object chunk = read_json(events[i])->as_object();
    if (i == 0) id = chunk.at("id").as_string();
    CHECK(chunk.at("id").as_string() == id);
    CHECK(chunk.at("object") == "chat.completion.chunk");
    const json::array& choices = chunk.at("choices").as_array();
    if (i + 2 == events.size()) {  // usage, with no choice
      CHECK(choices.empty());
      CHECK(chunk.at("usage").at("completion_tokens") == 4);
      continue;
    }
    CHECK(chunk.at("usage").is_null());
    const json::object& delta = choices[0].at("delta").as_object();
    if (i == 0) {
      CHECK(delta.at("role") == "assistant");
      CHECK(delta.at("content") == "");
    } else if (const auto* piece = delta.if_contains("content")) {
      text += piece->as_string();
    }
    CHECK(choices[0].at("finish_reason").is_null() == (i + 3 != events.size()));
  }
  CHECK(text == "h\xC3\xA4!");
  CHECK(run.engine->wait_drained(1));
}

TEST_CASE("several prompts are several choices") {
  Running run;
  run.engine->tokens = {'x', 'y'};
  const json::object body = body_of(run.exchange(post("/v1/completions", R"({"prompt": ["a", "b", "c"]})")));
  const json::array& choices = body.at("choices").as_array();
  REQUIRE(choices.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(choices[i].at("index") == i);
    CHECK(choices[i].at("text") == "xy");
  }
  CHECK(run.engine->wait_drained(3));
}

TEST_CASE("n choices of each prompt, each its own branch") {
  Running run;
  run.engine->tokens = {'k', 'l'};
  const json::object body = body_of(run.exchange(post("/v1/completions", R"({"prompt": ["a", "bc"], "n": 3})")));
  const json::array& choices = body.at("choices").as_array();
  REQUIRE(choices.size() == 6);
  const char* texts[] = {"kl", "lm", "mn"};
  for (size_t i = 0; i < 6; ++i) {
    CHECK(choices[i].at("index") == i);
    CHECK(choices[i].at("text") == texts[i % 3]);
  }
  CHECK(body.at("usage").at("prompt_tokens") == 3);
  CHECK(body.at("usage").at("completion_tokens") == 12);
  CHECK(run.engine->wait_drained(6));
  CHECK(run.engine->requests().size() == 2);

  const json::object best = body_of(run.exchange(post("/v1/completions", R"({"prompt": "a", "best_of": 3})")));
  REQUIRE(best.at("choices").as_array().size() == 1);
  CHECK(best.at("choices").as_array()[0].at("text") == "mn");  // the fake engine finds later branches more likely
  CHECK(best.at("usage").at("completion_tokens") == 6);
  CHECK(run.engine->wait_drained(9));
}

TEST_CASE("a stream of several choices says of each chunk whose it is") {
  Running run;
  run.engine->tokens = {'k', 'l'};
  const std::string chat =
      R"({"messages": [{"role": "user", "content": "a"}], "n": 3, "stream": true, "stream_options": {"include_usage": true}})";
  const std::vector<std::string> events = events_of(run.exchange(post("/v1/chat/completions", chat)));
  std::map<int, std::string> texts;
  std::map<int, int> num_roles, num_ends;
  for (size_t i = 0; i + 2 < events.size(); ++i) {
    const json::object chunk = read_json(events[i])->as_object();
    const json::object& choice = chunk.at("choices").as_array().at(0).as_object();
    const int index = choice.at("index").to_number<int>();
    const json::object& delta = choice.at("delta").as_object();
    num_roles[index] += delta.contains("role");
    if (const auto* piece = delta.if_contains("content")) texts[index] += piece->as_string();
    num_ends[index] += !choice.at("finish_reason").is_null();
  }
  CHECK(texts == std::map<int, std::string>{{0, "kl"}, {1, "lm"}, {2, "mn"}});
  CHECK(num_roles == std::map<int, int>{{0, 1}, {1, 1}, {2, 1}});
  CHECK(num_ends == std::map<int, int>{{0, 1}, {1, 1}, {2, 1}});
  const json::object usage = read_json(events[events.size() - 2])->as_object().at("usage").as_object();
  CHECK(usage.at("completion_tokens") == 6);
  CHECK(usage.at("prompt_tokens") ==
        body_of(run.exchange(post("/v1/chat/completions", kChat))).at("usage").at("prompt_tokens"));
}

TEST_CASE("continuous usage stands in every chunk and grows to the last one's") {
  Running run;
  run.engine->tokens = {'k', 'l', 'm'};
  const std::string body = R"({"prompt": ["a", "bc"], "stream": true,
      "stream_options": {"include_usage": true, "continuous_usage_stats": true}})";
  const std::vector<std::string> events = events_of(run.exchange(post("/v1/completions", body)));
  int64_t generated = 0;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const json::object chunk = read_json(events[i])->as_object();
    const json::object& usage = chunk.at("usage").as_object();
    const bool is_last = i + 2 == events.size();
    CHECK(usage.at("prompt_tokens") == 3);
    CHECK(usage.at("completion_tokens").as_int64() >= generated);
    generated = usage.at("completion_tokens").as_int64();
    CHECK(usage.at("total_tokens") == 3 + generated);
    CHECK(usage.contains("prompt_tokens_details") == is_last);
  }
  CHECK(generated == 6);
}

TEST_CASE("a client that goes away cancels every branch") {
  Running run;
  run.engine->tokens.assign(100, 'x');
  run.engine->pause = std::chrono::milliseconds(50);
  Client client(run.server->port());
  client.send(post("/v1/completions", R"({"prompt": "a", "n": 4, "max_tokens": 100, "stream": true})"));
  client.read_until("data: ");
  client.close();
  CHECK(run.engine->wait_cancelled(4));
}

TEST_CASE("the other paths") {
  Running run;
  CHECK(body_of(run.exchange(get("/v1/models"))).at("data").as_array()[0].at("id") == "letters");
  CHECK(body_of(run.exchange(get("/v1/models/letters"))).at("max_model_len") == 256);
  CHECK(body_of(run.exchange(get("/v1/models/other"))).at("error").at("code") == "model_not_found");
  CHECK(status_of(run.exchange(get("/health"))) == 200);
  CHECK(body_of(run.exchange(post("/tokenize", R"({"prompt": "ab"})"))).at("count") == 2);
  CHECK(body_of(run.exchange(post("/detokenize", R"({"tokens": [97]})"))).at("prompt") == "a");
  const std::string chat = R"({"messages": [{"role": "user", "content": "a"}]})";
  CHECK(body_of(run.exchange(post("/v1/chat/completions/render", chat))).at("token_ids").as_array().size() == 19);
  const std::string rendered = run.exchange(post("/v1/completions/render", R"({"prompt": "ab"})"));
  CHECK(json::parse(rendered.substr(rendered.find("\r\n\r\n") + 4)).as_array().at(0).at("token_ids") ==
        json::array({97, 98}));
  CHECK(run.engine->requests().empty());
  // The connections before may still be closing.
  std::string metrics;
  for (int i = 0; i < 100 && metrics.find("llmrt_connections_open 1\n") == std::string::npos; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    metrics = run.exchange(get("/metrics"));
  }
  CHECK(metrics.find("llmrt_requests_running 0\n") != std::string::npos);
  CHECK(metrics.find("llmrt_http_responses_total{status=\"200\"}") != std::string::npos);
  CHECK(metrics.find("llmrt_time_to_first_token_seconds_bucket{le=\"+Inf\"} 0\n") != std::string::npos);
  CHECK(metrics.find("llmrt_requests_refused_total{code=\"model_not_found\"} 1\n") != std::string::npos);
  CHECK(metrics.find("llmrt_connections_open 1\n") != std::string::npos);
  CHECK(metrics.find(fmt::format("llmrt_client_memory_limit_bytes {}\n", ServerConfig().client_memory_bytes)) !=
        std::string::npos);
  CHECK(metrics.find("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n") != std::string::npos);
  const std::string open_metrics = run.exchange(
      get("/metrics", "Accept: text/html\r\nAccept: application/openmetrics-text\r\nConnection: close\r\n"));
  CHECK(open_metrics.find("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n") !=
        std::string::npos);
  CHECK(open_metrics.ends_with("# EOF\n"));
  CHECK(status_of(run.exchange(get("/nothing"))) == 404);
  for (const char* path : {"//health", "/v1/../health", "/v1/health", "/HEALTH", "/%2568ealth", "/%6", "/v1/v1/models"})
    CHECK(status_of(run.exchange(get(path))) == 404);
  const std::string wrong = run.exchange(get("/v1/completions"));
  CHECK(status_of(wrong) == 405);
  CHECK(wrong.find("Allow: POST, OPTIONS\r\n") != std::string::npos);
  CHECK(status_of(run.exchange(
            "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")) == 415);
}

TEST_CASE("a saturated server says so in /health and /metrics, and stays ready") {
  Running run;
  CHECK(body_of(run.exchange(get("/health"))).at("saturated").as_array().empty());
  EngineStats stats;
  stats.saturation[static_cast<size_t>(Saturation::kQueueRising)] = {true, 5000, 1200, 7};
  stats.blocks_total = 100;
  stats.table_slots = 1600;
  stats.table_tokens = 1200;
  stats.littles_law = {.in_system = 10, .arrivals_per_s = 2, .time_in_system_s = 4};
  stats.step_rows.add(3);
  run.engine->shown_stats = stats;
  const std::string health = run.exchange(get("/health"));
  CHECK(status_of(health) == 200);
  CHECK(body_of(health).at("status") == "ok");
  const json::array saturated = body_of(health).at("saturated").as_array();
  REQUIRE(saturated.size() == 1);
  CHECK(saturated[0].at("verdict") == "queue_rising");
  CHECK(saturated[0].at("value") == 5000.0);
  CHECK(saturated[0].at("limit") == 1200.0);
  const std::string metrics = run.exchange(get("/metrics"));
  for (const char* line : {"llmrt_saturated{verdict=\"queue_rising\"} 1\n", "llmrt_saturated{verdict=\"kv_short\"} 0\n",
                           "llmrt_saturation_value{verdict=\"queue_rising\"} 5000\n", "llmrt_kv_table_slots 1600\n",
                           "llmrt_kv_utilization_ratio 0.75\n", "llmrt_littles_law_residual_ratio 0.2\n",
                           "llmrt_step_rows_bucket{le=\"4.0\"} 1\n", "llmrt_step_rows_bucket{le=\"2.0\"} 0\n"}) {
    INFO(line);
    CHECK(metrics.find(line) != std::string::npos);
  }
}

TEST_CASE("the engine hears of each branch what it is called and when its bytes were sent") {
  Running run;
  run.engine->tokens = {'a', 'b', 'c', 'd'};
  run.engine->pause = std::chrono::milliseconds(20);
  const TimeNs begin = SteadyClock().now_ns();
  const json::object whole = body_of(run.exchange(post("/v1/completions", R"({"prompt": ["a", "b"]})")));
  REQUIRE(run.engine->wait_drained(2));
  const std::string id(whole.at("id").as_string());
  CHECK(run.engine->requests()[0].names.answer == id + "-0");
  CHECK(run.engine->requests()[1].names.answer == id + "-1");
  for (const RequestId branch : {1, 2}) {
    const SentTimes sent = run.engine->sent_times(branch);
    CHECK(sent.first_ns > begin);
    CHECK(sent.last_ns == sent.first_ns);  // all at once
  }

  run.exchange(post("/v1/completions", R"({"prompt": "a", "stream": true, "n": 2})"));
  REQUIRE(run.engine->wait_drained(4));
  for (const RequestId branch : {3, 4}) {
    const SentTimes sent = run.engine->sent_times(branch);
    CHECK(sent.first_ns > begin);
    CHECK(sent.last_ns - sent.first_ns >= 2 * 20'000'000);  // four tokens, 20 ms apart
  }

  // Tokens of the prompt are sent, too, and are no answer.
  run.engine->prompt_tokens = {'p'};
  const TimeNs echo_begin = SteadyClock().now_ns();
  run.exchange(post("/v1/completions", R"({"prompt": "p", "stream": true, "echo": true, "logprobs": 0})"));
  REQUIRE(run.engine->wait_drained(5));
  CHECK(run.engine->sent_times(5).first_ns >= echo_begin + 2 * 20'000'000);
  run.engine->prompt_tokens.clear();

  // A client that goes away in the middle: what it got before is told too.
  run.engine->tokens.assign(200, 'x');
  Client client(run.server->port());
  client.send(post("/v1/completions", R"({"prompt": "a", "max_tokens": 200, "stream": true})"));
  client.read_until("data: ");
  client.close();
  REQUIRE(run.engine->wait_cancelled(1));
  CHECK(run.engine->sent_times(6).first_ns > begin);
}

TEST_CASE("errors have one form, and the right status") {
  Running run;
  const auto error = [&](const std::string& body) {
    const std::string response = run.exchange(post("/v1/completions", body));
    const json::object object = body_of(response).at("error").as_object();
    CHECK(object.size() == 4);
    return std::pair(status_of(response), std::string(object.at("code").as_string()));
  };
  CHECK(error("{") == std::pair(400, std::string("invalid_json")));
  CHECK(error("[1]") == std::pair(400, std::string("invalid_argument")));
  CHECK(error("{\"prompt\": \"\xff\"}") == std::pair(400, std::string("invalid_json")));
  CHECK(error(R"({"prompt": "a", "temprature": 1})") == std::pair(400, std::string("unknown_field")));
  run.engine->refuse = Error{ErrorCode::kOverloaded, "queue full"};
  const std::string busy = run.exchange(post("/v1/completions", R"({"prompt": "a"})"));
  CHECK(status_of(busy) == 503);
  CHECK(busy.find("Retry-After: ") != std::string::npos);
  run.engine->refuse = Error{ErrorCode::kNeverFits, "too large"};
  CHECK(error(R"({"prompt": "a"})") == std::pair(400, std::string("never_fits")));
  run.engine->trouble_text = "device lost";
  CHECK(status_of(run.exchange(get("/health"))) == 503);
}

TEST_CASE("every refusal leaves one line, whatever the client sent") {
  Running run;
  CHECK(status_of(run.exchange(post("/v1/completions", R"({"prompt": "a", "request_class": "x\nforged"})"))) == 400);
  const std::string lines = run.lines.str();
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 1);
  CHECK(lines.find("400 invalid_argument for \"/v1/completions\": \"request_class") != std::string::npos);
  CHECK(lines.find("forged") != std::string::npos);
}

TEST_CASE("a log in JSON says of a refusal whose it is, whatever the client sent") {
  Running run({}, letter_model(), LogFormat::kJson);
  const std::string headers = "Connection: close\r\nx-request-id: mine-1\r\n";
  CHECK(status_of(run.exchange(
            post("/v1/completions", R"({"prompt": "a", "request_class": "x\n\u001b{}"})", headers))) == 400);
  run.engine->tokens = {'a'};
  run.engine->fail_at_end = Error{ErrorCode::kNotFinite, "log\"its"};
  CHECK(status_of(run.exchange(post("/v1/completions", R"({"prompt": "a"})", headers))) == 500);
  std::istringstream lines(run.lines.str());
  std::string line;
  REQUIRE(std::getline(lines, line));
  const json::object refused = read_json(line)->as_object();
  CHECK(refused.at("level") == "info");
  CHECK(refused.at("status") == 400);
  CHECK(refused.at("code") == "invalid_argument");
  CHECK(refused.at("path") == "/v1/completions");
  CHECK(refused.at("request_id") == "mine-1");
  CHECK(std::string(refused.at("message").as_string()).starts_with("400 invalid_argument for \"/v1/completions\": "));
  CHECK_FALSE(refused.contains("key"));
  REQUIRE(std::getline(lines, line));
  const json::object failed = read_json(line)->as_object();
  CHECK(failed.at("level") == "error");
  CHECK(failed.at("model") == "letters");
  CHECK(failed.at("code") == "not_finite_logits");
  CHECK_FALSE(std::getline(lines, line));
}

TEST_CASE("an error before the first token is a status, after it an event and a close") {
  Running run;
  run.engine->fail_at_end = Error{ErrorCode::kNotFinite, "logits"};
  run.engine->tokens = {'a'};
  const std::string body = R"({"prompt": "a", "stream": true})";
  CHECK(status_of(run.exchange(post("/v1/completions", body))) == 500);
  run.engine->tokens = {'a', 'b', 'c'};
  run.engine->pause = std::chrono::milliseconds(20);
  const std::vector<std::string> events = events_of(run.exchange(post("/v1/completions", body, "")));
  REQUIRE(events.size() >= 2);
  CHECK(read_json(events.back())->at("error").at("code") == "not_finite_logits");
}

TEST_CASE("a connection serves one request after the other, pipelined ones too") {
  Running run;
  run.engine->tokens = {'x'};
  Client client(run.server->port());
  const std::string one = post("/v1/completions", R"({"prompt": "a"})", "");
  client.send(one + one + get("/health"));
  const std::string all = client.read_all();
  size_t count = 0;
  for (size_t at = all.find("HTTP/1.1 200"); at != std::string::npos; at = all.find("HTTP/1.1 200", at + 1)) ++count;
  CHECK(count == 3);
}

TEST_CASE("chunked bodies and Expect: 100-continue are understood") {
  Running run;
  CHECK(body_of(
            run.exchange(
                "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
                "Transfer-Encoding: chunked\r\n\r\n8;x=y\r\n{\"prompt\r\n6\r\n\":\"a\"}\r\n0\r\n\r\n"))
            .at("count") == 1);
  Client client(run.server->port());
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
      "Expect: 100-continue\r\nContent-Length: 14\r\n\r\n");
  CHECK(client.read_until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
  client.send(R"({"prompt":"a"})");
  CHECK(body_of(client.read_all()).at("count") == 1);
}

TEST_CASE("a body of 10 MB is refused while it is still being sent") {
  Running run;
  const std::string response = run.exchange(post("/tokenize", std::string(10 << 20, ' ')));
  CHECK(status_of(response) == 413);
  CHECK(body_of(response).at("error").at("code") == "body_too_large");
  CHECK(status_of(run.exchange(get("/health"))) == 200);
}

TEST_CASE("hostile requests are refused and end the connection, at whatever byte they are cut in two") {
  Running run;
  for (const HttpVector& vector : hostile_vectors()) {
    const size_t step = std::max<size_t>(1, vector.bytes.size() / 150);
    for (size_t cut = 0; cut < vector.bytes.size(); cut += step) {
      Client client(run.server->port());
      client.socket().set_option(tcp::no_delay(true));
      client.send(std::string_view(vector.bytes).substr(0, cut));
      if (cut > 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
      client.send(std::string_view(vector.bytes).substr(cut));
      boost::system::error_code ignored;
      client.socket().shutdown(tcp::socket::shutdown_send, ignored);
      const std::string response = client.read_all();
      INFO(vector.name << ", cut at " << cut << ": " << response);
      REQUIRE(status_of(response) == vector.status);
      REQUIRE(response.find("HTTP/1.1", 8) == std::string::npos);
    }
  }
  CHECK(status_of(run.exchange(get("/health"))) == 200);
}

TEST_CASE("a client that goes away cancels its request") {
  Running run;
  run.engine->tokens.assign(200, 'a');
  run.engine->pause = std::chrono::milliseconds(10);
  for (const char* stream : {"true", "false"}) {
    Client client(run.server->port());
    client.send(post("/v1/completions", fmt::format(R"({{"prompt": "a", "max_tokens": 200, "stream": {}}})", stream)));
    if (std::string(stream) == "true") client.read_until("data: ");
    const size_t before = run.engine->num_cancelled();
    if (before == run.engine->requests().size()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    client.close();
    CHECK(run.engine->wait_cancelled(before + 1));
  }
  CHECK(run.engine->wait_drained(2));  // their ends are acknowledged all the same
}

TEST_CASE("a client that does not read is given up, and the others are served") {
  ServerConfig config;
  config.write_s = 1;
  Running run(config);
  run.engine->tokens.assign(200, 'a');
  run.engine->pause = std::chrono::milliseconds(50);
  // 128 choices write about 2 MB a second: soon more than socket buffers hold.
  Client lazy(run.server->port());
  lazy.socket().set_option(tcp::socket::receive_buffer_size(4096));
  std::string prompts = "\"a\"";
  for (int i = 0; i < 127; ++i) prompts += ",\"a\"";
  lazy.send(
      post("/v1/completions", R"({"stream": true, "max_tokens": 200, "logprobs": 20, "prompt": [)" + prompts + "]}"));
  lazy.read_until("data: ");
  CHECK(status_of(run.exchange(get("/health"))) == 200);
  CHECK(run.engine->wait_cancelled(128));
}

TEST_CASE("a client that leaves is noticed whatever it has sent behind its request") {
  Running run;
  run.engine->tokens.assign(2000, 'a');
  run.engine->pause = std::chrono::milliseconds(10);
  size_t num_gone = 0;
  for (const std::string& behind :
       {std::string("G"), std::string("\r\n"), get("/health", ""), std::string(30000, 'x')}) {
    Client client(run.server->port());
    client.send(post("/v1/completions", R"({"prompt": "a", "max_tokens": 200, "stream": true})", "") + behind);
    client.read_until("data: ");
    client.close();
    INFO(behind.size() << " bytes");
    CHECK(run.engine->wait_cancelled(++num_gone));
  }
  // So much ahead is no client that waits for an answer.
  Client client(run.server->port());
  client.send(post("/v1/completions", R"({"prompt": "a", "max_tokens": 200, "stream": true})", "") +
              std::string(1 << 20, 'x'));
  client.read_all();
  CHECK(run.engine->wait_cancelled(run.engine->requests().size()));  // its own may not have been submitted at all
}

TEST_CASE("a stream that is read too slowly is given up, though each read makes progress") {
  ServerConfig config;
  config.write_s = 2;
  Running run(config);
  run.engine->tokens.assign(250, 'a');
  Client lazy(run.server->port());
  lazy.socket().set_option(tcp::socket::receive_buffer_size(4096));
  std::string prompts = "\"a\"";
  for (int i = 0; i < 127; ++i) prompts += ",\"a\"";
  lazy.send(post("/v1/completions", R"({"stream": true, "max_tokens": 250, "prompt": [)" + prompts + "]}"));
  // 32,000 events are some megabytes; 16 KiB a second are less than the least rate.
  const auto begin = std::chrono::steady_clock::now();
  std::vector<char> some(4096);
  boost::system::error_code error;
  while (!error && std::chrono::steady_clock::now() - begin < std::chrono::seconds(90)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    lazy.socket().read_some(asio::buffer(some), error);
    if (run.engine->num_let_go() >= 128) break;
  }
  CHECK(run.engine->wait_let_go(128));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(90));  // to read it all would take minutes
}

// Tokens with as many alternatives as one may ask for: kilobytes of text each.
void give_alternatives(FakeEngine& engine) {
  for (int i = 0; i < 20; ++i) engine.alternatives.push_back({'a' + i, -1.0f - static_cast<float>(i)});
}

TEST_CASE("others are answered while an answer of many megabytes is made") {
  Running run;
  give_alternatives(*run.engine);
  run.engine->tokens.assign(200, 'a');
  std::atomic<bool> over{false};
  size_t num_bytes = 0;
  std::thread large([&] {
    const std::string body =
        R"({"messages": [{"role": "user", "content": "a"}], "n": 128, "max_tokens": 200, "logprobs": true, "top_logprobs": 20})";
    num_bytes = run.exchange(post("/v1/chat/completions", body)).size();
    over = true;
  });
  std::chrono::steady_clock::duration longest{};
  while (!over) {
    const auto begin = std::chrono::steady_clock::now();
    REQUIRE(status_of(run.exchange(get("/health"))) == 200);
    longest = std::max(longest, std::chrono::steady_clock::now() - begin);
  }
  large.join();
  CHECK(num_bytes > (20u << 20));
  CHECK(longest < std::chrono::milliseconds(1000));
}

TEST_CASE("an answer that outgrows what clients may hold ends with the limit, and the room is free again") {
  ServerConfig config;
  config.client_memory_bytes = 8 << 20;
  Running run(config);
  give_alternatives(*run.engine);
  run.engine->tokens.assign(200, 'a');
  const std::string body = R"({"prompt": "a", "n": 128, "max_tokens": 200, "logprobs": 20)";
  const std::string refused = run.exchange(post("/v1/completions", body + "}"));
  CHECK(status_of(refused) == 503);
  CHECK(body_of(refused).at("error").at("message").as_string().find("--client-memory-mib") != std::string::npos);
  CHECK(refused.find("Retry-After: ") != std::string::npos);
  CHECK(run.exchange(get("/metrics")).find("llmrt_client_memory_refusals_total{part=\"answer\"} 1\n") !=
        std::string::npos);
  run.engine->wait_ended();
  run.engine->tokens.assign(2, 'a');
  CHECK(status_of(run.exchange(post("/v1/completions", body + "}"))) == 200);
}

TEST_CASE("a connection that finds no memory ends alone, and is counted") {
  Running run;
  run.engine->has_memory = false;
  CHECK(run.exchange(post("/v1/completions", R"({"prompt": "a"})")).empty());
  CHECK(run.lines.str().find("a connection ended: ") != std::string::npos);
  CHECK(run.exchange(get("/metrics")).find("llmrt_host_out_of_memory_total 1\n") != std::string::npos);
}

TEST_CASE("one token has one name in every list of log-probabilities") {
  Running run;
  run.engine->alternatives = {{kEndToken, -0.5f}, {'b', -2.0f}};
  run.engine->tokens = {'a', kEndToken, kStartToken};
  const json::object text =
      body_of(run.exchange(post("/v1/completions", R"({"prompt": "a", "logprobs": 2, "max_tokens": 3})")));
  const json::object& lists = text.at("choices").as_array()[0].at("logprobs").as_object();
  CHECK(lists.at("tokens") == json::array({"a", "<|end|>", "<|start|>"}));
  for (size_t i = 0; i < 3; ++i) {
    const std::string token(lists.at("tokens").as_array()[i].as_string());
    CHECK(lists.at("top_logprobs").as_array()[i].as_object().contains(token));
  }
  const json::object chat = body_of(run.exchange(post(
      "/v1/chat/completions",
      R"({"messages": [{"role": "user", "content": "a"}], "logprobs": true, "top_logprobs": 2, "max_tokens": 3})")));
  const json::array& content = chat.at("choices").as_array()[0].at("logprobs").at("content").as_array();
  CHECK(content[1].at("token") == "<|end|>");
  CHECK(content[1].at("bytes") == content[0].at("top_logprobs").as_array()[0].at("bytes"));
  CHECK(content[0].at("top_logprobs").as_array()[0].at("token") == "<|end|>");
}

TEST_CASE("headers and bodies that come too slowly are refused") {
  ServerConfig config;
  config.header_s = 1;
  config.body_s = 1;
  config.idle_s = 1;
  Running run(config);
  Client head(run.server->port()), body(run.server->port()), idle(run.server->port());
  head.send("GET /health HTTP/1.1\r\n");
  body.send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{");
  CHECK(idle.read_some().empty());
  CHECK(status_of(head.read_until("\r\n\r\n")) == 408);
  CHECK(status_of(body.read_until("\r\n\r\n")) == 408);
}

TEST_CASE("draining lets open answers finish and refuses new ones") {
  auto engine = std::make_shared<FakeEngine>();
  engine->tokens.assign(30, 'a');
  engine->pause = std::chrono::milliseconds(10);
  ServerConfig config;
  config.port = 0;
  auto server = std::move(*Server::listen(config, letter_model(), engine));
  std::thread thread([&] { server->run(); });
  Client busy(server->port()), idle(server->port());
  idle.send(get("/health", ""));
  CHECK(status_of(idle.read_until("\"saturated\":[]}")) == 200);
  busy.send(post("/v1/completions", R"({"prompt": "a", "max_tokens": 30, "stream": true})", ""));
  busy.read_until("data: ");
  server->drain();
  CHECK(idle.read_all().empty());  // closed
  CHECK(busy.read_all().find("data: [DONE]") != std::string::npos);
  thread.join();
  engine->join();
}

TEST_CASE("what outlives the grace time ends with an error event") {
  auto engine = std::make_shared<FakeEngine>();
  engine->tokens.assign(200, 'a');
  engine->pause = std::chrono::milliseconds(50);
  ServerConfig config;
  config.port = 0;
  config.grace_s = 1;
  auto server = std::move(*Server::listen(config, letter_model(), engine));
  std::thread thread([&] { server->run(); });
  Client client(server->port());
  client.send(post("/v1/completions", R"({"prompt": "a", "max_tokens": 200, "stream": true})", ""));
  client.read_until("data: ");
  server->drain();
  const std::string rest = client.read_all();
  CHECK(rest.find("\"code\":\"cancelled\"") != std::string::npos);
  CHECK(rest.find("[DONE]") == std::string::npos);
  thread.join();
  engine->join();
}

TEST_CASE("a model's name is escaped in its path") {
  ServedModel model = letter_model();
  model.id = "My Mod\u00e9l/50%";
  Running run({}, model);
  for (const char* path : {"My%20Mod%C3%A9l/50%25", "My%20Mod%c3%a9l%2F50%25", "%4dy%20Mod%C3%A9l%2f50%25"})
    CHECK(body_of(run.exchange(get(fmt::format("/v1/models/{}", path)))).at("id") == json::string(model.id));
  for (const char* path : {"My%20Mod%C3%A9l/50%", "My%20Mod%C3%A9l/50%2", "My%20Mod%C3%A9l/50%+5",
                           "My+Mod%C3%A9l/50%25", "My%20Mod%C3%A9l/50%25%00", "%"})
    CHECK(body_of(run.exchange(get(fmt::format("/v1/models/{}", path)))).at("error").at("code") == "model_not_found");
}

TEST_CASE("a model's name that is no UTF-8 is an error before anybody hears it") {
  ServedModel model = letter_model();
  model.id = "letters\xff";
  ServerConfig config;
  config.port = 0;
  const auto server = Server::listen(config, model, std::make_shared<FakeEngine>());
  REQUIRE_FALSE(server.ok());
  CHECK(server.error().code == ErrorCode::kInvalidArgument);
  CHECK(server.error().message == "model: expected a name in UTF-8, found letters\xef\xbf\xbd");
}

TEST_CASE("a port in use is an error with the place") {
  Running run;
  ServerConfig config;
  config.port = run.server->port();
  const auto second = Server::listen(config, letter_model(), run.engine);
  REQUIRE_FALSE(second.ok());
  CHECK(second.error().code == ErrorCode::kIo);
  CHECK(second.error().message.find(std::to_string(config.port)) != std::string::npos);
}

TEST_CASE("many clients at once, half of them gone in the middle") {
  Running run;
  run.engine->tokens.assign(20, 'a');
  run.engine->pause = std::chrono::milliseconds(1);
  std::vector<std::thread> clients;
  std::atomic<int> num_whole{0};
  for (int i = 0; i < 64; ++i)
    clients.emplace_back([&, i] {
      Client client(run.server->port());
      client.send(post("/v1/completions", R"({"prompt": "a", "max_tokens": 20, "stream": true})"));
      if (i % 2 == 0) {
        client.read_until("data: ");
        client.close();
      } else if (client.read_all().find("[DONE]") != std::string::npos) {
        ++num_whole;
      }
    });
  for (std::thread& client : clients) client.join();
  CHECK(num_whole == 32);
  CHECK(run.engine->wait_drained(32));
}

}  // namespace
}  // namespace llmrt::server
