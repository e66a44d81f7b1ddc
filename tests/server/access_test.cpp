// Keys over real sockets: who is answered, what is told to whom is not, limits, and what the engine hears of a key.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "server/routes.h"
#include "tests/server/open_paths.h"
#include "tests/server/running.h"

namespace llmrt::server {
namespace {

// A file with the test's keys, gone with it.
class KeyFile {
 public:
  explicit KeyFile(std::string_view text)
      : path_((std::filesystem::temp_directory_path() / fmt::format("llmrt_access_{}", getpid())).string()) {
    write(text);
  }
  ~KeyFile() { std::filesystem::remove(path_); }
  void write(std::string_view text) const { std::ofstream(path_) << text; }
  ServerConfig config() const {
    ServerConfig config;
    config.api_key_file = path_;
    return config;
  }

 private:
  std::string path_;
};

const std::string kSecret = "secret-of-alice-0123", kOther = "secret-of-bob-012345";
std::string bearer(const std::string& secret, const std::string& more = "Connection: close\r\n") {
  return fmt::format("Authorization: Bearer {}\r\n{}", secret, more);
}
const std::string kPrompt = R"({"prompt": "abc", "max_tokens": 5})";

TEST_CASE("without a key and with a wrong one every protected path is 401") {
  const KeyFile file("alice " + kSecret + "\n");
  Running run(file.config());
  run.engine->tokens = {'h', 'i'};
  size_t num_protected = 0;
  for (const RouteRow& row : routes()) {
    const std::string path = (row.is_v1 ? "/v1" : "") + std::string(row.path);
    const auto ask = [&](const std::string& headers) {
      std::string bytes = row.method == Method::kPost ? post(path, kPrompt, headers) : get(path, headers);
      if (row.method == Method::kDelete) bytes = "DELETE" + bytes.substr(3);
      return run.exchange(bytes);
    };
    INFO(method_name(row.method) << " " << path);
    const bool is_open = is_open_path(path);
    for (const std::string& headers :
         {std::string("Connection: close\r\n"), bearer("wrong"), bearer(kSecret + "x"), bearer(kSecret.substr(1)),
          std::string("Connection: close\r\nAuthorization: Basic " + kSecret + "\r\n"),
          std::string("Connection: close\r\nCookie: " + kSecret + "\r\n")}) {
      const std::string response = ask(headers);
      CHECK(status_of(response) == (is_open ? 200 : 401));
      if (is_open) continue;
      if (row.errors == ErrorForm::kOpenAi) {
        const json::object error = body_of(response).at("error").as_object();
        CHECK(error.at("type") == "authentication_error");
        CHECK(error.at("code") == "invalid_api_key");
      }
      CHECK(header_of(response, "WWW-Authenticate") == "Bearer");
      CHECK_FALSE(header_of(response, "x-request-id").empty());
      CHECK(response.find("letters") == std::string::npos);
    }
    num_protected += !is_open;
    for (const std::string& headers : {bearer(kSecret), "Connection: close\r\nx-api-key: " + kSecret + "\r\n"})
      CHECK(status_of(ask(headers)) != 401);
  }
  CHECK(num_protected >= 13);
  // No other spelling of a path and no other method gets around it.
  for (const char* path : {"/v1/models/letters", "/models", "/v1/models/", "/v1/model%73", "/nothing", "/metrics/",
                           "http://localhost/v1/models", "/v1/models?x=/health", "//health"})
    CHECK(status_of(run.exchange(get(path))) == 401);
  for (const char* method : {"HEAD", "PUT", "DELETE", "PATCH", "TRACE"})
    CHECK(status_of(run.exchange(
              fmt::format("{} /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", method))) == 401);
  CHECK(status_of(run.exchange("OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")) == 204);
}

TEST_CASE("metrics may be open, and tell keys by name") {
  const KeyFile file("alice " + kSecret + "\nbob " + kOther + " requests-per-minute=1\n");
  ServerConfig config = file.config();
  config.open_metrics = true;
  Running run(config);
  run.engine->tokens = {'a', 'b'};
  CHECK(status_of(run.exchange(post("/v1/completions", kPrompt, bearer(kSecret)))) == 200);
  CHECK(status_of(run.exchange(post("/v1/completions", kPrompt, bearer(kOther)))) == 200);
  CHECK(status_of(run.exchange(post("/v1/completions", kPrompt, bearer(kOther)))) == 429);
  run.exchange(get("/v1/models", bearer("nobody-knows-this")));
  run.exchange(get("/v1/models"));
  const std::string metrics = run.exchange(get("/metrics"));
  for (const char* line :
       {"llmrt_requests_unauthorized_total{reason=\"missing\"} 1\n",
        "llmrt_requests_unauthorized_total{reason=\"wrong\"} 1\n", "llmrt_key_requests_total{key=\"alice\"} 1\n",
        "llmrt_key_prompt_tokens_total{key=\"alice\"} 3\n", "llmrt_key_generated_tokens_total{key=\"alice\"} 2\n",
        "llmrt_key_requests_running{key=\"bob\"} 0\n",
        "llmrt_key_requests_limited_total{key=\"bob\",limit=\"requests\"} 1\n"}) {
    INFO(line << metrics);
    CHECK(metrics.find(line) != std::string::npos);
  }
  CHECK(metrics.find("nobody-knows-this") == std::string::npos);
}

TEST_CASE("the log says of a wrong key how long it was, and never a key") {
  const KeyFile file("alice " + kSecret + "\n");
  Running run(file.config());
  const std::string wrong = "another-secret-0123456789";
  run.exchange(get("/v1/models", bearer(wrong)));
  run.exchange(get("/v1/models"));
  run.exchange(get("/v1/models", bearer(kSecret)));
  run.exchange(post("/v1/completions", "{", bearer(kSecret)));
  const std::string lines = run.lines.str();
  CHECK(lines.find("401 invalid_api_key for \"/v1/models with a wrong key of 25 bytes, SHA-256 ") != std::string::npos);
  CHECK(lines.find("from 127.0.0.1\"") != std::string::npos);
  CHECK(lines.find("401 invalid_api_key for \"/v1/models without a key") != std::string::npos);
  CHECK(lines.find(wrong) == std::string::npos);
  CHECK(lines.find(kSecret) == std::string::npos);
}

TEST_CASE("a log in JSON has the name of the key, and no path where none was asked for") {
  const KeyFile file("alice " + kSecret + "\n");
  Running run(file.config(), letter_model(), LogFormat::kJson);
  run.exchange(get("/v1/models", bearer("another-secret-0123456789")));
  run.exchange(post("/v1/completions", "{", bearer(kSecret)));
  std::istringstream lines(run.lines.str());
  std::string line;
  REQUIRE(std::getline(lines, line));
  CHECK(read_json(line)->at("code") == "invalid_api_key");
  CHECK_FALSE(read_json(line)->as_object().contains("path"));
  CHECK_FALSE(read_json(line)->as_object().contains("key"));
  REQUIRE(std::getline(lines, line));
  CHECK(read_json(line)->at("key") == "alice");
  CHECK(run.lines.str().find(kSecret) == std::string::npos);
}

TEST_CASE("a body of a client without a key is not waited for") {
  const KeyFile file("alice " + kSecret + "\n");
  Running run(file.config());
  Client client(run.server->port());
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
      "8000000\r\n\r\n{");
  CHECK(status_of(client.read_until("\r\n\r\n")) == 401);
}

TEST_CASE("limits of a key are 429 with what clients need to wait, and nobody else's") {
  const KeyFile file("alice " + kSecret + " requests-per-minute=2 tokens-per-minute=100\nbob " + kOther +
                     " tokens-per-minute=20\n");
  Running run(file.config());
  run.engine->tokens.assign(5, 'a');
  const std::string first = run.exchange(post("/v1/completions", kPrompt, bearer(kSecret)));
  CHECK(status_of(first) == 200);
  CHECK(header_of(first, "x-ratelimit-limit-requests") == "2");
  CHECK(header_of(first, "x-ratelimit-remaining-requests") == "1");
  const int remaining = std::atoi(header_of(first, "x-ratelimit-remaining-tokens").c_str());
  CHECK(remaining >= 97);  // the answer's are charged later, and more come with time
  CHECK(remaining < 100);
  CHECK(status_of(run.exchange(post("/v1/completions", R"({"prompt": "a", "stream": true})", bearer(kSecret)))) == 200);
  const std::string third = run.exchange(post("/v1/completions", kPrompt, bearer(kSecret)));
  CHECK(status_of(third) == 429);
  CHECK(body_of(third).at("error").at("type") == "rate_limit_error");
  CHECK(body_of(third).at("error").at("code") == "rate_limit_exceeded");
  const int wait = std::atoi(header_of(third, "Retry-After").c_str());
  CHECK(wait >= 15);
  CHECK(wait <= 30);
  CHECK(header_of(third, "x-ratelimit-remaining-requests") == "0");
  CHECK(status_of(run.exchange(get("/v1/models", bearer(kSecret)))) == 200);  // reading about it is free

  // Bob: prompts and answers.
  CHECK(status_of(run.exchange(post("/v1/completions", R"({"prompt": "aaaaaaaaaaaaaaaaaaa"})", bearer(kOther)))) ==
        200);
  const std::string debt = run.exchange(post("/v1/completions", kPrompt, bearer(kOther)));
  CHECK(status_of(debt) == 429);
  const int debt_s = std::atoi(header_of(debt, "Retry-After").c_str());
  CHECK(debt_s >= 5);
  CHECK(debt_s <= 15);  // four owed and one more, at 20 a minute
  CHECK(header_of(debt, "x-ratelimit-remaining-tokens") == "0");
  CHECK(run.engine->requests().size() == 3);
}

TEST_CASE("so many requests of a key at once, and a client that leaves frees its place") {
  const KeyFile file("alice " + kSecret + " concurrent=2\nbob " + kOther + "\n");
  Running run(file.config());
  run.engine->tokens.assign(200, 'a');
  run.engine->pause = std::chrono::milliseconds(50);
  const std::string stream =
      post("/v1/completions", R"({"prompt": "a", "max_tokens": 200, "stream": true})", bearer(kSecret, ""));
  Client one(run.server->port()), two(run.server->port());
  for (Client* client : {&one, &two}) {
    client->send(stream);
    client->read_until("data: ");
  }
  const std::string third = run.exchange(post("/v1/completions", kPrompt, bearer(kSecret)));
  CHECK(status_of(third) == 429);
  CHECK(header_of(third, "Retry-After") == "1");
  CHECK(status_of(run.exchange(post("/v1/completions", R"({"prompt": "a", "max_tokens": 1})", bearer(kOther)))) == 200);
  one.close();
  REQUIRE(run.engine->wait_cancelled(1));
  int status = 0;
  for (int i = 0; i < 100 && status != 200; ++i) {  // the place is free once the session has seen the end
    status = status_of(run.exchange(post("/v1/completions", R"({"prompt": "a", "max_tokens": 1})", bearer(kSecret))));
    if (status != 200) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK(status == 200);
}

TEST_CASE("the engine hears the key's class and salt") {
  const KeyFile file("alice " + kSecret + " class=batch\nbob " + kOther + " cache-salt=\n");
  Running run(file.config());
  run.engine->tokens = {'a'};
  const auto ask = [&](const std::string& body, const std::string& headers) {
    const size_t before = run.engine->requests().size();
    CHECK(status_of(run.exchange(post("/v1/completions", body, headers))) == 200);
    REQUIRE(run.engine->requests().size() == before + 1);
    return run.engine->requests().back();
  };
  const std::string plain = R"({"prompt": "a"})", salted = R"({"prompt": "a", "cache_salt": "s"})";
  const Request first = ask(plain, bearer(kSecret)), second = ask(plain, bearer(kSecret));
  CHECK(first.request_class == RequestClass::kBatch);
  CHECK(first.cache_salt.size() == 64);
  CHECK(first.cache_salt == second.cache_salt);
  CHECK(ask(salted, bearer(kSecret)).cache_salt.size() == 64);
  CHECK(ask(salted, bearer(kSecret)).cache_salt != first.cache_salt);
  CHECK(ask(salted, bearer(kSecret)).cache_salt == ask(plain, bearer(kSecret) + "x-cache-salt: s\r\n").cache_salt);
  CHECK(ask(plain, bearer(kSecret) + "x-request-class: agent\r\n").request_class == RequestClass::kAgent);
  CHECK(ask(R"({"prompt": "a", "request_class": "background"})", bearer(kSecret)).request_class ==
        RequestClass::kBackground);
  CHECK(ask(plain, bearer(kOther)).cache_salt.empty());
  CHECK(ask(salted, bearer(kOther)).cache_salt == "s");
  CHECK(ask(plain, bearer(kOther)).request_class == RequestClass::kInteractive);
}

TEST_CASE("keys change while the server runs") {
  const KeyFile file("alice " + kSecret + "\n");
  Running run(file.config());
  CHECK(status_of(run.exchange(get("/v1/models", bearer(kSecret)))) == 200);
  file.write("bob " + kOther + "\n");
  run.server->reload();
  CHECK(status_of(run.exchange(get("/v1/models", bearer(kSecret)))) == 401);
  CHECK(status_of(run.exchange(get("/v1/models", bearer(kOther)))) == 200);
  file.write("bob\n");
  run.server->reload();
  CHECK(status_of(run.exchange(get("/v1/models", bearer(kOther)))) == 200);
  CHECK(run.lines.str().find("API keys: still those from before: ") != std::string::npos);
  CHECK(run.lines.str().find("line 1: expected a name and a secret, found one word") != std::string::npos);
}

TEST_CASE("a bad key file is an error before anything listens") {
  const KeyFile file("alice\n");
  ServerConfig config = file.config();
  config.port = 0;
  const auto server = Server::bind(config);
  REQUIRE_FALSE(server.ok());
  CHECK(server.error().message.find("line 1") != std::string::npos);
  config.api_key_file = "/nonexistent/keys";
  CHECK(Server::bind(config).error().code == ErrorCode::kIo);
}

TEST_CASE("an address for everybody without keys is warned of, once") {
  ServerConfig config;
  config.hosts = {"0.0.0.0"};
  {
    Running run(config);
    const std::string lines = run.lines.str();
    CHECK(lines.find("anybody who reaches 0.0.0.0 may use this server: --api-key-file") != std::string::npos);
  }
  config.api_key = "a-key-of-some-length";
  Running run(config);
  CHECK(run.lines.str().find("anybody") == std::string::npos);
  CHECK(status_of(run.exchange(get("/v1/models"))) == 401);
  CHECK(status_of(run.exchange(get("/v1/models", bearer("a-key-of-some-length")))) == 200);
}

}  // namespace
}  // namespace llmrt::server
