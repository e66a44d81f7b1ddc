// The server and the engine as `llmrt serve` runs them, behind a device whose steps take a set time: what
// hostile_test.py attacks. It is ready within a second, needs no device and no file, and prints "listening PORT" to
// standard output. With a script it is a model that says what the test wants, for clients whose agents call tools:
// {"template": Jinja, "answer_mark": what stands before an answer, "answers": [...], "tokens": special ones to be
// known, "chat_format": a name or "auto"}.
//
//   paced_server [flags as of llmrt serve] [--step-ms MS] [--token-us US] [--vocabulary bpe|spm] [--script FILE]
//                [--workers N [--lose-every-s S]]   N devices behind one endpoint, one of which is lost every S seconds
//   paced_server --colliding-keys N --seed S      prints N keys that std::hash puts into one bucket, and ends
#include <CLI/CLI.hpp>

#include <boost/json.hpp>

#include <array>
#include <bit>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>

#include "core/kv_events/publisher.h"
#include "core/platform/free_memory.h"
#include "server/server.h"
#include "tests/server/losable_backend.h"
#include "tests/server/paced_backend.h"
#include "tests/server/paced_vocabulary.h"
#include "tests/server/scripted_backend.h"
#include "tools/llmrt/fleet_door.h"
#include "tools/llmrt/local_engine.h"

