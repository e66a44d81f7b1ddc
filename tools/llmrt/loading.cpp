// From a path and options to a model, and from there to an engine on a device.
#include <charconv>
#include <cmath>
#include <filesystem>

#include "backends/backends.h"
#include "core/model/model_digest.h"
#include "core/text/utf8.h"
#include "tools/llmrt/program.h"
#include "tools/llmrt/progress.h"
#include "tools/number_range.h"

namespace llmrt::cli {
namespace {

constexpr uint32_t kHardCap = 1u << 30;  // --reserve-output: beyond any max_tokens

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

}  // namespace

void add_model_options(CLI::App& command, ModelOptions& options) {
  command.add_option("model", options.path, "GGUF file, or synthetic:SHAPE:ENCODING")->required()->type_name("MODEL");
}

void add_engine_options(CLI::App& command, EngineOptions& options) {
  EngineConfig& config = options.config;
  const char* group = "Engine";
  command.add_option("--device", options.device, "auto, cuda:N or vulkan:N (see llmrt devices)")
      ->type_name("ID")
      ->capture_default_str()
      ->group(group);
  command.add_option("--context", config.context_max, "tokens a sequence may have; default: the model's own")
      ->type_name("N")
      ->group(group);
  command.add_option("--sequences", config.sequences_max, "running at once")
      ->type_name("N")
      ->check(CLI::Range(1u, 65536u))
      ->capture_default_str()
      ->group(group);
  command.add_option("--step-tokens", config.step_tokens_max, "tokens of one step, at most")
      ->type_name("N")
      ->check(CLI::Range(1u, 65536u))
      ->capture_default_str()
      ->group(group);
  command.add_option("--chunk-tokens", config.chunk_tokens, "of prompts, in a step in which others decode")
      ->type_name("N")
      ->check(CLI::Range(1u, 65536u))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--tpot-target-ms", config.tpot_target_ms,
                  "longest step in which others decode: chunks of prompts are as large as that allows; default: "
                  "--chunk-tokens, however long it takes")
      ->type_name("MS")
      ->check(number_range(0.1, 1e6))
      ->group(group);
  command
      .add_option("--ttft-target-ms", config.ttft_target_ms,
                  "interactive and agent requests that would wait longer for their first token are refused; default: "
                  "any wait")
      ->type_name("MS")
      ->check(number_range(1.0, 1e9))
      ->group(group);
  command
      .add_option("--class-shares", options.class_shares,
                  "of decode and prefill in percent, as CLASS=DECODE/PREFILL, for interactive, agent, batch (and "
                  "evaluation); what one does not use the others have. Background takes what is left")
      ->type_name("LIST")
      ->delimiter(',')
      ->default_str("interactive=50/30,agent=25/20,batch=25/50")
      ->group(group);
  command
      .add_option("--batching", options.batching,
                  "who waits joins those that run in any step (continuous). For comparison: nobody joins a batch, and "
                  "the next one begins when all of it have ended, with who waits then (static), or when it is full or "
                  "the first of it has waited for --batch-wait-ms (dynamic)")
      ->type_name("WHICH")
      ->check(CLI::IsMember({"continuous", "static", "dynamic"}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--batch-wait-ms", config.batch_wait_ms, "of dynamic batching")
      ->type_name("MS")
      ->check(CLI::Range(int64_t{0}, int64_t{3'600'000}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--request-timeout-s", options.request_timeout_s, "of a whole answer; default: none")
      ->type_name("S")
      ->check(number_range(0.001, 1e6))
      ->group(group);
  command.add_option("--queue-timeout-s", options.queue_timeout_s, "until a request starts; default: none")
      ->type_name("S")
      ->check(number_range(0.001, 1e6))
      ->group(group);
  command
      .add_option("--reserve-output", options.reserve_output,
                  "output tokens reserved at admission, hard_cap: all of a request's max_tokens; default: what 95 % of "
                  "the last answers did not pass, 256 before there were 100")
      ->transform([](const std::string& text) { return text == "hard_cap" ? std::to_string(kHardCap) : text; })
      ->check(CLI::Validator(
          [](const std::string& text) {
            const bool is_fine = CLI::Range(0u, kHardCap)(text).empty();
            return is_fine ? "" : fmt::format("expected 0 to {} or hard_cap, found {}", kHardCap, text);
          },
          ""))
      ->type_name("N|hard_cap")
      ->group(group);
  command.add_option("--kv-tokens", config.kv_tokens, "size of the KV pool; default: what memory allows")
      ->type_name("N")
      ->group(group);
  std::vector<std::string> kv_names;
  for (const KvDType dtype : kKvDTypes) kv_names.emplace_back(kv_dtype_name(dtype));
  command.add_option("--kv-dtype", options.kv_dtype, kKvDTypeNames)
      ->type_name("TYPE")
      ->check(CLI::IsMember(kv_names))
      ->capture_default_str()
      ->group(group);
  command.add_option("--block-tokens", config.block_tokens, "of a KV block: 16, 32 or 64")
      ->type_name("N")
      ->check(CLI::IsMember({16, 32, 64}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--prefix-cache", options.prefix_cache,
          "keep the blocks of past prompts and answers: on (a radix tree), flat (a table of hashes, which finds "
          "whole blocks alone) or off")
      ->type_name("WHICH")
      ->check(CLI::IsMember({"on", "flat", "off"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--kv-host-gib", options.kv_host_gib,
                  "host memory for KV blocks that the pool gives up: of preempted requests and of prefixes")
      ->type_name("GIB")
      ->check(number_range(0.0, 65536.0))
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--on-exhaustion", options.on_exhaustion,
          "what happens when the KV pool is full. What is admitted has room for all of its max_tokens, and others "
          "are refused (reject) or wait (queue); or more is admitted, and somebody yields later, whose keys and "
          "values go to the host (swap), are computed again (recompute), or what costs less (preempt)")
      ->type_name("POLICY")
      ->check(CLI::IsMember({"reject", "queue", "preempt", "swap", "recompute"}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--memory-utilization", config.memory_utilization, "share of the device's memory to use")
      ->type_name("SHARE")
      ->check(number_range(0.05, 1.0))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--f16-copies", config.f16_copies_share,
                  "share of the KV cache's memory that copies of quantised weights in f16 may take (prompts and large "
                  "batches are faster by them; made where at least half of the weights find room), beside memory that "
                  "it has no use for; 0: none")
      ->type_name("SHARE")
      ->check(number_range(0.0, 0.9))
      ->capture_default_str()
      ->group(group);
  command
      .add_flag("--batch-invariant", config.batch_invariant,
                "numbers that do not depend on what runs beside a request, bit by bit; slower")
      ->group(group);
  command.add_flag("--no-overlap", options.no_overlap, "plan a step only after the one before; same tokens")
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
  served.id = name_of(std::filesystem::path(options.path).stem().string());
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
  return open;
}

OpenModel open_model(const ModelOptions& options) {
  ModelOptions checked = options;
  checked.name = checked_text(options.name, "--name");
  Result<OpenModel> open = try_open_model(checked);
  if (!open) fail(open.error(), kBadModel);
  for (const std::string& warning : open->warnings) fmt::print(stderr, "warning: {}\n", warning);
  return *std::move(open);
}

EngineConfig engine_config(const EngineOptions& options) {
  EngineConfig config = options.config;
  config.kv_dtype = *parse_kv_dtype(options.kv_dtype);
  config.prefix_cache = options.prefix_cache == "on"     ? PrefixCacheKind::kRadix
                        : options.prefix_cache == "flat" ? PrefixCacheKind::kHashed
                                                         : PrefixCacheKind::kOff;
  config.kv_host_bytes = static_cast<uint64_t>(options.kv_host_gib * (1ull << 30));
  config.on_exhaustion = *parse_on_exhaustion(options.on_exhaustion);
  config.batching = *parse_batching(options.batching);
  config.overlap = !options.no_overlap;
  config.class_shares = class_shares_of(options.class_shares);
  config.learns_output = options.reserve_output < 0;
  if (options.reserve_output >= 0) config.reserve_output_tokens = static_cast<uint32_t>(options.reserve_output);
  config.request_timeout_ms = std::llround(options.request_timeout_s * 1e3);
  config.queue_timeout_ms = std::llround(options.queue_timeout_s * 1e3);
  return config;
}

std::unique_ptr<Engine> open_engine(OpenModel& open, const EngineOptions& options, const Clock* clock, bool quiet) {
  open.times.model_ns = clock->now_ns();
  Result<std::unique_ptr<Backend>> backend = open_device(options.device);
  if (!backend) fail(backend.error(), kNoDevice);
  open.times.device_ns = clock->now_ns();
  const std::string device =
      fmt::format("{} ({}, {})", (*backend)->caps().device_id, (*backend)->caps().device_name, (*backend)->caps().tier);
  if (!quiet) fmt::print(stderr, "device: {}\n", device);
  ProgressBar bar("loading weights", quiet);
  Result<std::unique_ptr<Engine>> engine =
      Engine::create(engine_config(options), open.model, open.served.tokenizer, std::move(*backend), clock,
                     [&](uint64_t done, uint64_t total) {
                       bar.update(done, total);
                       open.times.weights_ns = clock->now_ns();
                     });
  bar.finish();
  open.times.engine_ns = clock->now_ns();
  if (!engine) fail(engine.error(), engine.error().code == ErrorCode::kInvalidArgument ? kUsage : kNoDevice);
  const MemoryPlan& plan = (*engine)->memory_plan();
  if (!quiet)
    fmt::print(stderr, "KV pool: {} blocks of {} tokens (limited by {}), context {}{}\n", plan.num_blocks,
               plan.block_tokens, plan.limited_by, (*engine)->config().context_max,
               plan.f16_copy_bytes ? fmt::format("; weights in f16 too: {}", bytes_text(plan.f16_copy_bytes)) : "");
  if (const std::string remark = (*engine)->backend().remark(); !quiet && !remark.empty())
    fmt::print(stderr, "note: {}\n", remark);
  open.served.context_max = (*engine)->config().context_max;
  open.served.block_tokens = plan.block_tokens;
  return std::move(*engine);
}

SampleTraceOrigin trace_origin(Engine& engine) {
  std::string digest;
  for (const auto byte : model_digest(engine.model())) digest += fmt::format("{:02x}", byte);
  return {engine.model().path, digest, engine.backend().caps().device_id, kv_dtype_name(engine.config().kv_dtype)};
}

std::shared_ptr<TraceWriter> open_trace(const std::string& path, Engine& engine) {
  if (path.empty()) return nullptr;
  Result<std::shared_ptr<TraceWriter>> trace = TraceWriter::open(path, trace_origin(engine));
  if (!trace) fail(trace.error());
  return *trace;
}

}  // namespace llmrt::cli
