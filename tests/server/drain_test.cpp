// The server's beginning and end: a port before there is a model, notice before the port closes, and an end that
// nothing that hangs can stop.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/server/running.h"

namespace llmrt::server {
namespace {

using Time = std::chrono::steady_clock::time_point;
using std::chrono::milliseconds;

double seconds_since(Time begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
std::string exchange(uint16_t port, const std::string& request) {
  Client client(port);
  client.send(request);
  return client.read_all();
}

TEST_CASE("a server that loads has its port, and says so") {
  ServerConfig config;
  config.port = 0;
  auto bound = Server::bind(config);
  REQUIRE(bound.ok());
  Server& server = **bound;
  CHECK(status_of(exchange(server.port(), get("/live"))) == 200);
  CHECK(status_of(exchange(server.port(), get("/version"))) == 200);
  for (const char* path :
       {"/health", "/ready", "/v1/models", "/metrics", "/server_info", "/get_load", "/v1/models/letters"}) {
    const std::string response = exchange(server.port(), get(path));
    CHECK(status_of(response) == 503);
    CHECK(response.find("Retry-After: ") != std::string::npos);
    CHECK(body_of(response).at("error").at("code") == "loading");
  }
  CHECK(status_of(exchange(server.port(), post("/v1/chat/completions", kChat))) == 503);
  // A connection from before goes on.
  Client early(server.port());
  early.send(get("/ready", ""));
  CHECK(status_of(early.read_response()) == 503);

  const auto engine = std::make_shared<FakeEngine>();
  engine->tokens = {'h', 'i'};
  REQUIRE(server.open(letter_model(), engine).ok());
  early.send(get("/ready"));
  CHECK(status_of(early.read_all()) == 200);
  CHECK(status_of(exchange(server.port(), post("/v1/chat/completions", kChat))) == 200);
  std::thread thread([&] { server.run(); });
  server.stop();
  thread.join();
  engine->join();
}

TEST_CASE("a server whose model does not load ends with its connections") {
  ServerConfig config;
  config.port = 0;
  auto bound = Server::bind(config);
  REQUIRE(bound.ok());
  Client client((*bound)->port());
  client.send(get("/live", ""));
  CHECK(status_of(client.read_response()) == 200);
  bound->reset();
  CHECK(client.read_all().empty());
}

TEST_CASE("draining is told before the port closes") {
  auto engine = std::make_shared<FakeEngine>();
  engine->tokens.assign(100, 'a');
  engine->pause = milliseconds(20);
  ServerConfig config;
  config.port = 0;
  config.drain_notice_s = 1;
  auto server = std::move(*Server::listen(config, letter_model(), engine));
  std::thread thread([&] { server->run(); });
  Client busy(server->port());
  busy.send(post("/v1/completions", R"({"prompt": "a", "max_tokens": 100, "stream": true})", ""));
  busy.read_until("data: ");
  const Time begin = std::chrono::steady_clock::now();
  server->drain();
  // At once, and on new connections.
  for (const char* path : {"/health", "/ready"}) {
    const std::string response = exchange(server->port(), get(path, ""));
    CHECK(status_of(response) == 503);
    CHECK(body_of(response).at("error").at("code") == "draining");
  }
  CHECK(status_of(exchange(server->port(), get("/live", ""))) == 200);
  const std::string refused = exchange(server->port(), post("/v1/chat/completions", kChat, ""));
  CHECK(status_of(refused) == 503);
  CHECK(refused.find("Retry-After: ") != std::string::npos);
  CHECK(refused.find("Connection: close\r\n") != std::string::npos);
  CHECK(seconds_since(begin) < 0.9);
  // The answer under way outlives the port.
  bool is_closed = false;
  while (!is_closed && seconds_since(begin) < 5) {
    asio::io_context io;
    tcp::socket socket(io);
    boost::system::error_code error;
    socket.connect({asio::ip::address_v4::loopback(), server->port()}, error);
    is_closed = error == asio::error::connection_refused;
    std::this_thread::sleep_for(milliseconds(10));
  }
  CHECK(is_closed);
  CHECK(seconds_since(begin) > 0.9);
  CHECK(busy.read_all().find("data: [DONE]") != std::string::npos);
  thread.join();
  engine->join();
}

// ---- signals -------------------------------------------------------------------------------------------------------

// Encodes for ever, as an endless text would.
class StuckTokenizer final : public LetterTokenizer {
 public:
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override {
    while (text == "stuck") std::this_thread::sleep_for(milliseconds(10));
    return LetterTokenizer::encode(text, options);
  }
};
// A device that hangs: whoever asks the engine waits.
class StuckEngine final : public FakeEngine {
 public:
  Result<RequestId> submit(Request) override {
    while (true) std::this_thread::sleep_for(milliseconds(10));
  }
};

// A server in a process of its own, which a test may end with signals.
class Child {
 public:
  explicit Child(bool engine_hangs) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      serve(ends[1], engine_hangs);
      _exit(99);
    }
    ::close(ends[1]);
    REQUIRE(read(ends[0], &port_, sizeof(port_)) == sizeof(port_));
    ::close(ends[0]);
  }
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  uint16_t port() const { return port_; }
  void signal(int number) const { kill(pid_, number); }
  // Its exit code; -1 when it is still there after `seconds`.
  int wait(double seconds) {
    const Time begin = std::chrono::steady_clock::now();
    while (seconds_since(begin) < seconds) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = 0;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
      std::this_thread::sleep_for(milliseconds(10));
    }
    return -1;
  }

 private:
  static void serve(int port_end, bool engine_hangs) {
    ServerConfig config;
    config.port = 0;
    config.drain_notice_s = 0;
    ServedModel model = letter_model();
    model.tokenizer = std::make_shared<StuckTokenizer>();
    std::shared_ptr<EngineDoor> door = std::make_shared<FakeEngine>();
    if (engine_hangs) door = std::make_shared<StuckEngine>();
    auto server = Server::listen(config, std::move(model), door);
    if (!server) _exit(98);
    (*server)->drain_on_signals();
    const uint16_t port = (*server)->port();
    if (write(port_end, &port, sizeof(port)) != sizeof(port)) _exit(97);
    (*server)->run();
    server->reset();
    _exit(0);
  }

  pid_t pid_ = 0;
  uint16_t port_ = 0;
};

TEST_CASE("a signal ends a server that is idle") {
  Child child(false);
  CHECK(status_of(exchange(child.port(), get("/live"))) == 200);
  child.signal(SIGTERM);
  CHECK(child.wait(5) == 0);
}

TEST_CASE("two signals end a server whose workers are stuck") {
  Child child(false);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<Client>(child.port()));
    clients.back()->send(post("/tokenize", R"({"prompt": "stuck"})", ""));
  }
  std::this_thread::sleep_for(milliseconds(300));
  child.signal(SIGTERM);
  CHECK(child.wait(0.5) == -1);
  child.signal(SIGTERM);
  CHECK(child.wait(2) == 128 + SIGTERM);
}

TEST_CASE("two signals end a server whose every thread waits for the engine") {
  Child child(true);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<Client>(child.port()));
    clients.back()->send(post("/v1/completions", R"({"prompt": "a"})", ""));
  }
  std::this_thread::sleep_for(milliseconds(300));
  child.signal(SIGTERM);
  CHECK(child.wait(0.5) == -1);
  child.signal(SIGINT);
  CHECK(child.wait(2) == 128 + SIGINT);
}

}  // namespace
}  // namespace llmrt::server
