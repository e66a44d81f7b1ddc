// Several models behind one port, over real sockets with fake engines: which one a request gets, what waits and for how
// long, what is refused and how, that a load or an unload beside it does not touch an answer under way, and what the
// pages and metrics say.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <condition_variable>
#include <functional>
#include <mutex>

#include "tests/server/running.h"

namespace llmrt::server {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr TimeNs kMillisecond = 1'000'000;

// Loads fakes: model i answers with the letter 'a' + i. A load waits while its gate is closed.
class FakeLoader final : public ModelLoader {
 public:
  Result<std::shared_ptr<LoadedModel>> load(ModelIdx model, std::function<void(Error)> on_lost) override {
    {
      std::unique_lock lock(mutex_);
      ++num_loads_[model];
      opened_.wait_for(lock, std::chrono::seconds(20), [&] { return closed_ != static_cast<int>(model); });
    }
    if (static_cast<int>(model) == broken) return make_error(ErrorCode::kCorruptFile, "c.gguf: tensor blk.0: broken");
    auto engine = std::make_shared<FakeEngine>();
    engine->tokens.assign(20, 'a' + static_cast<int>(model));
    engine->pause = pause;
    ServedModel served = letter_model();
    served.id = std::string(1, static_cast<char>('x' + model));
    REQUIRE(finish_model(&served).ok());
    std::lock_guard lock(mutex_);
    engines_.push_back(engine);
    lost_[model] = std::move(on_lost);
    return std::shared_ptr<LoadedModel>(std::make_shared<ServedEngine>(std::move(served), engine, /*bytes=*/40));
  }
  void unload(ModelIdx, std::shared_ptr<LoadedModel> loaded) override {
    auto engine = std::static_pointer_cast<FakeEngine>(std::static_pointer_cast<ServedEngine>(loaded)->door);
    loaded.reset();
    engine->join();
  }
  uint64_t need_bytes(ModelIdx) const override { return 40; }
  uint64_t free_bytes(uint64_t held_bytes) const override { return 100 - held_bytes; }

  void close(int model) {
    std::lock_guard lock(mutex_);
    closed_ = model;
  }
  void open() {
    close(-1);
    opened_.notify_all();
  }
  void lose(ModelIdx model) {
    std::function<void(Error)> lost;
    {
      std::lock_guard lock(mutex_);
      lost = lost_.at(model);
    }
    lost(make_error(ErrorCode::kDeviceLost, "the device is lost"));
  }
  int num_loads(ModelIdx model) {
    std::lock_guard lock(mutex_);
    return num_loads_[model];
  }

