#include "tools/llmrt/kv_events_options.h"

#include <map>

#include "tools/number_range.h"

namespace llmrt::cli {
namespace {

const std::map<std::string, KvEventEncoding> kEncodings = {{"array", KvEventEncoding::kArray},
                                                           {"map", KvEventEncoding::kMap}};

std::string endpoint_problem(const std::string& text) {
  const size_t scheme = text.find("://");
  const std::string kind = text.substr(0, scheme == std::string::npos ? 0 : scheme);
  const bool is_tcp = kind == "tcp" && text.rfind(':') > scheme + 2;
  if (is_tcp || (kind == "ipc" && text.size() > scheme + 3)) return "";
  return fmt::format("expected an endpoint as tcp://*:5557 or ipc:///run/llmrt/events, found {}", text);
}

std::string replaced(std::string text, std::string_view name, std::string_view value) {
  for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size())
    text.replace(at, name.size(), value);
  return text;
}

}  // namespace

void add_kv_events_options(CLI::App& command, KvEventsOptions& options) {
  const char* group = "Server";
  auto* events =
      command
          .add_option(
              "--kv-events", options.config.endpoint,
              "tell routers which blocks of prompts are in the prefix cache, as vLLM does: ZeroMQ, which needs "
              "libzmq5. An endpoint with * or ::, or a file (ipc://), is listened on, another one connected to. "
              "The events hold the tokens of prompts, for everybody who connects (docs/scale.md)")
          ->check(CLI::Validator(endpoint_problem, ""))
          ->type_name("ENDPOINT")
          ->group(group);
  command
      .add_option("--kv-events-replay", options.config.replay_endpoint,
                  "where routers that have missed events ask for the last 10,000 messages, at most 64 MiB; listened on")
      ->check(CLI::Validator(endpoint_problem, ""))
      ->needs(events)
      ->type_name("ENDPOINT")
      ->group(group);
  command
      .add_option("--kv-events-topic", options.topic,
                  "topic of the events' messages; {worker} stands for --worker-id, {model} for the model's name")
      ->needs(events)
      ->capture_default_str()
      ->type_name("TEXT")
      ->group(group);
  command
      .add_option_function<std::string>(
          "--kv-events-encoding",
          [&options](const std::string& name) { options.config.encoding = kEncodings.at(name); },
          "what an event is: array, which all routers read, or map, as vLLM since June 2026")
      ->check(one_of({"array", "map"}))
      ->needs(events)
      ->default_str("array")
      ->type_name("NAME")
      ->group(group);
}

Result<std::shared_ptr<KvEventStream>> KvEventStream::open(const KvEventsOptions& options, const EngineConfig& engine,
                                                           const std::string& worker_id, std::shared_ptr<Log> log) {
  if (options.config.endpoint.empty()) return std::shared_ptr<KvEventStream>();
  if (engine.prefix_cache == PrefixCacheKind::kOff)
    return make_error(ErrorCode::kInvalidArgument, "--kv-events: expected a prefix cache (--prefix-cache), found none");
  auto publisher = KvEventPublisher::open(options.config, log);
  if (!publisher) return make_error(publisher.error().code, "--kv-events: {}", publisher.error().message);
  const std::string replay = (*publisher)->replay_endpoint();
  log->info("KV events on {}{}", (*publisher)->endpoint(), replay.empty() ? "" : ", old ones on " + replay);
  return std::shared_ptr<KvEventStream>(
      new KvEventStream(replaced(options.topic, "{worker}", worker_id), *std::move(publisher)));
}

void KvEventStream::follow(Engine& engine, const std::string& model) {
  const Digest identity = engine.prefix_source(Request()).identity;
  engine.listen(publisher_->listener(replaced(topic_, "{model}", model), identity));
}

}  // namespace llmrt::cli
