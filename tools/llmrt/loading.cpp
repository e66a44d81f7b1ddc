// From a path and options to a model, and from there to an engine on a device.
#include <charconv>
#include <cmath>

#include "backends/backends.h"
#include "core/base/check.h"
#include "core/base/utf8.h"
#include "core/model/model_digest.h"
#include "tools/llmrt/model_files.h"
#include "tools/llmrt/program.h"
#include "tools/llmrt/progress.h"
#include "tools/number_range.h"

namespace llmrt::cli {
namespace {

// Of a start, whose fatal errors are lines on standard error.
void tell(Log* log, const std::string& line) {
  if (log)
    log->info("{}", line);
  else
    fmt::print(stderr, "{}\n", line);
}
void warn(Log* log, const std::string& text) {
  if (log)
    log->warn("{}", text);
  else
    fmt::print(stderr, "warning: {}\n", text);
}

constexpr uint32_t kHardCap = 1u << 30;          // --reserve-output: beyond any max_tokens
constexpr const char* kAdapterName = "adapter";  // of the only one

// "interactive=50/30", ...
ClassShares class_shares_of(const std::vector<std::string>& texts) {
  ClassShares shares;
  for (const std::string& text : texts) {
    const size_t equals = text.find('='), slash = text.find('/');
    const auto request_class = parse_request_class(text.substr(0, equals));
    double decode = 0, prefill = 0;
    const auto read = [&](size_t first, size_t end, double* value) {
      const char *begin = text.data() + first, *behind = text.data() + end;
      const auto [at, error] = std::from_chars(begin, behind, *value);
      return error == std::errc() && at == behind && *value >= 0.1 && *value <= 100;
    };
    const bool is_fine = request_class && *request_class <= RequestClass::kBatch && equals != std::string::npos &&
                         slash != std::string::npos && slash > equals && read(equals + 1, slash, &decode) &&
                         read(slash + 1, text.size(), &prefill);
    if (!is_fine)
      fail(kUsage, fmt::format("--class-shares: expected interactive, agent or batch =DECODE/PREFILL with 0.1 to 100 "
                               "percent each, found '{}'",
                               text));
    const size_t lane = static_cast<size_t>(lane_of(*request_class));
    shares.decode[lane] = decode / 100;
    shares.prefill[lane] = prefill / 100;
  }
  return shares;
}

std::array<bool, kNumRequestClasses> allowed_classes_of(const std::vector<std::string>& names) {
  std::array<bool, kNumRequestClasses> allowed = {};
  for (const std::string& name : names) {
    const auto request_class = parse_request_class(name);
    if (!request_class)
      fail(kUsage, fmt::format("--allow-classes: expected names of interactive, agent, batch, evaluation and "
                               "background, found '{}'",
                               name));
    allowed[static_cast<size_t>(*request_class)] = true;
  }
  return allowed;
}

// How the model writes thoughts and calls.
Result<const ChatFormat*> format_of(const ModelOptions& options, const Tokenizer& tokenizer,
                                    std::vector<std::string>* warnings) {
  if (options.chat_format != "auto") return find_chat_format(options.chat_format);
  const std::string& source = tokenizer.vocabulary().chat_template;
  if (const std::string_view absent = absent_chat_format(source); !absent.empty()) {
    warnings->push_back(fmt::format("chat format {} is not there yet: thoughts and calls stay in the content", absent));
    return find_chat_format("plain");
  }
  return &detect_chat_format(source, tokenizer);
}

}  // namespace

void add_model_options(CLI::App& command, ModelOptions& options) {
  command.add_option("-m,--model,model", options.path, "GGUF file, Hugging Face folder, or synthetic:SHAPE:ENCODING")
      ->required()
      ->type_name("MODEL");
}

void add_engine_options(CLI::App& command, EngineOptions& options) {
  EngineConfig& config = options.config;
  const char* group = "Engine";
  const auto asks = [&config](bool AskedLimits::*what) {
    return [&config, what](const std::string&) { config.asked.*what = true; };
  };
  command
      .add_option_function<std::vector<std::string>>(
          "-d,--device",
          [&options](const std::vector<std::string>& devices) {
            options.devices = devices;
            options.device = devices.front();
          },
          "device to run on, as llmrt devices lists them: auto, cuda:N or vulkan:N; serve and batch take several, of "
          "any kinds, given with commas or one by one: they serve one model together (docs/scale.md)")
      ->delimiter(',')
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("ID")
      ->default_str("auto")
      ->group(group);
  command
      .add_option("-c,--context,--ctx-size", config.context_max,
                  "tokens that a sequence may have; default: the model's own")
      ->check(number_range(1u, ~0u).description(""))
      ->type_name("N")
      ->each(asks(&AskedLimits::context))
      ->group(group);
  command.add_option("--sequences", config.sequences_max, "sequences that run at once, at most")
      ->type_name("N")
      ->check(number_range(1u, 4096u))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--penalty-rows", config.penalty_rows_max,
                  "sequences with a presence, frequency or repetition penalty that run at once, at most; default: all, "
                  "or what memory allows (see explain --memory)")
      ->type_name("N")
      ->check(number_range(1u, 4096u))
      ->group(group);
  command.add_option("--step-tokens", config.step_tokens_max, "tokens of a step, at most")
      ->type_name("N")
      ->each(asks(&AskedLimits::step_tokens))
      ->check(number_range(1u, 65536u))
      ->capture_default_str()
      ->group(group);
  options.chunk_tokens = command
                             .add_option("--chunk-tokens", config.chunk_tokens,
                                         "prompt tokens of a step in which other sequences decode, at most; default: "
                                         "512, and more while first tokens would be late (--ttft-slo-ms) and steps "
                                         "stay within --tpot-slo-ms")
                             ->type_name("N")
                             ->each(asks(&AskedLimits::chunk_tokens))
                             ->check(number_range(1u, 65536u))
                             ->group(group);
  command
      .add_option("--tpot-target-ms", config.tpot_target_ms,
                  "make prompt chunks as large as keeps a step in which other sequences decode within this time; "
                  "default: chunks by --chunk-tokens")
      ->type_name("MS")
      ->check(number_range(0.1, 1e6))
      ->group(group);
  command
      .add_option("--ttft-target-ms", config.ttft_target_ms,
                  "refuse interactive and agent requests that would wait longer for their first token; default: any "
                  "wait")
      ->type_name("MS")
      ->check(number_range(1.0, 1e9))
      ->group(group);
  command
      .add_option("--class-shares", options.class_shares,
                  "percent of decode and prefill for each class, as CLASS=DECODE/PREFILL, for interactive, agent and "
                  "batch (which includes evaluation). Other classes use what a class leaves; background has no share")
      ->type_name("LIST")
      ->delimiter(',')
      ->default_str("interactive=50/30,agent=25/20,batch=25/50")
      ->group(group);
  command
      .add_option("--batching", options.batching,
                  "continuous: waiting requests join at any step. For comparison, static: the next batch begins with "
                  "the requests that wait when the last one has ended; dynamic: it begins when it is full, or its "
                  "first request has waited for --batch-wait-ms")
      ->type_name("WHICH")
      ->check(one_of({"continuous", "static", "dynamic"}))
      ->capture_default_str()
      ->group(group);
  options.batch_wait = command
                           .add_option("--batch-wait-ms", config.batch_wait_ms,
                                       "with --batching dynamic: how long a batch waits to fill")
                           ->type_name("MS")
                           ->check(number_range(int64_t{0}, int64_t{3'600'000}))
                           ->capture_default_str()
                           ->group(group);
  command
      .add_option("--request-timeout-s", options.request_timeout_s,
                  "end a request that has taken this long; default: never")
      ->type_name("S")
      ->check(number_range(0.001, 1e6))
      ->group(group);
  command
      .add_option("--queue-timeout-s", options.queue_timeout_s,
                  "end a request that has waited this long to start; default: never")
      ->type_name("S")
      ->check(number_range(0.001, 1e6))
      ->group(group);
  command
      .add_option("--queue-requests", config.queue_branches_max,
                  "choices that may wait, at most (a request of n choices counts n); what comes on top is told to come "
                  "again")
      ->type_name("N")
      ->check(number_range(1u, 1u << 24))
      ->capture_default_str()
      ->group(group);
  command.add_option("--queue-mib", options.queue_mib, "memory that requests may hold while they wait, at most")
      ->type_name("MIB")
      ->check(number_range(1u, 1u << 24))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--reserve-output", options.reserve_output,
                  "output tokens to reserve at admission; hard_cap: all of a request's max_tokens; default: the length "
                  "that 95 % of the last answers stayed within, 256 until there are 100 answers")
      ->transform([](const std::string& text) { return text == "hard_cap" ? std::to_string(kHardCap) : text; })
      ->check(CLI::Validator(
          [](const std::string& text) {
            const bool is_fine = CLI::Range(0u, kHardCap)(text).empty();
            return is_fine ? "" : fmt::format("expected 0 to {} or hard_cap, found {}", kHardCap, text);
          },
          ""))
      ->type_name("N|hard_cap")
      ->group(group);
  command.add_option("--kv-tokens", config.kv_tokens, "tokens in the KV pool; default: as many as memory allows")
      ->check(number_range(uint64_t{1}, ~uint64_t{0}).description(""))
      ->type_name("N")
      ->each(asks(&AskedLimits::kv_tokens))
      ->group(group);
  std::vector<std::string> kv_names;
  for (const KvDType dtype : kKvDTypes) kv_names.emplace_back(kv_dtype_name(dtype));
  command.add_option("--kv-dtype", options.kv_dtype, std::string("how keys and values are stored: ") + kKvDTypeNames)
      ->type_name("TYPE")
      ->check(one_of(kv_names))
      ->capture_default_str()
      ->group(group);
  command.add_option("--block-tokens", config.block_tokens, "tokens of a KV block: 16, 32 or 64")
      ->type_name("N")
      ->check(one_of({"16", "32", "64"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--prefix-cache", options.prefix_cache,
          "reuse the KV blocks of past prompts and answers: on (a radix tree), flat (a hash table, which finds whole "
          "blocks only) or off")
      ->type_name("WHICH")
      ->check(one_of({"on", "flat", "off"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--window-blocks", options.window_blocks,
                  "what becomes of KV blocks behind the window of layers that have one: free gives them back at once. "
                  "For comparison, keep holds them until their request ends")
      ->type_name("WHICH")
      ->check(one_of({"free", "keep"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--latent-prompts", options.latent_prompts,
                  "how prompts have latent attention: by-cost makes keys and values of all heads from the cache where "
                  "that takes fewer multiplications. For comparison, absorbed never does")
      ->type_name("FORM")
      ->check(one_of({"by-cost", "absorbed"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--state-interval", options.config.state_interval,
                  "of models with recurrent layers: keep a checkpoint of their states behind every so many tokens of a "
                  "prompt, from which another prompt that begins alike goes on")
      ->type_name("TOKENS")
      ->check(number_range(64.0, 16777216.0))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--kv-host-gib", options.kv_host_gib,
                  "host memory for KV blocks of preempted requests and of prefixes that the pool has no room for")
      ->type_name("GIB")
      ->each(asks(&AskedLimits::kv_host))
      ->check(number_range(0.0, 65536.0))
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--kv-disk", options.config.disk.folder,
          "a folder where KV blocks of prompts and answers are kept over restarts, in files that the owner alone "
          "reads; they hold the text of requests. Each model and configuration has a folder of its own there, "
          "which one program at a time may use. Without --kv-host-gib it gets a host tier of at most 1 GiB. Not "
          "for requests with a cache salt")
      ->type_name("DIR")
      ->group(group);
  command
      .add_option(
          "--kv-disk-gib", options.kv_disk_gib,
          "the most that the files of one model and configuration take in --kv-disk; those unused for longest go")
      ->type_name("GIB")
      ->check(number_range(0.0, 1048576.0))
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--on-exhaustion", options.on_exhaustion,
          "what to do when the KV pool is full. reject and queue reserve all of a request's max_tokens at admission "
          "and refuse other requests or let them wait. preempt, swap and recompute admit more and later suspend a "
          "request: its keys and values go to the host (swap), are computed again (recompute), or what costs less "
          "(preempt)")
      ->type_name("POLICY")
      ->check(one_of({"reject", "queue", "preempt", "swap", "recompute"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--memory-utilization", config.memory_utilization,
          "share of the device's memory to use; of a processor or where memory is the host's: of what is free, default "
          "a quarter")
      ->type_name("SHARE")
      ->each(asks(&AskedLimits::memory_utilization))
      ->check(number_range(0.05, 1.0))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--f16-copies", config.f16_copies_share,
                  "share of the KV cache's memory that f16 copies of quantised weights may take, besides memory that "
                  "the cache cannot use; 0: no copies. They make prompts and large batches faster, and are made when "
                  "there is room for at least half of the weights")
      ->type_name("SHARE")
      ->check(number_range(0.0, 0.9))
      ->capture_default_str()
      ->group(group);
  command
      .add_flag("--batch-invariant", config.batch_invariant,
                "make a request's numbers independent, to the bit, of the requests that run beside it; slower")
      ->group(group);
  command
      .add_flag("--no-batch-invariant", options.no_batch_invariant,
                "refuse requests for such numbers, and those of class evaluation: they slow the others down")
      ->excludes("--batch-invariant")
      ->group(group);
  command
      .add_option("--allow-classes", options.allow_classes,
                  "request classes that clients may name, of interactive, agent, batch, evaluation and background; "
                  "default: all. A request that names none is interactive, which is always allowed")
      ->type_name("LIST")
      ->delimiter(',')
      ->group(group);
  command
      .add_option("--hang-s", config.hang_s,
                  "seconds that a step may run before /health calls the device hung; on a processor ten times as "
                  "long, or ten times what is expected; 0: any time")
      ->type_name("S")
      ->check(number_range(0.0, 1e6))
      ->capture_default_str()
      ->group(group);
  options.speculation =
      command
          .add_option("--speculative", options.speculative,
                      "where drafts of a request's next tokens come from, when it says nothing of it: ngram, from its "
                      "own prompt and answer; model, from --draft-model; both, from the model where the text gives "
                      "none; or none. Default with a draft model: model. Drafts change no answer; those that are right "
                      "save steps")
          ->type_name("MODE")
          ->check(one_of({"none", "ngram", "model", "both"}))
          ->capture_default_str()
          ->group(group);
  command
      .add_option("--draft-model", options.draft_model,
                  "a smaller model with the same tokens, which drafts for the model: a GGUF file, a folder of "
                  "safetensors, or mtp: the model's own layer that drafts, where it has one")
      ->type_name("PATH")
      ->group(group);
  command.add_option("--draft-tokens", config.draft_tokens, "drafts of a row in a step, at most")
      ->type_name("N")
      ->check(number_range(1u, kDraftTokensMax))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--adapter-slots", config.adapters.slots,
                  "low-rank adapters on the device at once, most recently used ones; default: 8 where there are "
                  "adapters, else none")
      ->type_name("N")
      ->check(number_range(0u, kAdapterSlotsMax))
      ->group(group);
  command.add_option("--adapter-rank", config.adapters.rank_max, "rank that an adapter may have, at most")
      ->type_name("N")
      ->check(number_range(1u, kAdapterRankMax))
      ->capture_default_str()
      ->group(group);
  command
      .add_option_function<uint64_t>(
          "--adapter-mib", [&config](uint64_t mib) { config.adapters.bytes = mib << 20; },
          "device memory for adapters; default: room for --adapter-slots of rank 16 on every matrix")
      ->type_name("MIB")
      ->check(number_range(uint64_t{1}, uint64_t{1} << 20))
      ->group(group);
  command
      .add_flag("--no-overlap", options.no_overlap,
                "plan a step only after the one before has ended; the tokens are the same")
      ->group(group);
}

Result<OpenModel> try_open_model(const ModelOptions& options) {
  OpenModel open;
  open.times.begun_ns = SteadyClock().now_ns();
  Result<std::shared_ptr<const Model>> model = load_model(options.path);
  if (!model) return model.error();
  open.model = *model;
  open.warnings = open.model->warnings;

  server::ServedModel& served = open.served;
  // A file may be called anything; a name that clients send is UTF-8.
  const auto name_of = [&](const std::string& path) {
    return options.name.empty() ? replace_invalid_utf8(path) : options.name;
  };
  served.id = name_of(model_name(options.path));
  served.vocab_size = open.model->config.vocab_size;
  served.context_max = open.model->config.context_max;
  served.no_chat_reason = "this model's file has no chat template";
  if (!open.model->vocabulary) {
    served.id = name_of(options.path);
    served.no_chat_reason = "this model has no tokenizer: expected token ids";
    return open;
  }
  Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::create(*open.model->vocabulary);
  if (!tokenizer) return make_error(tokenizer.error().code, "{}: {}", options.path, tokenizer.error().message);
  served.tokenizer = std::move(*tokenizer);
  served.fim = find_fim_tokens(served.tokenizer->vocabulary());
  if (const std::string& source = open.model->vocabulary->chat_template; !source.empty()) {
    Result<std::unique_ptr<ChatTemplate>> compiled = ChatTemplate::compile(source);
    if (compiled) {
      served.chat_template = std::move(*compiled);
    } else {
      served.no_chat_reason = fmt::format("this model's chat template does not compile: {}", compiled.error().message);
      open.warnings.push_back(fmt::format("tokenizer.chat_template: does not compile, chat requests are refused: {}",
                                          compiled.error().message));
    }
  }
  Result<const ChatFormat*> format = format_of(options, *served.tokenizer, &open.warnings);
  if (!format) return format.error();
  served.chat_format =
      std::make_shared<const ResolvedFormat>(resolve_format(**format, marker_tokens(*served.tokenizer)));
  return open;
}

OpenModel open_model(const ModelOptions& options, Log* log) {
  ModelOptions checked = options;
  checked.name = checked_text(options.name, "--name");
  Result<OpenModel> open = try_open_model(checked);
  if (!open) fail(open.error(), kBadModel);
  for (const std::string& warning : open->warnings) warn(log, warning);
  return *std::move(open);
}

EngineConfig engine_config(const EngineOptions& options) {
  EngineConfig config = options.config;
  if (options.batch_wait && options.batch_wait->count() > 0 && options.batching != "dynamic")
    fail(kUsage, fmt::format("--batch-wait-ms: expected --batching dynamic beside it, found {}", options.batching));
  if (options.chunk_tokens && options.chunk_tokens->count() > 0 && config.chunk_tokens > config.step_tokens_max)
    fail(kUsage, fmt::format("--chunk-tokens: expected at most --step-tokens ({}), found {}", config.step_tokens_max,
                             config.chunk_tokens));
  config.kv_dtype = *parse_kv_dtype(options.kv_dtype);
  config.prefix_cache = options.prefix_cache == "on"     ? PrefixCacheKind::kRadix
                        : options.prefix_cache == "flat" ? PrefixCacheKind::kHashed
                                                         : PrefixCacheKind::kOff;
  config.kv_host_bytes = static_cast<uint64_t>(options.kv_host_gib * (1ull << 30));
  config.disk.bytes_max = static_cast<uint64_t>(options.kv_disk_gib * (1ull << 30));
  if (config.disk.folder.empty() != (config.disk.bytes_max == 0))
    fail(kUsage, fmt::format("--kv-disk and --kv-disk-gib: expected both or neither, found {}",
                             config.disk.folder.empty() ? "no folder" : "no size"));
  if (!config.disk.folder.empty() && config.prefix_cache == PrefixCacheKind::kOff)
    fail(kUsage, "--kv-disk: expected --prefix-cache on or flat beside it, found off");
  config.keeps_windows = options.window_blocks == "keep";
  config.expands_latents = options.latent_prompts == "by-cost";
  config.on_exhaustion = *parse_on_exhaustion(options.on_exhaustion);
  config.batching = *parse_batching(options.batching);
  config.overlap = !options.no_overlap;
  const bool names_source = options.speculation && options.speculation->count() > 0;
  const std::string& source = options.draft_model.empty() || names_source ? options.speculative : "model";
  config.ngram_drafts = source == "ngram" || source == "both";
  config.model_drafts = source == "model" || source == "both";
  if (config.model_drafts && options.draft_model.empty())
    fail(kUsage, fmt::format("--speculative {}: expected --draft-model beside it, found none", source));
  config.allows_batch_invariant = !options.no_batch_invariant;
  if (!options.allow_classes.empty()) config.allowed_classes = allowed_classes_of(options.allow_classes);
  config.class_shares = class_shares_of(options.class_shares);
  config.learns_output = options.reserve_output < 0;
  if (options.reserve_output >= 0) config.reserve_output_tokens = static_cast<uint32_t>(options.reserve_output);
  config.queue_bytes_max = uint64_t{options.queue_mib} << 20;
  config.request_timeout_ms = std::llround(options.request_timeout_s * 1e3);
  config.queue_timeout_ms = std::llround(options.queue_timeout_s * 1e3);
  return config;
}

static server::ServedFile served_file(const Model& model) {
  server::ServedFile file{.architecture = model.config.architecture,
                          .encoding = model.encoding,
                          .num_bytes = model.weights.bytes(),
                          .digest = to_hex(model_digest(model))};
  for (const WeightTensor& tensor : model.weights.tensors) file.num_weights += tensor.rows * tensor.columns;
  return file;
}

void add_adapter_option(CLI::App& command, EngineOptions& options) {
  command.add_option("--adapter", options.adapter, "a low-rank adapter of the model: a PEFT folder or a GGUF file")
      ->type_name("PATH");
}

void put_adapter(const server::ServedModel& model, boost::json::object* body) {
  if (model.adapters) (*body)["model"] = kAdapterName;
}

ReadyAdapter only_adapter(const server::ServedModel& model) {
  return model.adapters ? model.adapters->find(kAdapterName)->ready : ReadyAdapter();
}

namespace {

void load_adapter(const std::string& path, const Engine& engine, server::ServedModel* served) {
  Result<ReadyAdapter> ready = engine.load_adapter(path);
  if (!ready) fail(ready.error(), kUsage);
  served->adapters = std::make_shared<server::AdapterShelf>();
  const Status added = served->adapters->add({kAdapterName, served->id, path, *std::move(ready)});
  LLMRT_CHECK(added.ok(), "the only adapter's name is free");
}

}  // namespace

std::unique_ptr<Engine> open_engine(OpenModel& open, const EngineOptions& options, const Clock* clock, Log* log) {
  open.times.model_ns = clock->now_ns();
  if (options.devices.size() > 1)
    fail(kUsage, fmt::format("--device: expected one device, found {}", fmt::join(options.devices, ", ")));
  Result<std::unique_ptr<Backend>> backend = open_device(options.device);
  if (!backend) fail(backend.error(), kNoDevice);
  open.times.device_ns = clock->now_ns();
  const std::string device =
      fmt::format("{} ({}, {})", (*backend)->caps().device_id, (*backend)->caps().device_name, (*backend)->caps().tier);
  tell(log, fmt::format("device: {}", device));
  ProgressBar bar("loading weights", /*quiet=*/log != nullptr);
  EngineConfig config = engine_config(options);
  if (!options.adapter.empty() && config.adapters.slots == 0) config.adapters.slots = 1;
  Result<std::unique_ptr<Engine>> engine =
      try_open_engine(open, config, std::move(*backend), options.draft_model, clock,
                      [&bar](uint64_t done, uint64_t total) { bar.update(done, total); });
  bar.finish();
  if (log) log->info("{}", bar.line());
  if (!engine) fail(engine.error(), engine.error().code == ErrorCode::kInvalidArgument ? kUsage : kNoDevice);
  const MemoryPlan& plan = (*engine)->memory_plan();
  tell(log, fmt::format(
                "KV pool: {} blocks of {} tokens (limited by {}), context {}{}", plan.num_blocks, plan.block_tokens,
                plan.limited_by, (*engine)->config().context_max,
                plan.f16_copy_bytes ? fmt::format("; weights in f16 too: {}", bytes_text(plan.f16_copy_bytes)) : ""));
  if (plan.draft_fixed_bytes > 0)
    tell(log, fmt::format("draft model: {}, {}, and {} of KV pool", model_name(options.draft_model),
                          bytes_text(plan.draft_fixed_bytes), bytes_text(plan.draft_pool_bytes)));
  if (plan.penalty_rows < plan.sequences)
    tell(log, fmt::format("penalties: {} of {} sequences at a time may have them, {} each (--penalty-rows)",
                          plan.penalty_rows, plan.sequences, bytes_text(plan.penalty_row_bytes)));
  if (const std::string remark = (*engine)->backend().remark(); !remark.empty())
    tell(log, fmt::format("note: {}", remark));
  if (!options.adapter.empty()) load_adapter(options.adapter, **engine, &open.served);
  return std::move(*engine);
}

Result<std::unique_ptr<Engine>> try_open_engine(OpenModel& open, const EngineConfig& config,
                                                std::unique_ptr<Backend> backend, const std::string& draft_model,
                                                const Clock* clock, const Progress& progress) {
  DraftParts draft;
  if (!draft_model.empty()) {
    Result<std::shared_ptr<const Model>> model = load_draft_model(draft_model, *open.model);
    if (!model) return model.error();
    Result<std::unique_ptr<Backend>> own = open_device(backend->caps().device_id);
    if (!own) return own.error();
    draft = {*std::move(model), *std::move(own)};
  }
  const auto tell_progress = [&](uint64_t done, uint64_t total) {
    progress(done, total);
    open.times.weights_ns = clock->now_ns();
  };
  Result<std::unique_ptr<Engine>> engine = Engine::create(config, open.model, open.served.tokenizer, std::move(backend),
                                                          clock, tell_progress, std::move(draft));
  open.times.engine_ns = clock->now_ns();
  if (!engine) return engine;
  open.served.context_max = (*engine)->config().context_max;
  open.served.block_tokens = (*engine)->memory_plan().block_tokens;
  open.served.has_draft_model = (*engine)->draft_model() != nullptr;
  open.served.file = served_file(*open.model);
  const Caps& caps = (*engine)->backend().caps();
  open.served.origin = {.version = LLMRT_VERSION,
                        .backend = caps.device_id.substr(0, caps.device_id.find(':')),
                        .device = caps.device_id,
                        .device_name = caps.device_name,
                        .kv_dtype = kv_dtype_name((*engine)->config().kv_dtype)};
  open.served.device_monitor = monitor_device(caps.pci_address);
  return engine;
}

SampleTraceOrigin trace_origin(Engine& engine) {
  std::string digest;
  for (const auto byte : model_digest(engine.model())) digest += fmt::format("{:02x}", byte);
  return {engine.model().path, digest, engine.backend().caps().device_id, kv_dtype_name(engine.config().kv_dtype)};
}

std::shared_ptr<TraceWriter> open_trace(const std::string& path, Engine& engine, Log* log, const std::string& device) {
  if (path.empty()) return nullptr;
  SampleTraceOrigin origin = trace_origin(engine);
  if (!device.empty()) origin.device = device;
  Result<std::shared_ptr<TraceWriter>> trace = TraceWriter::open(path, origin);
  if (!trace) fail(trace.error());
  if ((*trace)->others_may_read()) warn(log, fmt::format("sample trace: {}: others than its owner may read it", path));
  return *trace;
}

}  // namespace llmrt::cli