  int broken = -1;
  std::chrono::milliseconds pause{0};

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  int closed_ = -1;
  std::map<ModelIdx, int> num_loads_;
  std::map<ModelIdx, std::function<void(Error)>> lost_;
  std::vector<std::shared_ptr<FakeEngine>> engines_;  // alive until the end: late calls are fine
};

RegistryLimits quick_limits() {
  RegistryLimits limits;
  limits.linger_ns = kMillisecond;
  limits.patience_ns = 20 * kMillisecond;
  limits.wait_ns = 10'000 * kMillisecond;
  return limits;
}

// Models x, y and z with room for two.
struct Several {
  explicit Several(RegistryLimits limits = quick_limits(), ServerConfig config = {}, bool preloads = false) {
    config.port = 0;
    auto bound = Server::bind(config, stream_log(lines, LogLevel::kInfo));
    REQUIRE(bound.ok());
    server = std::move(*bound);
    std::vector<ModelSpec> specs = {{.name = "x"}, {.name = "y", .is_preloaded = preloads}, {.name = "z"}};
    host = std::make_shared<ModelHost>(std::move(specs), limits, loader, &clock);
    server->open(host, R"({"port": 8000})");
    thread = std::thread([this] { server->run(); });
  }
  ~Several() {
    loader->open();
    server->stop();
    thread.join();
    host->stop();
  }
  std::string exchange(const std::string& request) {
    Client client(server->port());
    client.send(request);
    return client.read_all();
  }
  std::string ask(const std::string& model, const std::string& more = "") {
    return exchange(
        post("/v1/completions", fmt::format(R"({{"model": "{}", "prompt": "q", "max_tokens": 3{}}})", model, more)));
  }
  std::string state(const std::string& model) {
    const json::object list = body_of(exchange(get("/v1/models")));
    for (const json::value& card : list.at("data").as_array())
      if (card.at("id").as_string() == model) return std::string(card.at("state").as_string());
    return "";
  }
  void wait_state(const std::string& model, const std::string& wanted) {
    for (int i = 0; i < 2000 && state(model) != wanted; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    REQUIRE(state(model) == wanted);
  }
  std::string metric(const std::string& name) {
    const std::string text = exchange(get("/metrics"));
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? "none"
                                   : text.substr(at + name.size() + 2, text.find('\n', at + 1) - at - name.size() - 2);
  }

  SteadyClock clock;
  std::ostringstream lines;
  std::shared_ptr<FakeLoader> loader = std::make_shared<FakeLoader>();
  std::shared_ptr<ModelHost> host;
  std::unique_ptr<Server> server;
  std::thread thread;
};

std::string text_of(const std::string& response) {
  return std::string(body_of(response).at("choices").as_array()[0].at("text").as_string());
}

TEST_CASE("the field model picks the model, which is loaded for it; without it the first one answers") {
  Several run;
  CHECK(run.state("x") == "unloaded");
  CHECK(status_of(run.exchange(get("/ready"))) == 200);  // it can serve: models are loaded when they are asked for
  CHECK(text_of(run.ask("y")) == "bbb");
  CHECK(run.state("y") == "ready");
  CHECK(run.state("x") == "unloaded");
  CHECK(text_of(run.exchange(post("/v1/completions", R"({"prompt": "q", "max_tokens": 2})"))) == "aa");
  CHECK(body_of(run.ask("x")).at("model") == "x");
  CHECK(run.loader->num_loads(0) == 1);
  CHECK(body_of(run.exchange(post("/tokenize", R"({"model": "z", "prompt": "abc"})"))).at("count") == 3);
  CHECK(run.state("z") == "ready");  // in the place of another one
  CHECK(run.host->figures(0).num_unloads + run.host->figures(1).num_unloads == 1);
}

TEST_CASE("clients of Ollama see all models under a tag, and load one by asking for it") {
  Several run;
  const json::array listed = body_of(run.exchange(get("/api/tags"))).at("models").as_array();
  REQUIRE(listed.size() == 3);
  CHECK(listed[1].at("name") == "y:latest");
  const std::string ask = R"({"model": "y:latest", "prompt": "q", "raw": true, "stream": false})";
  CHECK(body_of(run.exchange(post("/api/generate", ask))).at("model") == "y:latest");
  CHECK(run.state("y") == "ready");
  CHECK(body_of(run.ask("y:latest")).at("model") == "y");
  bool is_running = false;
  const json::object loaded = body_of(run.exchange(get("/api/ps")));
  for (const json::value& model : loaded.at("models").as_array()) is_running |= model.at("name") == "y:latest";
  CHECK(is_running);
}

TEST_CASE("an unknown model is a 404 that says how many there are") {
  Several run;
  const std::string response = run.ask("w");
  CHECK(status_of(response) == 404);
  const json::object error = body_of(response).at("error").as_object();
  CHECK(error.at("code") == "model_not_found");
  CHECK(error.at("param") == "model");
  CHECK_THAT(std::string(error.at("message").as_string()), ContainsSubstring("none of the name 'w', did you mean 'x'"));
  CHECK_THAT(std::string(error.at("message").as_string()), ContainsSubstring("/v1/models lists 3"));
  CHECK(status_of(run.exchange(get("/v1/models/w"))) == 404);
  CHECK(body_of(run.exchange(get("/v1/models/y"))).at("state") == "unloaded");
}

TEST_CASE("a request waits for its model with a bound, and answers of others go on meanwhile") {
  RegistryLimits limits = quick_limits();
  limits.wait_ns = 300 * kMillisecond;
  Several run(limits);
  run.loader->pause = std::chrono::milliseconds(20);
  REQUIRE(status_of(run.ask("x")) == 200);
  run.loader->close(1);
  Client waiting(run.server->port());
  waiting.send(post("/v1/completions", R"({"model": "y", "prompt": "q", "max_tokens": 3})"));
  run.wait_state("y", "loading");
  const auto begin = std::chrono::steady_clock::now();
  const std::string stream = run.ask("x", R"(, "stream": true)");
  CHECK(events_of(stream).size() >= 4);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
  CHECK(run.state("y") == "loading");
  const std::string late = waiting.read_all();
  CHECK(status_of(late) == 503);
  CHECK_THAT(late, ContainsSubstring("Retry-After: "));
  CHECK_THAT(late, ContainsSubstring("--model-wait-s"));
  run.loader->open();
  CHECK(text_of(run.ask("y")) == "bbb");  // the load went on
  CHECK(run.loader->num_loads(1) == 1);
}

TEST_CASE("a client that leaves while it waits leaves nothing behind") {
  Several run;
  run.loader->close(1);
  {
    Client client(run.server->port());
    client.send(post("/v1/completions", R"({"model": "y", "prompt": "q"})"));
    while (run.host->figures(1).num_waiting == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    client.close();
  }
  for (int i = 0; i < 2000 && run.host->figures(1).num_waiting > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(run.host->figures(1).num_waiting == 0);
  run.loader->open();
  run.wait_state("y", "ready");
  CHECK(run.host->figures(1).num_leases == 0);
}

TEST_CASE("a model is unloaded beside an answer of another one, and not under an answer of its own") {
  Several run;
  run.loader->pause = std::chrono::milliseconds(25);
  Client streaming(run.server->port());
  streaming.send(post("/v1/completions", R"({"model": "x", "prompt": "q", "max_tokens": 20, "stream": true})"));
  std::string stream = streaming.read_until("\"text\":\"a\"");
  REQUIRE(status_of(run.ask("y")) == 200);
  REQUIRE(run.host->unload(1).ok());
  REQUIRE(run.host->unload(0).ok());
  run.wait_state("y", "unloaded");
  CHECK(run.host->figures(0).is_closing);
  CHECK(run.state("x") == "ready");
  stream += streaming.read_all();
  CHECK(stream.find("[DONE]") != std::string::npos);
  size_t count = 0;
  for (size_t at = 0; (at = stream.find("\"text\":\"a\"", at)) != std::string::npos; ++at) ++count;
  CHECK(count == 20);
  run.wait_state("x", "unloaded");
  CHECK(text_of(run.ask("x")) == "aaa");
  CHECK(run.host->figures(0).num_loads == 2);
}

TEST_CASE("a load that fails is told with its own words, and the others are served") {
  Several run;
  run.loader->broken = 2;
  const std::string failed = run.ask("z");
  CHECK(status_of(failed) == 500);
  CHECK_THAT(failed, ContainsSubstring("model 'z' cannot be loaded: c.gguf: tensor blk.0: broken"));
  CHECK(status_of(run.ask("z")) == 500);
  CHECK(run.loader->num_loads(2) == 1);  // it cools down
  CHECK(text_of(run.ask("x")) == "aaa");
  CHECK(run.state("z") == "failed");
  CHECK(status_of(run.exchange(get("/health"))) == 200);
  CHECK(body_of(run.exchange(get("/health"))).at("models").at("z") == "failed");
}

TEST_CASE("a lost device ends its own model") {
  Several run;
  REQUIRE(status_of(run.ask("x")) == 200);
  REQUIRE(status_of(run.ask("y")) == 200);
  run.loader->lose(0);
  run.wait_state("x", "failed");
  CHECK(status_of(run.ask("x")) == 503);
  CHECK(text_of(run.ask("y")) == "bbb");
  CHECK(status_of(run.exchange(get("/ready"))) == 200);
}

TEST_CASE("a server that has to load a model first is not ready before") {
  auto loader = std::make_shared<FakeLoader>();
  loader->close(1);
  ServerConfig config;
  config.port = 0;
  const SteadyClock clock;
  auto server = std::move(*Server::bind(config));
  const auto host = std::make_shared<ModelHost>(
      std::vector<ModelSpec>{{.name = "x"}, {.name = "y", .is_preloaded = true}}, quick_limits(), loader, &clock);
  server->open(host);
  std::thread thread([&] { server->run(); });
  const auto ready = [&] {
    Client client(server->port());
    client.send(get("/ready"));
    return client.read_all();
  };
  CHECK(status_of(ready()) == 503);
  CHECK_THAT(ready(), ContainsSubstring("the model 'y' is being loaded"));
  loader->open();
  for (int i = 0; i < 2000 && status_of(ready()) != 200; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(status_of(ready()) == 200);
  server->stop();
  thread.join();
  host->stop();
}

TEST_CASE("metrics of engines carry their model's name, families stay whole, and counts of loads are told") {
  Several run;
  REQUIRE(status_of(run.ask("x")) == 200);
  REQUIRE(status_of(run.ask("y")) == 200);
  CHECK(run.metric(R"(llmrt_requests_running{model="x"})") == "0");
  CHECK(run.metric(R"(llmrt_requests_running{model="y"})") == "0");
  CHECK(run.metric("llmrt_requests_running") == "none");
  CHECK(run.metric(R"(llmrt_model_loads_total{model="y"})") == "1");
  CHECK(run.metric(R"(llmrt_model_loads_total{model="z"})") == "0");
  CHECK(run.metric(R"(llmrt_model_state{model="x",state="ready"})") == "1");
  CHECK(run.metric(R"(llmrt_model_memory_bytes{model="x"})") == "40");
  CHECK(run.metric(R"(llmrt_request_latency_seconds_bucket{model="x",le="+Inf"})") == "0");
  const std::string text = run.exchange(get("/metrics"));
  size_t heads = 0;
  for (size_t at = 0; (at = text.find("# TYPE llmrt_requests_running ", at)) != std::string::npos; ++at) ++heads;
  CHECK(heads == 1);
  const size_t first = text.find("llmrt_requests_running{model=\"x\"}"),
               second = text.find("llmrt_requests_running{model=\"y\"}");
  CHECK(text.substr(first, second - first).find('#') == std::string::npos);
}

TEST_CASE("settings are a page of their own") {
  Several run;
  CHECK(body_of(run.exchange(get("/config"))).at("port") == 8000);
  Running one;
  CHECK(status_of(one.exchange(get("/config"))) == 404);
}

TEST_CASE("with one model names and labels of its metrics are as ever") {
  Running run;
  const std::string text = run.exchange(get("/metrics"));
  CHECK_THAT(text, ContainsSubstring("\nllmrt_requests_running 0\n"));
  CHECK_THAT(text, ContainsSubstring("\nllmrt_model_loads_total{model=\"letters\"} 1\n"));
}

}  // namespace
}  // namespace llmrt::server
