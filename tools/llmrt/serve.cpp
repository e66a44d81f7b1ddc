#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "core/trace/trace_file.h"
#include "server/server.h"
#include "tools/llmrt/program.h"
#include "tools/number_range.h"

namespace llmrt::cli {
namespace {

const std::map<std::string, LogLevel> kLogLevels = {
    {"error", LogLevel::kError}, {"warn", LogLevel::kWarning}, {"info", LogLevel::kInfo}, {"off", LogLevel::kOff}};

struct Options {
  ModelOptions model;
  EngineOptions engine;
  server::ServerConfig server;
  std::string log_level = "info", sample_trace;
  std::string request_trace, worker_id = "0";
};

// The engine as the server sees it: one thread runs it, others talk to it.
class LocalEngine final : public server::EngineDoor {
 public:
  LocalEngine(Engine* engine, std::shared_ptr<TraceWriter> trace) : engine_(engine), trace_(std::move(trace)) {}

  Result<RequestId> submit(Request request) override {
    if (trace_) trace_->record(&request);
    return engine_->submit(std::move(request));
  }
  void cancel(RequestId id, const SentTimes& sent) override { engine_->cancel(id, sent); }
  void drained(RequestId id, const SentTimes& sent) override { engine_->drained(id, sent); }
  EngineStats stats() const override { return engine_->stats(); }
  void stop() override { engine_->stop(); }
  std::optional<std::string> trouble() const override {
    std::lock_guard lock(mutex_);
    return trouble_;
  }
  void set_trouble(std::string text) {
    std::lock_guard lock(mutex_);
    trouble_ = std::move(text);
  }

 private:
  Engine* engine_;
  const std::shared_ptr<TraceWriter> trace_;
  mutable std::mutex mutex_;
  std::optional<std::string> trouble_;
};

void serve(const Options& options) {
  check_writable(options.sample_trace, "--sample-trace");
  check_writable(options.request_trace, "--request-trace");
  OpenModel open = open_model(options.model);
  open.served.created = std::time(nullptr);
  const SteadyClock clock;
  const std::shared_ptr<Log> log = stderr_log(kLogLevels.at(options.log_level));
  std::unique_ptr<Engine> engine = open_engine(open, options.engine, &clock, /*quiet=*/false);
  engine->set_log(log);
  if (!options.request_trace.empty()) {
    auto file = TraceFile::open(options.request_trace, {open.served.id, options.worker_id}, log);
    if (!file) fail(file.error());
    engine->set_trace(std::move(*file));
  }
  const std::shared_ptr<TraceWriter> trace = open_trace(options.sample_trace, *engine);
  const auto door = std::make_shared<LocalEngine>(engine.get(), trace);
  const std::string id = open.served.id;
  Result<std::unique_ptr<server::Server>> server =
      server::Server::listen(options.server, std::move(open.served), door, log);
  if (!server) fail(server.error());
  (*server)->drain_on_signals();

  Status ran;
  std::thread runner([&] {
    ran = engine->run();
    if (ran.ok()) return;
    door->set_trouble(ran.error().message);
    (*server)->drain();
  });
  const std::string host =
      options.server.host.find(':') == std::string::npos ? options.server.host : "[" + options.server.host + "]";
  log->info("serving {} on http://{}:{}", id, host, (*server)->port());
  (*server)->run();
  engine->stop();
  runner.join();
  engine.reset();  // before the server: it may still hold sinks
  if (trace)
    if (Status status = trace->flush(); !status) log->error("{}", status.error().message);
  if (!ran) throw Exit{ran.error().code == ErrorCode::kDeviceLost ? kDeviceLost : kFailed};
  log->info("stopped");
}

}  // namespace

void add_serve(CLI::App& app) {
  CLI::App* command = app.add_subcommand("serve", "Serve a model over HTTP, compatible with OpenAI's API");
  const auto options = std::make_shared<Options>();
  add_model_options(*command, options->model);
  server::ServerConfig& server = options->server;
  const char* group = "Server";
  command->add_option("--name", options->model.name, "what clients call the model; default: the file's name")
      ->type_name("NAME")
      ->group(group);
  command->add_option("--host", server.host, "address to listen on")
      ->capture_default_str()
      ->type_name("ADDRESS")
      ->group(group);
  command->add_option("--port", server.port, "port to listen on; 0: any free one")
      ->check(number_range(uint16_t{0}, uint16_t{65535}))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  command->add_option("--io-threads", server.io_threads, "threads for connections")
      ->check(number_range(1, 64))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  command->add_option("--work-threads", server.work_threads, "threads for parsing and tokenising")
      ->check(number_range(1, 64))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  command->add_option("--body-bytes", server.body_bytes_max, "bytes of a request's body, at most")
      ->check(number_range(size_t{1}, size_t{1} << 40).description(""))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  command->add_option("--connections", server.connections_max, "connections open at once, at most")
      ->check(number_range(size_t{1}, size_t{1} << 20))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  command
      ->add_option("--sample-trace", options->sample_trace,
                   "write how each token of each request was drawn, as JSON lines; llmrt replay draws them again")
      ->type_name("FILE")
      ->group(group);
  command->add_option("--grace", server.grace_s, "time that open answers have after SIGTERM, in seconds")
      ->check(number_range(0, 86'400))
      ->capture_default_str()
      ->type_name("S")
      ->group(group);
  command
      ->add_option("--log-level", options->log_level,
                   "what standard error shows: error; warn adds refused connections; info adds refused requests, "
                   "preemptions, start and end; off")
      ->check(one_of({"error", "warn", "info", "off"}))
      ->capture_default_str()
      ->type_name("LEVEL")
      ->group(group);
  command
      ->add_option("--request-trace", options->request_trace,
                   "append a line of JSON for each choice that has ended (docs/observability.md); llmrt trace reads it")
      ->type_name("FILE")
      ->group(group);
  command->add_option("--worker-id", options->worker_id, "name of this engine in the request trace")
      ->capture_default_str()
      ->type_name("NAME")
      ->group(group);
  Slo& slo = options->engine.config.slo;
  command
      ->add_option("--ttft-slo-ms", slo.ttft_ms,
                   "time to the first token beyond which statistics and verdicts call a request late")
      ->check(number_range(0.001, 1e9))
      ->capture_default_str()
      ->type_name("MS")
      ->group(group);
  command->add_option("--tpot-slo-ms", slo.tpot_ms, "mean time per output token beyond which they call it late")
      ->check(number_range(0.001, 1e9))
      ->capture_default_str()
      ->type_name("MS")
      ->group(group);
  add_engine_options(*command, options->engine);
  command->footer(
      "Paths: POST /v1/chat/completions, /v1/completions, /tokenize, /detokenize; GET /v1/models, /health, /metrics.\n"
      "  curl http://127.0.0.1:8000/v1/chat/completions \\\n"
      "    -H 'Content-Type: application/json' \\\n"
      "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'\n"
      "docs/api.md lists every field and limit. There is no key check yet: keep --host local, or a proxy in front.\n"
      "SIGINT or SIGTERM lets open answers finish; a second one ends them.");
  command->callback([options] { serve(*options); });
}

}  // namespace llmrt::cli
