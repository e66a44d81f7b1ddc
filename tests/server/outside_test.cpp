// What real clients, browsers and proxies send over real sockets: offers of other protocols, aliases of paths, pages of
// other origins, foreign hosts; and what they are told.
#include <malloc.h>

#include <algorithm>
#include <set>

#include "server/trace_context.h"
#include "tests/server/running.h"

namespace llmrt::server {
namespace {

std::string code_of(const std::string& response) {
  return std::string(body_of(response).at("error").at("code").as_string());
}
std::string request(const std::string& line, const std::string& headers) {
  return fmt::format("{} HTTP/1.1\r\nConnection: close\r\n{}\r\n", line, headers);
}

TEST_CASE("an offer of another protocol is answered in this one, and the connection goes on") {
  Running run;
  run.engine->tokens = {'h', 'i'};
  Client client(run.server->port());
  const std::string offer =
      "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n";
  client.send(get("/v1/models", offer));
  CHECK(status_of(client.read_response()) == 200);
  client.send(post("/v1/chat/completions", kChat, offer));
  CHECK(status_of(client.read_response()) == 200);
  client.send(get("/health", "Connection: Upgrade, close\r\nUpgrade: TLS/1.0, HTTP/1.1\r\n"));
  CHECK(status_of(client.read_all()) == 200);
}

TEST_CASE("HTTP/2 without an offer is refused, and no error of ours") {
  Running run;
  Client client(run.server->port());
  client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string("\0\0\0\4\0\0\0\0\0", 9));
  CHECK(status_of(client.read_until("\r\n\r\n")) == 505);
  CHECK(status_of(run.exchange(get("/health"))) == 200);
  CHECK(run.lines.str().find(" error ") == std::string::npos);
}

TEST_CASE("a few empty lines between requests say nothing") {
  Running run;
  Client client(run.server->port());
  client.send(post("/tokenize", R"({"prompt":"a"})", "") + "\r\n\r\n");
  CHECK(status_of(client.read_response()) == 200);
  client.send("\r");
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  client.send("\n" + get("/health"));
  CHECK(status_of(client.read_all()) == 200);
  // A connection that sent some and then nothing is idle: it is closed, not refused.
  ServerConfig config;
  config.idle_s = 1;
  Running short_run(config);
  Client idle(short_run.server->port());
  idle.send("\r\n");
  CHECK(idle.read_all().empty());
}

TEST_CASE("connections may be idle for longer than load balancers keep them") {
  CHECK(ServerConfig().idle_s >= 75);
}

TEST_CASE("every answer has a date and an id") {
  Running run;
  run.engine->tokens = {'h', 'i'};
  std::set<std::string> ids;
  const std::string stream = R"({"prompt": "a", "stream": true})";
  for (const std::string& bytes :
       {get("/health"), get("/nothing"), get("/v1/models/none"), get("/v1/completions"), get("/metrics"),
        post("/v1/completions", R"({"prompt": "a"})"), post("/v1/completions", stream), post("/v1/completions", "{"),
        post("/tokenize", R"({"prompt": "a"})"), request("OPTIONS *", "Host: localhost\r\n"),
        request("GET /health", "Host: evil.example\r\n"), request("HEAD /health", "Host: localhost\r\n"),
        std::string("nonsense\r\n\r\n"), request("GET /health", "Host: localhost\r\nTransfer-Encoding: x\r\n")}) {
    const std::string response = run.exchange(bytes);
    INFO(bytes << "\n" << response);
    CHECK(header_of(response, "Date").ends_with(" GMT"));
    CHECK(header_of(response, "x-request-id").starts_with("req-"));
    CHECK(ids.insert(header_of(response, "x-request-id")).second);
  }
  run.engine->fail_at_end = Error{ErrorCode::kNotFinite, "logits"};
  run.engine->tokens = {'a'};
  for (const std::string& body : {stream, std::string(R"({"prompt": "a"})")}) {
    const std::string response = run.exchange(post("/v1/completions", body));
    CHECK(status_of(response) == 500);
    CHECK(header_of(response, "x-request-id").starts_with("req-"));
  }
}

TEST_CASE("the client's own id comes back, and stands in the log") {
  Running run;
  const std::string response =
      run.exchange(post("/v1/completions", "{", "Connection: close\r\nX-Request-ID: mine-1\r\n"));
  CHECK(header_of(response, "x-request-id") == "mine-1");
  CHECK(run.lines.str().find(", mine-1\n") != std::string::npos);
  const std::string odd = run.exchange(get("/health", "Connection: close\r\nx-request-id: a b\r\n"));
  CHECK(header_of(odd, "x-request-id").starts_with("req-"));
}

TEST_CASE("a client's second name for its request id counts where the first is not there, and comes back") {
  Running run;
  const auto ids = [&](const std::string& headers) {
    const std::string response = run.exchange(get("/health", "Connection: close\r\n" + headers));
    return std::pair(header_of(response, "x-request-id"), header_of(response, "x-client-request-id"));
  };
  using Ids = std::pair<std::string, std::string>;
  CHECK(ids("X-Client-Request-Id: c-1\r\n") == Ids("c-1", "c-1"));
  CHECK(ids("x-client-request-id: c-1\r\nx-request-id: r-1\r\n") == Ids("r-1", "c-1"));
  for (const char* odd : {"x-client-request-id: a b\r\n", "x-client-request-id: c-1\r\nx-client-request-id: c-1\r\n"}) {
    CHECK(ids(odd).first.starts_with("req-"));
    CHECK(ids(odd).second.empty());
  }
}

TEST_CASE("a traceparent is read strictly, and what breaks its form is ignored") {
  const std::string trace = "0af7651916cd43dd8448eb211c80319c", parent = "b7ad6b7169203331";
  const std::string good = "00-" + trace + "-" + parent + "-01";
  const auto read = parse_traceparent(good);
  REQUIRE(read);
  CHECK(read->trace_id == trace);
  CHECK(read->parent_id == parent);
  CHECK(traceparent_of(*read) == good);
  // Later versions may have more behind it.
  for (const std::string& later : {"cc-" + trace + "-" + parent + "-00", "01-" + trace + "-" + parent + "-09-more"}) {
    REQUIRE(parse_traceparent(later));
    CHECK(traceparent_of(*parse_traceparent(later)) == "00" + later.substr(2, 53));
  }
  for (const std::string& bad :
       {std::string(), good + "-", good + "-more", good + " ", good.substr(0, 54), "ff" + good.substr(2),
        "0x" + good.substr(2), "00-" + std::string(32, '0') + "-" + parent + "-01",
        "00-" + trace + "-" + std::string(16, '0') + "-01", "00-" + trace + "_" + parent + "-01",
        "00-0AF7651916CD43DD8448EB211C80319C-" + parent + "-01", "00-" + trace + "-" + parent + "-0g",
        "01-" + trace + "-" + parent + "-01more", "00-" + trace + parent + "-01",
        "00-" + trace + "-" + parent.substr(1) + "-001", std::string(1000, '0')}) {
    INFO(bad);
    CHECK_FALSE(parse_traceparent(bad));
  }
}

TEST_CASE("ids of a client's trace reach the answer, the request trace and the log") {
  const std::string trace = "0af7651916cd43dd8448eb211c80319c", parent = "00-" + trace + "-b7ad6b7169203331-01";
  Running run({}, letter_model(), LogFormat::kJson);
  run.engine->tokens = {'a'};
  const std::string headers = "Connection: close\r\nx-request-id: mine-1\r\nTraceparent: " + parent + "\r\n";
  for (const char* body : {R"({"prompt": ["a", "b"]})", R"({"prompt": ["a", "b"], "stream": true})", "{"}) {
    const std::string response = run.exchange(post("/v1/completions", body, headers));
    CHECK(header_of(response, "traceparent") == parent);
    CHECK(header_of(response, "x-request-id") == "mine-1");
  }
  REQUIRE(run.engine->requests().size() == 4);
  for (const Request& request : run.engine->requests()) {
    CHECK(request.names.http == "mine-1");
    CHECK(request.names.trace_id == trace);
  }
  CHECK(run.lines.str().find(R"("request_id":"mine-1","trace_id":")" + trace + '"') != std::string::npos);
  // A broken one, or two, are as none: nothing is made up.
  for (const std::string& odd :
       {"traceparent: x\r\n" + std::string(), "traceparent: " + parent + "\r\ntraceparent: " + parent + "\r\n"}) {
    const std::string response =
        run.exchange(post("/v1/completions", R"({"prompt": "a"})", "Connection: close\r\n" + odd));
    CHECK(status_of(response) == 200);
    CHECK(header_of(response, "traceparent").empty());
    CHECK(run.engine->requests().back().names.trace_id.empty());
  }
  CHECK(run.engine->requests().back().names.http.starts_with("req-"));
}

TEST_CASE("queries, a slash at the end, escapes and paths without /v1") {
  Running run;
  run.engine->tokens = {'h', 'i'};
  for (const char* path : {"/health?x=1", "/health/", "/%68ealth", "/models", "/v1/models/?limit=20", "/models/letters",
                           "/v1/models/letters/", "http://localhost/health?x"})
    CHECK(status_of(run.exchange(get(path))) == 200);
  for (const char* path : {"/chat/completions", "/v1/chat/completions/", "/v1/chat/completions?api-version=1"})
    CHECK(status_of(run.exchange(post(path, kChat))) == 200);
  CHECK(status_of(run.exchange(post("/completions", R"({"prompt": "a"})"))) == 200);
}

TEST_CASE("a path that is not there is named, with those that are") {
  Running run;
  const std::string response = run.exchange(get("/v1/embeddings%0a"));
  CHECK(status_of(response) == 404);
  const std::string message(body_of(response).at("error").at("message").as_string());
  CHECK(message.find("'/v1/embeddings%0a'") != std::string::npos);
  CHECK(message.find("POST /v1/chat/completions") != std::string::npos);
  CHECK(body_of(run.exchange(get("/" + std::string(5000, 'a')))).at("error").at("message").as_string().size() < 1500);
}

TEST_CASE("pages of other origins need a flag") {
  Running run;
  const std::string response = run.exchange(get("/v1/models", "Connection: close\r\nOrigin: http://a.example\r\n"));
  CHECK(status_of(response) == 200);
  CHECK(response.find("Access-Control") == std::string::npos);
  const std::string preflight =
      run.exchange(request("OPTIONS /v1/chat/completions",
                           "Host: localhost\r\nOrigin: http://a.example\r\nAccess-Control-Request-Method: POST\r\n"));
  CHECK(status_of(preflight) == 403);
  CHECK(code_of(preflight) == "origin_not_allowed");
  CHECK(preflight.find("--allowed-origins") != std::string::npos);
  // What a page may send without asking is no JSON.
  const std::string simple = run.exchange(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: http://a.example\r\nContent-Type: "
      "text/plain\r\nContent-Length: 15\r\nConnection: close\r\n\r\n{\"prompt\": \"a\"}");
  CHECK(status_of(simple) == 415);
  CHECK(run.engine->requests().empty());
}

TEST_CASE("pages of an allowed origin may ask, stream and read errors") {
  ServerConfig config;
  config.allowed_origins = {"http://a.example", "https://b.example:8443/"};
  Running run(config);
  run.engine->tokens = {'h', 'i'};
  const std::string preflight =
      run.exchange(request("OPTIONS /v1/chat/completions",
                           "Host: localhost\r\nOrigin: http://a.example\r\nAccess-Control-Request-Method: POST\r\n"
                           "Access-Control-Request-Headers: authorization,content-type,x-stainless-os\r\n"
                           "Access-Control-Request-Private-Network: true\r\n"));
  CHECK(status_of(preflight) == 204);
  CHECK(header_of(preflight, "Access-Control-Allow-Origin") == "http://a.example");
  CHECK(header_of(preflight, "Access-Control-Allow-Methods").find("POST") != std::string::npos);
  CHECK(header_of(preflight, "Access-Control-Allow-Headers") == "authorization,content-type,x-stainless-os");
  CHECK(header_of(preflight, "Access-Control-Allow-Private-Network") == "true");
  CHECK_FALSE(header_of(preflight, "Access-Control-Max-Age").empty());
  CHECK(header_of(preflight, "Vary") == "Origin");
  CHECK(preflight.find("Content-Length") == std::string::npos);

  const std::string from_b = "Connection: close\r\nOrigin: https://b.example:8443\r\n";
  for (const std::string& bytes :
       {get("/v1/models", from_b), get("/nothing", from_b), post("/v1/completions", "{", from_b),
        post("/v1/completions", R"({"prompt": "a"})", from_b),
        post("/v1/completions", R"({"prompt": "a", "stream": true})", from_b),
        post("/tokenize", std::string(10 << 20, ' '), from_b)}) {
    const std::string response = run.exchange(bytes);
    INFO(response);
    CHECK(header_of(response, "Access-Control-Allow-Origin") == "https://b.example:8443");
    CHECK(header_of(response, "Vary") == "Origin");
    CHECK(header_of(response, "Access-Control-Expose-Headers").find("x-request-id") != std::string::npos);
  }
  for (const char* origin : {"http://c.example", "null", "http://a.example.evil.example", "http://a.example:81"}) {
    const std::string other =
        run.exchange(get("/v1/models", fmt::format("Connection: close\r\nOrigin: {}\r\n", origin)));
    CHECK(header_of(other, "Access-Control-Allow-Origin").empty());
    CHECK(header_of(other, "Vary") == "Origin");
  }
  CHECK(header_of(run.exchange(get("/v1/models")), "Vary") == "Origin");
}

TEST_CASE("with a star any page may use the server") {
  ServerConfig config;
  config.allowed_origins = {"*"};
  Running run(config);
  const std::string response = run.exchange(get("/v1/models", "Connection: close\r\nOrigin: null\r\n"));
  CHECK(header_of(response, "Access-Control-Allow-Origin") == "*");
}

TEST_CASE("OPTIONS tells what a path takes") {
  Running run;
  const auto allow = [&](const char* target) {
    const std::string response = run.exchange(request(fmt::format("OPTIONS {}", target), "Host: localhost\r\n"));
    CHECK(status_of(response) == 204);
    return header_of(response, "Allow");
  };
  CHECK(allow("/v1/chat/completions") == "POST, OPTIONS");
  CHECK(allow("/health") == "GET, HEAD, OPTIONS");
  CHECK(allow("*") == "GET, HEAD, POST, OPTIONS");
  CHECK(status_of(run.exchange(request("OPTIONS /nothing", "Host: localhost\r\n"))) == 404);
}

TEST_CASE("a name that was made to point here is not served") {
  Running run;
  const uint16_t port = run.server->port();
  for (const std::string& host : {std::string("evil.example"), fmt::format("evil.example:{}", port),
                                  std::string("127.0.0.1.evil.example"), std::string("192.168.1.1")}) {
    const std::string response = run.exchange(request("GET /v1/models", fmt::format("Host: {}\r\n", host)));
    INFO(response);
    CHECK(status_of(response) == 403);
    CHECK(code_of(response) == "host_not_allowed");
    CHECK(response.find("--allowed-hosts") != std::string::npos);
    CHECK(response.find("letters") == std::string::npos);
  }
  // The target's host is what counts.
  CHECK(status_of(run.exchange(request("GET http://evil.example/v1/models", "Host: localhost\r\n"))) == 403);
  CHECK(status_of(run.exchange(request("GET http://localhost/v1/models", "Host: evil.example\r\n"))) == 200);
  for (const std::string& host :
       {std::string("localhost"), fmt::format("LocalHost:{}", port), std::string("127.0.0.1"), std::string("127.3.2.1"),
        fmt::format("[::1]:{}", port), std::string("app.localhost")})
    CHECK(status_of(run.exchange(request("GET /v1/models", fmt::format("Host: {}\r\n", host)))) == 200);
  CHECK(status_of(run.exchange("GET /v1/models HTTP/1.0\r\n\r\n")) == 200);  // no browser leaves it out
  CHECK(run.lines.str().find(" error ") == std::string::npos);
}

TEST_CASE("listed hosts are served, elsewhere all unless there is a list") {
  ServerConfig config;
  config.allowed_hosts = {"llm.example"};
  const std::string listed = request("GET /health", "Host: LLM.example:80\r\n");
  const std::string foreign = request("GET /health", "Host: evil.example\r\n");
  {
    Running run(config);
    CHECK(status_of(run.exchange(listed)) == 200);
    CHECK(status_of(run.exchange(foreign)) == 403);
    CHECK(status_of(run.exchange(get("/health"))) == 200);
  }
  config.hosts = {"0.0.0.0"};
  {
    Running run(config);
    CHECK(status_of(run.exchange(listed)) == 200);
    CHECK(status_of(run.exchange(foreign)) == 403);
  }
  config.allowed_hosts = {};
  Running open(config);
  CHECK(status_of(open.exchange(foreign)) == 200);
}

TEST_CASE("a body that is not called JSON is refused with what to add") {
  Running run;
  for (const char* type : {"", "Content-Type: application/x-www-form-urlencoded\r\n", "Content-Type: text/plain\r\n"}) {
    const std::string response = run.exchange(fmt::format(
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: 2\r\nConnection: close\r\n\r\n{{}}", type));
    CHECK(status_of(response) == 415);
    CHECK(response.find("-H 'Content-Type: application/json'") != std::string::npos);
  }
}

TEST_CASE("localhost is every loopback address") {
  ServerConfig config;
  config.hosts = {"localhost"};
  Running run(config);
  CHECK(status_of(run.exchange(get("/health"))) == 200);
  boost::system::error_code error;
  asio::io_context io;
  tcp::acceptor probe(io);
  probe.open(tcp::v6(), error);
  if (!error) probe.bind({asio::ip::address_v6::loopback(), 0}, error);
  if (error) SKIP("expected ::1 on this machine: " << error.message());
  Client client(run.server->port(), asio::ip::address_v6::loopback());
  client.send(get("/health"));
  CHECK(status_of(client.read_all()) == 200);
  CHECK(run.server->urls().size() == 2);
}

TEST_CASE("several hosts share a port, and one that cannot be had is an error") {
  ServerConfig config;
  config.hosts = {"127.0.0.1", "127.0.0.2"};
  Running run(config);
  REQUIRE(run.server->urls().size() == 2);
  Client client(run.server->port(), asio::ip::make_address("127.0.0.2"));
  client.send(get("/health"));
  CHECK(status_of(client.read_all()) == 200);
  config.hosts = {"127.0.0.1", "203.0.113.7"};
  config.port = 0;
  const auto server = Server::bind(config);
  REQUIRE_FALSE(server.ok());
  CHECK(server.error().message.find("203.0.113.7") != std::string::npos);
}

TEST_CASE("what routers and load generators ask for") {
  ServerConfig config;
  config.version = "1.2.3";
  Running run(config);
  EngineStats stats;
  stats.num_running = 2;
  stats.table_tokens = 40;
  run.engine->shown_stats = stats;
  CHECK(body_of(run.exchange(get("/version"))).at("version") == "1.2.3");
  CHECK(body_of(run.exchange(get("/live"))).at("status") == "live");
  CHECK(body_of(run.exchange(get("/ready"))).at("status") == "ready");
  for (const char* path : {"/server_info", "/get_server_info"}) {
    CHECK(body_of(run.exchange(get(path))).at("served_model_name") == "letters");
    CHECK(body_of(run.exchange(get(path))).at("version") == "1.2.3");
  }
  for (const char* path : {"/model_info", "/get_model_info"})
    CHECK(body_of(run.exchange(get(path))).at("model_path") == "letters");
  const std::string load = run.exchange(get("/get_load"));
  CHECK(load.find(R"([{"dp_rank":0,"num_reqs":2,"num_waiting_reqs":0,"num_tokens":40}])") != std::string::npos);
  CHECK(body_of(run.exchange(get("/v1/loads"))).at("loads").as_array().size() == 1);
  for (const char* path : {"/version", "/live", "/ready", "/server_info", "/model_info", "/get_load", "/v1/loads"}) {
    const std::string head = run.exchange(request(fmt::format("HEAD {}", path), "Host: localhost\r\n"));
    CHECK(status_of(head) == 200);
    CHECK(head.ends_with("\r\n\r\n"));
  }
  run.engine->trouble_text = "the device hangs";
  CHECK(status_of(run.exchange(get("/ready"))) == 503);
  CHECK(run.exchange(get("/health")).find("the device hangs") != std::string::npos);
  CHECK(status_of(run.exchange(get("/live"))) == 200);
}

TEST_CASE("a flood of refusals leaves few lines") {
  ServerConfig config;
  config.log_lines_max = 5;
  Running run(config);
  const auto begin = std::chrono::steady_clock::now();
  Client client(run.server->port());
  for (int i = 0; i < 300; ++i) {
    client.send(get("/nothing", ""));
    client.read_response();
  }
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begin).count();
  const std::string before = run.lines.str();
  CHECK(std::count(before.begin(), before.end(), '\n') <= 5 * (seconds + 2));
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  client.send(get("/nothing", "Connection: close\r\n"));
  client.read_all();
  CHECK(run.lines.str().find("lines like this were left out") != std::string::npos);
}

TEST_CASE("what a chat template refuses is told to the client and not to the log") {
  ServedModel model = letter_model();
  model.chat_template = std::move(*ChatTemplate::compile("{{ raise_exception('bad: ' + messages[0].content) }}"));
  Running run({}, std::move(model));
  const std::string body = R"({"messages": [{"role": "user", "content": "my secret"}]})";
  for (const char* path : {"/v1/chat/completions", "/tokenize"}) {
    const std::string response = run.exchange(post(path, body));
    CHECK(status_of(response) == 400);
    CHECK(response.find("bad: my secret") != std::string::npos);
  }
  const std::string lines = run.lines.str();
  CHECK(lines.find("secret") == std::string::npos);
  CHECK(lines.find("400 invalid_argument for \"/tokenize\"") != std::string::npos);
}

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("a body is gone while its answer is made") {
  ServerConfig config;
  Running run(config);
  run.engine->tokens.assign(200, 'a');
  run.engine->pause = std::chrono::milliseconds(200);
  const auto in_use = [] {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  std::string body = R"({"prompt": "a", "max_tokens": 200, "stream": true)";
  body += std::string(7 << 20, ' ') + "}";
  const std::string bytes = post("/v1/completions", body);
  const size_t before = in_use();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 6; ++i) {
    clients.push_back(std::make_unique<Client>(run.server->port()));
    clients.back()->send(bytes);
    clients.back()->read_until("data: ");
  }
  const size_t after = in_use();
  INFO(before << " bytes before, " << after << " after");
  CHECK(after < before + (8u << 20));
}
#endif

}  // namespace
}  // namespace llmrt::server
