// Clients that read streams too slowly: what waits for them, when their rows rest, when they are given up; how that is
// told to the engine; and heartbeats.
#include <filesystem>
#include <fstream>
#include <map>

#include "server/slow_clients.h"
#include "tests/server/running.h"

namespace llmrt::server {
namespace {

using std::chrono::seconds;

// Long answers, small buffers: in the server's kernel and in the client's.
ServerConfig small_buffers(SlowClients policy) {
  ServerConfig config;
  config.slow_clients = policy;
  config.outbox_bytes_max = 16 << 10;
  config.send_buffer_bytes = 4 << 10;
  return config;
}
void talk_much(FakeEngine& engine) {
  engine.tokens.assign(250, 'a');
  engine.alternatives.assign(20, TopLogprob{'b', -1.5f});
}
const std::string kLong = R"({"prompt": "a", "max_tokens": 250, "stream": true, "logprobs": 20})";

// A client with a small buffer that has sent `bytes` and reads nothing by itself.
class SlowClient {
 public:
  SlowClient(uint16_t port, const std::string& bytes) {
    socket_.open(tcp::v4());
    socket_.set_option(asio::socket_base::receive_buffer_size(4 << 10));
    socket_.connect({asio::ip::address_v4::loopback(), port});
    asio::write(socket_, asio::buffer(bytes));
  }
  std::string read_all(size_t at_once = 65536, std::chrono::milliseconds pause = {}) {
    std::string all, bytes(at_once, '\0');
    boost::system::error_code error;
    while (!error) {
      all += bytes.substr(0, socket_.read_some(asio::buffer(bytes), error));
      std::this_thread::sleep_for(pause);
    }
    return all;
  }