namespace llmrt::test {
namespace {

struct Options {
  server::ServerConfig server;
  EngineConfig engine;
  PacedConfig paced;
  KvEventsConfig kv_events;
  std::string vocabulary = "bpe", script, name = "paced";
  uint32_t num_workers = 1;
  double lose_every_s = 0;
  uint32_t num_colliding_keys = 0;
  uint64_t seed = 1;
};

[[noreturn]] void fail(const Error& error) {
  fmt::print(stderr, "error: {}\n", error.message);
  std::exit(1);
}

// ---- keys of one bucket --------------------------------------------------------------------------------------------

// libstdc++ hashes a string by murmur with a seed that everybody knows, and its tables take the hash modulo a prime,
// the number of buckets. For keys of eight bytes all steps can be undone: from a hash that is a multiple of that number
// to the key that has it. `seed` moves where the search begins.
std::vector<std::string> colliding_keys(uint32_t num_keys, uint64_t seed) {
  constexpr std::array<uint64_t, 7> kBuckets = {5087, 10273, 20753, 42043, 85229, 172933, 351061};
  const uint64_t buckets =
      *std::ranges::find_if(kBuckets, [&](uint64_t n) { return n >= num_keys || n == kBuckets.back(); });
  constexpr uint64_t kMul = 0xc6a4a7935bd1e995, kLength = 8;
  uint64_t inverse = 1;
  for (int i = 0; i < 6; ++i) inverse *= 2 - kMul * inverse;
  const uint64_t start = 0xc70f6907 ^ (kLength * kMul);
  const auto unmix = [](uint64_t v) { return v ^ (v >> 47); };
  // Printable, and nothing that JSON escapes.
  const auto is_plain = [](uint64_t word) {
    for (uint64_t i = 0; i < kLength; ++i, word >>= 8)
      if (const uint64_t c = word & 0xff; c <= ' ' || c >= 0x7f || c == '"' || c == '\\') return false;
    return true;
  };
  std::vector<std::string> keys;
  for (uint64_t k = seed << 32 | 1; keys.size() < num_keys; ++k) {
    const uint64_t hash = k * buckets;
    const uint64_t word = unmix((unmix(unmix(hash) * inverse) * inverse ^ start) * inverse) * inverse;
    if (!is_plain(word)) continue;
    keys.emplace_back(kLength, '\0');
    std::memcpy(keys.back().data(), &word, kLength);
  }
  return keys;
}

// ---- the server ----------------------------------------------------------------------------------------------------

std::shared_ptr<Model> paced_model(uint32_t vocab_size) {
  auto model = std::make_shared<Model>();
  model->path = "paced";
  model->encoding = "f32";
  ModelConfig& config = model->config;
  config.architecture = "paced";
  config.width = 8;
  LayerSpec layer;
  layer.num_heads = layer.num_kv_heads = 1;
  layer.head_dim = layer.rope.dim = layer.ffn_width = 8;
  config.layers = {layer};
  model->rope_freqs = {-1};
  config.vocab_size = vocab_size;
  config.context_max = 32768;
  model->layers.resize(1);
  return model;
}

boost::json::object read_script(const std::string& path) {
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return boost::json::parse(text).as_object();
}

std::string text_of(const boost::json::object& script, const char* key) {
  return std::string(script.at(key).as_string());
}

std::unique_ptr<server::Server> listen(const Options& options, server::ServedModel served,
                                       std::shared_ptr<server::EngineDoor> door, const std::shared_ptr<Log>& log) {
  Result<std::unique_ptr<server::Server>> server =
      server::Server::listen(options.server, std::move(served), std::move(door), log);
  if (!server) fail(server.error());
  (*server)->drain_on_signals();
  return *std::move(server);
}

int serve_one(const Options& options, server::ServedModel served, std::unique_ptr<Engine> engine,
              const std::shared_ptr<Log>& log) {
  EngineThread thread(engine.get());
  const auto server = listen(options, std::move(served), std::make_shared<cli::LocalEngine>(&thread, nullptr), log);
  thread.start([&] {
    log->error("the engine ended: {}", *thread.trouble());
    server->drain();
  });
  std::cout << "listening " << server->port() << std::endl;
  server->run();
  const Status ran = thread.join();
  engine.reset();  // before the server: it may still hold sinks
  return ran.ok() ? 0 : 1;
}

int serve_several(const Options& options, server::ServedModel served, std::vector<std::unique_ptr<Engine>> engines,
                  std::function<Result<std::unique_ptr<Engine>>(size_t)> reopen, const std::shared_ptr<Log>& log) {
  std::vector<cli::FleetDoor::Worker> workers;
  for (std::unique_ptr<Engine>& engine : engines) {
    cli::FleetDoor::Worker& worker = workers.emplace_back();
    worker.device = fmt::format("paced:{}", workers.size() - 1);
    worker.engine = std::move(engine);
  }
  const SteadyClock clock;
  cli::FleetDoor::Config config;
  config.reopen = std::move(reopen);
  config.first_wait_s = 0.2;
  const auto door = std::make_shared<cli::FleetDoor>(std::move(workers), std::move(config), &clock, log);
  const auto server = listen(options, std::move(served), door, log);
  bool has_ended = false;
  door->start([&](const Error& error) {
    log->error("the last engine ended: {}", error.message);
    has_ended = true;
    server->drain();
  });
  std::cout << "listening " << server->port() << std::endl;
  server->run();
  door->close();
  return has_ended ? 1 : 0;
}

int serve(Options& options) {
  return_large_blocks_at_once();
  PacedVocabulary made = options.vocabulary == "spm" ? paced_sentencepiece() : paced_bpe();
  boost::json::object script;
  if (!options.script.empty()) {
    script = read_script(options.script);
    for (const auto& token : script.at("tokens").as_array()) {
      made.vocabulary.tokens.emplace_back(token.as_string());
      made.vocabulary.types.push_back(TokenType::kControl);
    }
  }
  options.paced.vocab_size = static_cast<uint32_t>(made.vocabulary.tokens.size());
  options.paced.text_first = made.text_first;
  options.paced.text_end = made.text_end;
  const std::shared_ptr<Model> model = paced_model(options.paced.vocab_size);
  Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::create(std::move(made.vocabulary));
  if (!tokenizer) fail(tokenizer.error());
  const std::string source = script.empty() ? kPacedTemplate : text_of(script, "template");
  Result<std::unique_ptr<ChatTemplate>> compiled = ChatTemplate::compile(source);
  if (!compiled) fail(compiled.error());
  server::ServedModel served;
  served.id = options.name;
  served.created = std::time(nullptr);
  served.vocab_size = options.paced.vocab_size;
  served.tokenizer = std::move(*tokenizer);
  served.chat_template = std::move(*compiled);
  options.paced.end = served.tokenizer->end_of_generation_ids().back();
  served.grammars = std::make_shared<GrammarCompiler>(TokenVocabulary::create(*served.tokenizer));
  const std::string format_name = script.empty() ? "auto" : text_of(script, "chat_format");
  const ChatFormat* format = &detect_chat_format(source, *served.tokenizer);
  if (format_name != "auto") {
    Result<const ChatFormat*> found = find_chat_format(format_name);
    if (!found) fail(found.error());
    format = *found;
  }
  served.chat_format =
      std::make_shared<const ResolvedFormat>(resolve_format(*format, marker_tokens(*served.tokenizer)));
  const SteadyClock clock;
  const std::shared_ptr<Log> log = stderr_log(LogLevel::kInfo);
  Fates::all().set_every_s(options.lose_every_s);
  std::unique_ptr<KvEventPublisher> kv_events;
  if (!options.kv_events.endpoint.empty()) {
    auto opened = KvEventPublisher::open(options.kv_events, log);
    if (!opened) fail(opened.error());
    kv_events = *std::move(opened);
  }
  const auto open_engine = [&, script, model, log, words = served.tokenizer](size_t) {
    std::unique_ptr<Backend> backend = std::make_unique<PacedBackend>(options.paced);
    if (!script.empty()) {
      Script lines{.answer_mark = text_of(script, "answer_mark"), .answers = {}};
      for (const auto& answer : script.at("answers").as_array()) lines.answers.emplace_back(answer.as_string());
      backend = std::make_unique<ScriptedBackend>(options.paced, lines, words);
    }
    if (options.num_workers > 1) backend = std::make_unique<LosableBackend>(std::move(backend), Fates::all().make());
    Result<std::unique_ptr<Engine>> engine =
        Engine::create(options.engine, model, words, std::move(backend), &clock, {});
    if (!engine) return engine;
    (*engine)->set_log(log);
    if (kv_events)
      (*engine)->listen(kv_events->listener("kv@0@" + options.name, (*engine)->prefix_source(Request()).identity));
    return engine;
  };
  std::vector<std::unique_ptr<Engine>> engines;
  for (uint32_t i = 0; i < options.num_workers; ++i) {
    Result<std::unique_ptr<Engine>> engine = open_engine(i);
    if (!engine) fail(engine.error());
    engines.push_back(*std::move(engine));
  }
  served.context_max = engines[0]->config().context_max;
  served.block_tokens = engines[0]->memory_plan().block_tokens;
  return options.num_workers == 1 ? serve_one(options, std::move(served), std::move(engines[0]), log)
                                  : serve_several(options, std::move(served), std::move(engines), open_engine, log);
}

}  // namespace
}  // namespace llmrt::test

