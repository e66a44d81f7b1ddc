#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <map>

#include "core/disk/block_exchange.h"
#include "core/platform/free_memory.h"
#include "server/policy_file.h"
#include "server/server.h"
#include "tools/llmrt/control.h"
#include "tools/llmrt/model_loader.h"
#include "tools/llmrt/program.h"
#include "tools/llmrt/serve_models.h"
#include "tools/llmrt/settings.h"
#include "tools/number_range.h"

namespace llmrt::cli {
namespace {

const std::map<std::string, LogFormat> kLogFormats = {{"text", LogFormat::kText}, {"json", LogFormat::kJson}};
const std::map<std::string, LogLevel> kLogLevels = {
    {"error", LogLevel::kError}, {"warn", LogLevel::kWarning}, {"info", LogLevel::kInfo}, {"off", LogLevel::kOff}};

struct Options {
  ModelOptions model;  // what all of them have
  ServedModelsOptions models;
  EngineOptions engine;
  server::ServerConfig server;
  KvEventsOptions kv_events;
  std::string log_level = "info", log_format = "text", sample_trace;
  std::string request_trace, worker_id = kWorkerId;
  PlacementConfig placement;
  std::string placement_log;
  double reopen_s = 10;
  std::vector<std::string> roles;  // by device
  bool hands_over_by_load = false;
  double hand_over_gib = 4;
  std::string thought_field = "reasoning_content";
  int64_t reasoning_budget = -1;
  bool no_compression = false;
  std::string policy;                 // a file
  std::vector<std::string> adapters;  // NAME=PATH
  std::string adapters_dir;
  uint32_t batch_in_flight = 0;  // 0: twice what the engine runs at once
  std::string config;            // a file
  bool prints_config = false;
  std::string settings;                     // in effect, for /config
  std::vector<std::string> settings_lines;  // and for the log
};

std::vector<std::string> chat_format_names() {
  std::vector<std::string> names = {"auto"};
  for (const ChatFormat& format : chat_formats()) names.push_back(format.name);
  return names;
}

std::string host_problem(const std::string& text) {
  const bool is_plain = !text.empty() && text.find_first_of("/@ ") == std::string::npos;
  const size_t colon = text.find(':');
  const bool has_port = colon != std::string::npos && text.find(':', colon + 1) == std::string::npos;
  if (is_plain && !has_port) return "";
  return fmt::format("expected names without scheme and port, found {}", text);
}

std::string mode_problem(const std::string& text) {
  const bool is_octal = !text.empty() && text.size() <= 4 && text.find_first_not_of("01234567") == std::string::npos;
  return is_octal ? "" : fmt::format("expected octal digits as 660, found {}", text);
}

std::string origin_problem(const std::string& text) {
  if (text == "*" || text == "null") return "";
  const size_t scheme = text.find("://");
  std::string_view rest = text;
  rest.remove_prefix(scheme == std::string::npos ? 0 : scheme + 3);
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (scheme != std::string::npos && scheme > 0 && !rest.empty() && rest.find_first_of("/ *") == rest.npos) return "";
  return fmt::format("expected origins as http://localhost:3000, or *, found {}", text);
}

constexpr uint32_t kAdapterSlots = 8;  // where adapters are wanted and nothing says how many

std::string adapter_problem(const std::string& text) {
  const size_t at = text.find('=');
  const bool is_whole = at != std::string::npos && at > 0 && at + 1 < text.size();
  return is_whole ? "" : fmt::format("expected NAME=PATH, found {}", text);
}

// The adapters of the first model, to be read when it is loaded; null: none are wanted.
std::shared_ptr<server::AdapterShelf> make_shelf(const Options& options, const std::vector<ModelOptions>& models) {
  if (options.adapters.empty() && options.adapters_dir.empty()) return nullptr;
  const bool has_keys = !options.server.api_key.empty() || !options.server.api_key_file.empty();
  if (!options.adapters_dir.empty() && !has_keys)
    fail(kUsage, "--adapters-dir: expected keys that clients need (--api-key-file, LLMRT_API_KEY), found none");
  auto shelf = std::make_shared<server::AdapterShelf>(options.adapters_dir);
  for (const std::string& text : options.adapters) {
    const size_t at = text.find('=');
    std::string name = checked_text(text.substr(0, at), "--adapter");
    if (std::ranges::any_of(models, [&](const ModelOptions& model) { return model.name == name; }))
      fail(kUsage, fmt::format("--adapter: expected another name than a model's, found {}", name));
    const Status added =
        shelf->add({.name = name, .model = models[0].name, .path = text.substr(at + 1), .created = std::time(nullptr)});
    if (!added || shelf->find(name)->path != text.substr(at + 1))
      fail(kUsage, fmt::format("--adapter: expected a name once, found {} again", name));
  }
  return shelf;
}

// What the options say of prompts that one device computes for another one.
void set_hand_over(const Options& options, LoaderConfig* config) {
  if (options.roles.empty() && !options.hands_over_by_load) return;
  const size_t num_devices = config->devices.size();
  if (num_devices < 2)
    fail(kUsage, fmt::format("--roles, --hand-over-by-load: expected several devices, found {}", num_devices));
  if (!options.roles.empty() && options.roles.size() != num_devices)
    fail(kUsage, fmt::format("--roles: expected one for each of {} devices, found {}", num_devices,
                             fmt::join(options.roles, ", ")));
  HandOverRule& rule = config->hand_over;
  rule.by_load = options.hands_over_by_load;
  rule.roles.assign(num_devices, WorkerRole::kBoth);
  for (size_t i = 0; i < options.roles.size(); ++i) rule.roles[i] = *parse_worker_role(options.roles[i]);
  const auto has = [&](WorkerRole other) {
    return std::ranges::any_of(rule.roles, [&](WorkerRole role) { return role == other || role == WorkerRole::kBoth; });
  };
  if (!has(WorkerRole::kPrefill) || !has(WorkerRole::kDecode))
    fail(kUsage, fmt::format("--roles: expected one that computes prompts and one that goes on, found {}",
                             fmt::join(options.roles, ", ")));
  config->engine.exchange =
      std::make_shared<BlockExchange>(static_cast<uint64_t>(options.hand_over_gib * (uint64_t{1} << 30)));
}

LoaderConfig loader_config(const Options& options, std::vector<ModelOptions> models) {
  LoaderConfig config = loader_config(options.models, options.engine, std::move(models));
  config.adapters = make_shelf(options, config.models);
  if (config.adapters && config.engine.adapters.slots == 0) config.engine.adapters.slots = kAdapterSlots;
  config.thought_field = options.thought_field;
  config.request_trace = options.request_trace;
  config.worker_id = options.worker_id;
  config.placement.policy = options.placement.policy;
  config.placement.kept_share = options.placement.kept_share;
  config.placement.long_tokens = options.placement.long_tokens;
  config.placement_log = options.placement_log;
  config.reopen_s = options.reopen_s;
  set_hand_over(options, &config);
  if (!options.policy.empty()) {
    Result<std::shared_ptr<const Policy>> policy = server::read_policy_file(options.policy);
    if (!policy) fail(kUsage, fmt::format("--policy: {}", policy.error().message));
    config.policy = *std::move(policy);
  }
  if (options.reasoning_budget >= 0) config.thought_tokens_max = static_cast<uint32_t>(options.reasoning_budget);
  return config;
}

// One model is loaded while everybody sees it: what is wrong with it ends the program, with its exit code.
OpenModel open_only_model(const Options& options, const ModelOptions& model, Log* start_log) {
  OpenModel open = open_model(model, start_log);
  const auto& format = open.served.chat_format;
  if (options.reasoning_budget >= 0 && !(format && format->format->has_thoughts()))
    fail(kUsage, fmt::format("--reasoning-budget: expected a model whose chat format has thoughts, found {}",
                             format ? format->format->name : "none"));
  return open;
}

void serve(const Options& options) {
  return_large_blocks_at_once();
  check_writable(options.sample_trace, "--sample-trace");
  check_writable(options.request_trace, "--request-trace");
  check_writable(options.placement_log, "--placement-log");
  const SteadyClock clock;
  const std::shared_ptr<Log> log = stderr_log(kLogLevels.at(options.log_level), kLogFormats.at(options.log_format));
  ModelOptions common = options.model;
  common.name = checked_text(common.name, "--name");
  const std::vector<ModelOptions> models = served_models(options.models, common, *log);
  const bool is_only = models.size() == 1;
  std::shared_ptr<TraceWriter> trace;
  if (!is_only && !options.sample_trace.empty())
    fail(kUsage, fmt::format("--sample-trace: expected one model, found {}", models.size()));
  std::vector<ModelSpec> specs = model_specs(options.models, models);
  specs[0].is_adopted = is_only;
  LoaderConfig loading = loader_config(options, models);
  const std::shared_ptr<server::AdapterShelf> adapters = loading.adapters;
  auto kv_events = KvEventStream::open(options.kv_events, options.engine.config, options.worker_id, log);
  if (!kv_events) fail(kv_events.error());
  loading.kv_events = *std::move(kv_events);
  EngineOptions engine_options = options.engine;
  engine_options.config.adapters = loading.engine.adapters;
  engine_options.config.exchange = loading.engine.exchange;
  const auto loader = std::make_shared<EngineLoader>(std::move(loading), &clock, log);
  // Until signals are watched: a reload while the model loads reads nothing new and must not end the process.
  if (server::Server::can_reload(options.server)) std::signal(SIGHUP, SIG_IGN);
  std::optional<OpenModel> open;
  // In JSON each line is an object, from the first on; as text the start is told as by other commands, with a bar.
  Log* const start_log = kLogFormats.at(options.log_format) == LogFormat::kJson ? log.get() : nullptr;
  if (is_only) open = open_only_model(options, models[0], start_log);
  // Before the weights are loaded: what is wrong with an address is told at once, and who asks meanwhile is told that
  // they are being loaded.
  Result<std::unique_ptr<server::Server>> bound = server::Server::bind(options.server, log);
  if (!bound) fail(bound.error());
  server::Server& server = **bound;
  if (!is_only)
    if (Status status = loader->measure_memory(); !status) fail(status.error(), kNoDevice);
  const auto host =
      std::make_shared<ModelHost>(specs, registry_limits(options.models, models.size()), loader, &clock, log);
  if (adapters)
    host->set_aliases([adapters](std::string_view name) -> std::optional<std::string> {
      const auto adapter = adapters->find(name);
      return adapter ? std::optional(adapter->model) : std::nullopt;
    });
  if (is_only) {
    loader->on_loss([&server](const Error&) { server.drain(); });
    const auto prepare = [&](Engine& engine) {
      const bool is_fleet = loader->devices().size() > 1;
      trace = open_trace(options.sample_trace, engine, start_log,
                         is_fleet ? fmt::format("{}", fmt::join(loader->devices(), ",")) : "");
      loader->set_sample_trace(trace);
    };
    adopt_only_model(std::move(*open), engine_options, *loader, host, &clock, prepare, start_log);
  }
  for (const std::string& line : options.settings_lines) log->info("{}", line);
  server.open(host, options.settings);
  server.drain_on_signals();
  const auto control = listen_for_control(host, server, *log);
  log->info("serving {} on {}", is_only ? models[0].name : fmt::format("{} models", models.size()),
            fmt::join(server.urls(), ", "));
  server.run();
  host->stop();  // before the server: engines may still hold sinks
  if (trace)
    if (Status status = trace->flush(); !status) log->error("{}", status.error().message);
  if (const std::optional<Error> loss = loader->last_loss(); loss && is_only)
    throw Exit{loss->code == ErrorCode::kDeviceLost ? kDeviceLost : kFailed};
  log->info("stopped");
}

}  // namespace

void add_serve(CLI::App& app) {
  CLI::App* command = app.add_subcommand("serve", "Serve models over HTTP, compatible with OpenAI's API");
  const auto options = std::make_shared<Options>();
  add_served_models_options(*command, options->models);
  server::ServerConfig& server = options->server;
  server.version = LLMRT_VERSION;
  const char* group = "Server";
  command->add_option("--name", options->model.name, "what clients call the model, of one; default: the file's name")
      ->type_name("NAME")
      ->group(group);
  command
      ->add_option("--chat-format", options->model.chat_format,
                   "how the model writes thoughts and tool calls; auto: as its template says (llmrt inspect tells "
                   "which); plain: as text alone")
      ->check(one_of(chat_format_names()))
      ->capture_default_str()
      ->type_name("NAME")
      ->group(group);
  command
      ->add_option("--thought-field", options->thought_field,
                   "the field of messages and deltas that thoughts are told in; none: they stay in the content")
      ->check(one_of({"reasoning_content", "reasoning", "none"}))
      ->capture_default_str()
      ->type_name("NAME")
      ->group(group);
  command
      ->add_option(
          "--reasoning-budget", options->reasoning_budget,
          "tokens that the thoughts of an answer may have where a request does not say; 0: none, -1: any number")
      ->check(number_range(int64_t{-1}, int64_t{1} << 30))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  command
      ->add_option(
          "--policy", options->policy,
          "what no answer may say: a JSON file with strings, expressions and ignore_case; an answer ends before "
          "it, with content_filter")
      ->type_name("FILE")
      ->group(group);
  command->add_option("--host", server.hosts, "names or addresses to listen on: all addresses of each")
      ->delimiter(',')
      ->default_str("127.0.0.1")
      ->type_name("ADDRESS")
      ->group(group);
  command->add_option("--port", server.port, "port to listen on; 0: any free one")
      ->check(number_range(uint16_t{0}, uint16_t{65535}))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  command
      ->add_option("--allowed-hosts", server.allowed_hosts,
                   "names that clients may call this server by, without port; *.NAME: all below it; *: any. On a "
                   "loopback address loopback names are always allowed and are the default; elsewhere the default is "
                   "any")
      ->delimiter(',')
      ->check(CLI::Validator(host_problem, ""))
      ->type_name("NAME")
      ->group(group);
  command
      ->add_option("--allowed-origins", server.allowed_origins,
                   "origins (http://HOST:PORT) whose pages browsers let use this server; *: any; default: none")
      ->delimiter(',')
      ->check(CLI::Validator(origin_problem, ""))
      ->type_name("ORIGIN")
      ->group(group);
  command
      ->add_option("--unix-socket", server.unix_socket,
                   "a unix socket to listen on; then on no address, unless --host or --port is given, too")
      ->type_name("PATH")
      ->group(group);
  command
      ->add_option_function<std::string>(
          "--unix-socket-mode",
          [&server](const std::string& text) { server.unix_socket_mode = std::stoul(text, nullptr, 8); },
          "who may use the unix socket: permissions of its file, in octal digits")
      ->check(CLI::Validator(mode_problem, ""))
      ->default_str("600")
      ->type_name("MODE")
      ->group(group);
  auto* certificate = command
                          ->add_option("--tls-cert", server.tls_certificate,
                                       "speak TLS (1.2, 1.3), with this certificate and its chain in PEM; SIGHUP reads "
                                       "it again. Not on the unix socket")
                          ->type_name("FILE")
                          ->group(group);
  command->add_option("--tls-key", server.tls_key, "its private key in PEM, without a passphrase")
      ->needs(certificate)
      ->type_name("FILE")
      ->group(group);
  certificate->needs("--tls-key");
  command
      ->add_option("--api-key-file", server.api_key_file,
                   "keys that clients must have, a line each: name, secret or sha256:HEX, limits (docs/security.md); "
                   "SIGHUP reads it again. LLMRT_API_KEY in the environment is one more key")
      ->type_name("FILE")
      ->group(group);
  command->add_flag("--open-metrics", server.open_metrics, "answer /metrics without a key, too")->group(group);
  command
      ->add_option_function<std::string>(
          "--metrics-compat",
          [&server](const std::string& name) {
            server.metrics_compat = name == "vllm" ? server::MetricsCompat::kVllm : server::MetricsCompat::kNone;
          },
          "names that /metrics has beside llmrt's own: none, or vLLM's, which routers and dashboards read")
      ->check(one_of({"none", "vllm"}))
      ->default_str("none")
      ->type_name("NAME")
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
  command
      ->add_flag("--no-compression", options->no_compression,
                 "refuse bodies with Content-Encoding: gzip or deflate, and send no answer in gzip; without this, "
                 "answers of 1 KiB or more that are no streams are, for clients that take it")
      ->group(group);
  command
      ->add_flag("--strict-fields", server.strict_fields,
                 "refuse fields that have no effect here, also in messages; without it they are ignored and named in "
                 "the header x-llmrt-ignored")
      ->group(group);
  command
      ->add_flag(
          "--keep-client-headers", server.keeps_client_headers,
          "/v1/messages: keep the line x-anthropic-billing-header that agents put first into the system text; it "
          "changes with every call, so nothing behind it is found in the prefix cache")
      ->group(group);
  command->add_option("--connections", server.connections_max, "connections open at once, at most")
      ->check(number_range(size_t{1}, size_t{1} << 20))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  command
      ->add_option_function<uint64_t>(
          "--client-memory-mib", [&server](uint64_t mib) { server.client_memory_bytes = mib << 20; },
          "what all clients together may make the server hold (bodies, waiting requests, answers); beyond it new "
          "requests get 503")
      ->check(number_range(uint64_t{16}, uint64_t{1} << 24))
      ->default_str("1024")
      ->type_name("MIB")
      ->group(group);
  command
      ->add_option("--files-dir", server.files_dir,
                   "a folder for /v1/files and /v1/batches, made where it is not there; without it there are none")
      ->type_name("DIR")
      ->group(group);
  command
      ->add_option_function<uint64_t>(
          "--files-gib", [&server](uint64_t gib) { server.files_bytes_max = gib << 30; },
          "what the files of all clients may take there, answers of batches among them")
      ->check(number_range(uint64_t{1}, uint64_t{1} << 20))
      ->default_str("10")
      ->type_name("GIB")
      ->group(group);
  command
      ->add_option("--batch-in-flight", options->batch_in_flight,
                   "requests of batches in the engine at a time; default: twice --sequences, at most 512")
      ->check(number_range(1u, 4096u))
      ->type_name("N")
      ->group(group);
  command
      ->add_option("--adapter", options->adapters,
                   "a low-rank adapter of the (first) model: clients name it as their model. A PEFT folder or a GGUF "
                   "file; may be given often")
      ->type_name("NAME=PATH")
      ->check(adapter_problem)
      ->group(group);
  command
      ->add_option("--adapters-dir", options->adapters_dir,
                   "a folder below which clients with a key may have adapters loaded (/v1/load_lora_adapter)")
      ->type_name("DIR")
      ->check(CLI::ExistingDirectory)
      ->group(group);
  command
      ->add_option("--sample-trace", options->sample_trace,
                   "write how each token of each request was drawn, as JSON lines; llmrt replay draws them again")
      ->type_name("FILE")
      ->group(group);
  command
      ->add_option_function<std::string>(
          "--slow-clients",
          [&server](const std::string& name) { server.slow_clients = *server::parse_slow_clients(name); },
          "what is done when more than --stream-buffer-kib of a stream waits to be read. buffer: nothing, as long as "
          "the "
          "client reads fast enough; throttle: its answer is computed on when it has read; disconnect: it is given up")
      ->check(one_of({"buffer", "throttle", "disconnect"}))
      ->default_str("buffer")
      ->type_name("NAME")
      ->group(group);
  command
      ->add_option_function<size_t>(
          "--stream-buffer-kib", [&server](size_t kib) { server.outbox_bytes_max = kib << 10; },
          "what may wait in the server for the client of a stream, beside the kernel's 256 KiB")
      ->check(number_range(size_t{1}, size_t{1} << 20))
      ->default_str("256")
      ->type_name("KIB")
      ->group(group);
  command->add_option("--stall-s", server.write_s, "seconds after which a client that reads nothing is given up")
      ->check(number_range(1, 86400))
      ->capture_default_str()
      ->type_name("S")
      ->group(group);
  command
      ->add_option("--heartbeat-s", server.comment_s,
                   "silence of a stream before a comment line keeps proxies awake, in seconds; 0: none")
      ->check(number_range(0, 86400))
      ->capture_default_str()
      ->type_name("S")
      ->group(group);
  command->add_option("--idle-s", server.idle_s, "seconds that a connection may stay open between requests")
      ->check(number_range(1, 86400))
      ->capture_default_str()
      ->type_name("S")
      ->group(group);
  command
      ->add_option("--drain-notice-s", server.drain_notice_s,
                   "seconds between SIGTERM, when /ready and /health turn 503, and the end of the port")
      ->check(number_range(0, 3600))
      ->capture_default_str()
      ->type_name("S")
      ->group(group);
  command->add_option("--grace", server.grace_s, "time that open answers have after SIGTERM, in seconds")
      ->check(number_range(0, 86'400))
      ->capture_default_str()
      ->type_name("S")
      ->group(group);
  command
      ->add_option("--log-level", options->log_level,
                   "what standard error shows: error; warn adds refused connections; info adds refused requests (20 a "
                   "second at most), preemptions, start and end; off")
      ->check(one_of({"error", "warn", "info", "off"}))
      ->capture_default_str()
      ->type_name("LEVEL")
      ->group(group);
  command
      ->add_option("--log-format", options->log_format,
                   "text, or json: an object a line, with time, level, message and what the line is about (status, "
                   "code, path, request_id, key, model)")
      ->check(one_of({"text", "json"}))
      ->capture_default_str()
      ->type_name("FORMAT")
      ->group(group);
  command
      ->add_option("--request-trace", options->request_trace,
                   "append a line of JSON for each choice that has ended (docs/observability.md); llmrt trace reads it")
      ->type_name("FILE")
      ->group(group);
  add_kv_events_options(*command, options->kv_events);
  command->add_option("--worker-id", options->worker_id, "name of this engine in the request trace and in KV events")
      ->capture_default_str()
      ->type_name("NAME")
      ->group(group);
  const char* fleet = "Devices";
  command
      ->add_option_function<std::string>(
          "--placement",
          [options](const std::string& name) { options->placement.policy = *parse_placement_policy(name); },
          "which device gets a request: lateness: where it comes least late, by what each device has left and how fast "
          "it is; or least-load, round-robin")
      ->check(one_of({"lateness", "least-load", "round-robin"}))
      ->default_str("lateness")
      ->type_name("RULE")
      ->group(fleet);
  command
      ->add_option("--kept-share", options->placement.kept_share,
                   "share of a large device's KV pool that is kept for long requests")
      ->check(number_range(0.0, 0.9))
      ->capture_default_str()
      ->type_name("SHARE")
      ->group(fleet);
  command
      ->add_option("--long-tokens", options->placement.long_tokens,
                   "tokens of prompt and answer beyond which a request is a long one")
      ->check(number_range(uint64_t{1}, uint64_t{1} << 32))
      ->capture_default_str()
      ->type_name("N")
      ->group(fleet);
  command
      ->add_option(
          "--roles", options->roles,
          "what each device does, in the order of --device: both, or prefill: it computes prompts for those of "
          "role decode, which go on with the answer from the prompt's KV blocks")
      ->delimiter(',')
      ->check(one_of({"both", "prefill", "decode"}))
      ->type_name("ROLE")
      ->group(fleet);
  command
      ->add_flag("--hand-over-by-load", options->hands_over_by_load,
                 "devices that do both hand prompts over, too, where the answer is predicted to end clearly earlier")
      ->group(fleet);
  command->add_option("--hand-over-gib", options->hand_over_gib, "host memory for KV blocks that are handed over")
      ->check(number_range(0.001, 1e6))
      ->capture_default_str()
      ->type_name("GIB")
      ->group(fleet);
  command
      ->add_option("--reopen-s", options->reopen_s,
                   "seconds before a device that was lost is opened again, while others serve; twice as many each time "
                   "that this fails, 600 at most")
      ->check(number_range(0.1, 600.0))
      ->capture_default_str()
      ->type_name("S")
      ->group(fleet);
  command
      ->add_option("--placement-log", options->placement_log,
                   "append a line of JSON for each decision, with all that it was made of (docs/scale.md)")
      ->type_name("FILE")
      ->group(fleet);
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
  // A list is one argument with commas: what follows it may be a model.
  for (CLI::Option* option : command->get_options())
    if (option->nonpositional() && option->get_items_expected_max() > 1 && !option->get_positional())
      option->expected(1)->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->footer(
      "Paths: POST /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /tokenize, /detokenize, and "
      "with /render behind the first two what they would run with; GET "
      "/v1/models, /health, /ready, /live, /version, /metrics, /config, /openapi.json, /server_info, /model_info, "
      "/get_load, /v1/loads; Ollama's under /api; with --files-dir /v1/files and /v1/batches.\n"
      "  curl http://127.0.0.1:8000/v1/chat/completions \\\n"
      "    -H 'Content-Type: application/json' \\\n"
      "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'\n"
      "docs/api.md lists every field and limit. Beyond loopback it wants keys: --api-key-file.\n"
      "llmrt ps shows what a running server has loaded, llmrt stop ends it or unloads a model (docs/models.md).\n"
      "SIGINT or SIGTERM lets open answers finish; a second one ends them.");
  add_settings_options(*command, &options->config, &options->prints_config);
  command->callback([command, options] {
    apply_settings(*command, options->config);
    if (options->prints_config) {
      fmt::print("{}", settings_toml(*command));
      return;
    }
    options->settings = settings_json(*command);
    options->settings_lines = settings_lines(*command);
    options->server.compression = !options->no_compression;
    if (const char* key = std::getenv("LLMRT_API_KEY")) options->server.api_key = key;
    const bool names_address = command->count("--host") + command->count("--port") > 0;
    if (!options->server.unix_socket.empty() && !names_address) options->server.hosts.clear();
    options->server.batch_in_flight = lines_in_flight(options->batch_in_flight, options->engine.config.sequences_max);
    serve(*options);
  });
}

}  // namespace llmrt::cli