 private:
  asio::io_context io_;
  tcp::socket socket_{io_};
};

std::string text_of(const std::string& response) {
  std::string text;
  const std::vector<std::string> events = events_of(response);
  REQUIRE(events.back() == "[DONE]");
  for (size_t i = 0; i + 1 < events.size(); ++i)
    text += read_json(events[i])->at("choices").at(0).at("text").as_string();
  return text;
}
uint64_t metric(Running& run, const std::string& sample) {
  const std::string metrics = run.exchange(get("/metrics"));
  const size_t at = metrics.find("\nllmrt_" + sample + " ");
  REQUIRE(at != std::string::npos);
  return std::stoull(metrics.substr(at + sample.size() + 8));
}

TEST_CASE("a throttled client's row rests while it reads nothing, and its answer is whole") {
  Running run(small_buffers(SlowClients::kThrottle));
  talk_much(*run.engine);
  SlowClient client(run.server->port(), post("/v1/completions", kLong));
  REQUIRE(run.engine->wait_paused(1));
  // What was being told when it was paused still comes, and what the system's buffers take, then nothing.
  size_t num_told = 0, tries = 0;
  while (num_told != run.engine->num_told() && ++tries < 30) {
    num_told = run.engine->num_told();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  CHECK(tries < 30);
  CHECK(run.engine->num_told() < 250);
  // Nobody else is held up.
  const std::string other = run.exchange(post("/v1/completions", kLong));
  CHECK(text_of(other) == std::string(250, 'a'));
  CHECK(text_of(client.read_all()) == std::string(250, 'a'));
  CHECK(run.engine->wait_drained(2));
  CHECK(run.engine->num_cancelled() == 0);
  CHECK(run.engine->num_pauses() >= 1);
  CHECK(metric(run, "slow_clients_total{outcome=\"throttled\"}") == run.engine->num_pauses());
}

TEST_CASE("a throttled client that reads a little at a time gets all, with many rests, every choice") {
  Running run(small_buffers(SlowClients::kThrottle));
  talk_much(*run.engine);
  SlowClient client(
      run.server->port(),
      post("/v1/completions", R"({"prompt": "a", "max_tokens": 100, "n": 3, "stream": true, "logprobs": 20})"));
  const std::string response = client.read_all(8 << 10, std::chrono::milliseconds(2));
  const std::vector<std::string> events = events_of(response);
  CHECK(events.back() == "[DONE]");
  std::map<int64_t, size_t> lengths;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const json::value choice = read_json(events[i])->at("choices").at(0);
    lengths[choice.at("index").as_int64()] += choice.at("text").as_string().size();
  }
  CHECK(lengths == std::map<int64_t, size_t>{{0, 100}, {1, 100}, {2, 100}});
  CHECK(run.engine->wait_drained(3));
  CHECK(run.engine->num_pauses() >= 6);
}

TEST_CASE("a throttled client that never reads is given up after the stall, and told apart from one that leaves") {
  ServerConfig config = small_buffers(SlowClients::kThrottle);
  config.write_s = 1;
  Running run(config);
  talk_much(*run.engine);
  SlowClient client(run.server->port(), post("/v1/completions", kLong));
  REQUIRE(run.engine->wait_cancelled(1));
  CHECK(run.engine->num_disconnected() == 1);
  CHECK(metric(run, "slow_clients_total{outcome=\"stalled\"}") == 1);
  CHECK(client.read_all().find("[DONE]") == std::string::npos);
  CHECK(run.lines.str().find("a client is given up, as it reads too slowly (stalled): 127.0.0.1, req-") !=
        std::string::npos);
}

TEST_CASE("with disconnect a client is given up as soon as too much waits") {
  Running run(small_buffers(SlowClients::kDisconnect));
  talk_much(*run.engine);
  const auto begin = std::chrono::steady_clock::now();
  SlowClient client(run.server->port(), post("/v1/completions", kLong));
  REQUIRE(run.engine->wait_cancelled(1));
  CHECK(std::chrono::steady_clock::now() - begin < seconds(5));
  CHECK(run.engine->num_disconnected() == 1);
  CHECK(run.engine->num_pauses() == 0);
  CHECK(client.read_all().find("[DONE]") == std::string::npos);
  CHECK(metric(run, "slow_clients_total{outcome=\"buffer_full\"}") == 1);
  // One for whom less waits is not.
  const std::string little = R"({"prompt": "a", "max_tokens": 10, "stream": true, "logprobs": 20})";
  CHECK(text_of(run.exchange(post("/v1/completions", little))) == std::string(10, 'a'));
}

TEST_CASE("without a policy what is not read waits") {
  Running run(small_buffers(SlowClients::kBuffer));
  talk_much(*run.engine);
  SlowClient client(run.server->port(), post("/v1/completions", kLong));
  for (int i = 0; i < 500 && run.engine->num_told() < 250; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(run.engine->num_told() == 250);
  CHECK(text_of(client.read_all()) == std::string(250, 'a'));
  CHECK(run.engine->num_pauses() == 0);
}

TEST_CASE("a key has a policy of its own") {
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("llmrt_streams_{}", getpid())).string();
  std::ofstream(path) << "slow secret-of-slow-0123 slow-clients=disconnect stream-buffer-kib=8 stall-s=3\n"
                         "other secret-of-other-012\n";
  ServerConfig config = small_buffers(SlowClients::kBuffer);
  config.api_key_file = path;
  Running run(config);
  std::filesystem::remove(path);
  talk_much(*run.engine);
  SlowClient slow(run.server->port(), post("/v1/completions", kLong, "x-api-key: secret-of-slow-0123\r\n"));
  REQUIRE(run.engine->wait_cancelled(1));
  SlowClient other(run.server->port(),
                   post("/v1/completions", kLong, "Connection: close\r\nx-api-key: secret-of-other-012\r\n"));
  CHECK(text_of(other.read_all()) == std::string(250, 'a'));
}

TEST_CASE("a client that leaves disconnects, one whose connection the server ends does not") {
  auto run = std::make_unique<Running>();
  const auto engine = run->engine;
  engine->tokens.assign(200, 'a');
  engine->pause = std::chrono::milliseconds(30);
  const std::string bytes = post("/v1/completions", R"({"prompt": "a", "max_tokens": 200, "stream": true})");
  Client leaver(run->server->port()), stayer(run->server->port());
  leaver.send(bytes);
  leaver.read_until("data: ");
  leaver.close();
  REQUIRE(engine->wait_cancelled(1));
  CHECK(engine->num_disconnected() == 1);
  stayer.send(bytes);
  stayer.read_until("data: ");
  run.reset();
  CHECK(engine->num_disconnected() == 1);
}

TEST_CASE("a silent stream has heartbeats, as often as asked for") {
  for (const int heartbeat_s : {1, 0}) {
    ServerConfig config;
    config.comment_s = heartbeat_s;
    Running run(config);
    run.engine->tokens = {'a', 'b'};
    run.engine->pause = std::chrono::milliseconds(1300);
    const std::string response =
        run.exchange(post("/v1/completions", R"({"prompt": "a", "max_tokens": 2, "stream": true})"));
    CHECK((response.find("\n: ") != std::string::npos) == (heartbeat_s > 0));
    CHECK(events_of(response).back() == "[DONE]");
  }
}

TEST_CASE("the pace of a write") {
  const WritePace::Time begin = std::chrono::steady_clock::now();
  const auto at = [&](int s) { return begin + seconds(s); };
  const StreamLimits buffer{SlowClients::kBuffer, 1000, 30};
  {
    WritePace pace(buffer, 100, begin);
    CHECK(pace.take(1, 5000, true, at(30)));        // not yet judged
    CHECK_FALSE(pace.take(1000, 0, true, at(31)));  // 1,001 bytes in 31 s
    CHECK(pace.take(2200, 1000, true, at(32)));
    CHECK_FALSE(pace.take(100, 1001, true, at(33)));  // too much waits
    CHECK(pace.take(100, 5000, false, at(33)));       // of a whole answer that is known
  }
  WritePace pace({SlowClients::kThrottle, 1000, 30}, 100, begin);
  CHECK(pace.take(1, 5000, true, at(30)));
  CHECK(pace.take(4095, 5000, true, at(31)));  // 4 KiB in the first 31 s
  CHECK(pace.take(1, 5000, true, at(60)));
  CHECK_FALSE(pace.take(4094, 5000, true, at(61)));
  CHECK(pace.take(1, 5000, true, at(61)));
}

}  // namespace
}  // namespace llmrt::server