int main(int argc, char** argv) {
  using namespace llmrt;
  test::Options options;
  options.server.port = 0;
  options.engine.kv_tokens = 1u << 20;
  options.engine.sequences_max = 512;
  CLI::App app{"The server on a device whose steps take a set time"};
  app.add_option("--port", options.server.port);
  app.add_option("--io-threads", options.server.io_threads);
  app.add_option("--work-threads", options.server.work_threads);
  app.add_option("--body-bytes", options.server.body_bytes_max);
  app.add_flag("--keep-client-headers", options.server.keeps_client_headers);
  app.add_option("--connections", options.server.connections_max);
  app.add_option_function<uint64_t>("--client-memory-mib",
                                    [&](uint64_t mib) { options.server.client_memory_bytes = mib << 20; });
  app.add_option("--grace", options.server.grace_s);
  app.add_option("--drain-notice-s", options.server.drain_notice_s);
  app.add_option("--idle-s", options.server.idle_s);
  app.add_option("--header-s", options.server.header_s);
  app.add_option("--body-s", options.server.body_s);
  app.add_option("--write-s", options.server.write_s);
  app.add_option_function<std::string>("--slow-clients", [&](const std::string& name) {
    options.server.slow_clients = server::parse_slow_clients(name).value();
  });
  app.add_option_function<size_t>("--stream-buffer-kib",
                                  [&](size_t kib) { options.server.outbox_bytes_max = kib << 10; });
  app.add_option("--send-buffer-bytes", options.server.send_buffer_bytes);
  app.add_option("--tls-cert", options.server.tls_certificate);
  app.add_option("--tls-key", options.server.tls_key);
  app.add_option("--unix-socket", options.server.unix_socket);
  app.add_option("--api-key-file", options.server.api_key_file);
  app.add_option("--files-dir", options.server.files_dir);
  app.add_option_function<std::string>("--metrics-compat",
                                       [&](const std::string& name) {
                                         if (name == "vllm")
                                           options.server.metrics_compat = server::MetricsCompat::kVllm;
                                       })
      ->check(CLI::IsMember({"none", "vllm"}));
  app.add_option_function<uint64_t>("--files-mib", [&](uint64_t mib) { options.server.files_bytes_max = mib << 20; });
  app.add_option("--batch-in-flight", options.server.batch_in_flight);
  app.add_option("--sequences", options.engine.sequences_max);
  app.add_option("--context", options.engine.context_max);
  app.add_option("--kv-tokens", options.engine.kv_tokens);
  app.add_option("--kv-events", options.kv_events.endpoint);
  app.add_option("--kv-events-replay", options.kv_events.replay_endpoint);
  app.add_option("--kv-events-queue", options.kv_events.queue_events_max);
  app.add_option("--kv-events-kept", options.kv_events.batches_kept);
  app.add_flag_callback("--kv-events-map", [&] { options.kv_events.encoding = KvEventEncoding::kMap; });
  app.add_option("--name", options.name);
  app.add_option("--step-ms", options.paced.step_ms);
  app.add_option("--token-us", options.paced.token_us);
  app.add_option("--workers", options.num_workers)->check(CLI::Range(1u, 64u));
  app.add_option("--lose-every-s", options.lose_every_s);
  app.add_option("--script", options.script)->check(CLI::ExistingFile);
  app.add_option("--vocabulary", options.vocabulary)->check(CLI::IsMember({"bpe", "spm"}));
  app.add_option("--colliding-keys", options.num_colliding_keys);
  app.add_option("--seed", options.seed);
  CLI11_PARSE(app, argc, argv);
  if (options.num_colliding_keys == 0) return test::serve(options);
  for (const std::string& key : test::colliding_keys(options.num_colliding_keys, options.seed))
    std::cout << key << '\n';
  return 0;
}
