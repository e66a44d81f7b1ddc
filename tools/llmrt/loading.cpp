// From a path and options to a model, and from there to an engine on a device.
#include <filesystem>

#include "backends/backends.h"
#include "core/model/model_digest.h"
#include "tools/llmrt/program.h"
#include "tools/llmrt/progress.h"

namespace llmrt::cli {

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
  command.add_option("--chunk-tokens", config.chunk_tokens, "of a prompt, in a step in which others decode")
      ->type_name("N")
      ->check(CLI::Range(1u, 65536u))
      ->capture_default_str()
      ->group(group);
  command.add_option("--reserve-output", config.reserve_output_tokens, "output tokens reserved at admission")
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  command.add_option("--kv-tokens", config.kv_tokens, "size of the KV pool; default: what memory allows")
      ->type_name("N")
      ->group(group);
  command.add_option("--kv-dtype", options.kv_dtype, "f16, bf16 or int8")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"f16", "bf16", "int8"}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--block-tokens", config.block_tokens, "of a KV block: 16, 32 or 64")
      ->type_name("N")
      ->check(CLI::IsMember({16, 32, 64}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--prefix-cache", options.prefix_cache, "keep the blocks of past prompts and answers: on or off")
      ->type_name("WHICH")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--kv-host-gib", options.kv_host_gib,
                  "host memory for KV blocks that the pool gives up: of preempted requests and of prefixes")
      ->type_name("GIB")
      ->check(CLI::Range(0.0, 65536.0))
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
      ->check(CLI::Range(0.05, 1.0))
      ->capture_default_str()
      ->group(group);
  command.add_flag("--no-overlap", options.no_overlap, "plan a step only after the one before; same tokens")
      ->group(group);
}

OpenModel open_model(const ModelOptions& options) {
  OpenModel open;
  Result<std::shared_ptr<const Model>> model = load_model(options.path);
  if (!model) fail(model.error(), kBadModel);
  open.model = *model;

  server::ServedModel& served = open.served;
  served.id = options.name.empty() ? std::filesystem::path(options.path).stem().string() : options.name;
  served.vocab_size = open.model->config.vocab_size;
  served.context_max = open.model->config.context_max;
  served.no_chat_reason = "this model's file has no chat template";
  if (!open.model->vocabulary) {
    served.id = options.name.empty() ? options.path : options.name;
    served.no_chat_reason = "this model has no tokenizer: expected token ids";
    return open;
  }
  Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::create(*open.model->vocabulary);
  if (!tokenizer) fail(tokenizer.error(), kBadModel);
  served.tokenizer = std::move(*tokenizer);
  if (const std::string& source = open.model->vocabulary->chat_template; !source.empty()) {
    Result<std::unique_ptr<ChatTemplate>> compiled = ChatTemplate::compile(source);
    if (compiled)
      served.chat_template = std::move(*compiled);
    else
      served.no_chat_reason = fmt::format("this model's chat template does not compile: {}", compiled.error().message);
  }
  return open;
}

std::unique_ptr<Engine> open_engine(OpenModel& open, const EngineOptions& options, const Clock* clock, bool quiet) {
  EngineConfig config = options.config;
  config.kv_dtype = *parse_kv_dtype(options.kv_dtype);
  config.prefix_cache = options.prefix_cache == "on" ? PrefixCacheKind::kRadix : PrefixCacheKind::kOff;
  config.kv_host_bytes = static_cast<uint64_t>(options.kv_host_gib * (1ull << 30));
  config.on_exhaustion = *parse_on_exhaustion(options.on_exhaustion);
  config.overlap = !options.no_overlap;
  Result<std::unique_ptr<Backend>> backend = open_device(options.device);
  if (!backend) fail(backend.error(), kNoDevice);
  const std::string device =
      fmt::format("{} ({}, {})", (*backend)->caps().device_id, (*backend)->caps().device_name, (*backend)->caps().tier);
  if (!quiet) fmt::print(stderr, "device: {}\n", device);
  ProgressBar bar("loading weights", quiet);
  Result<std::unique_ptr<Engine>> engine =
      Engine::create(config, open.model, open.served.tokenizer, std::move(*backend), clock,
                     [&bar](uint64_t done, uint64_t total) { bar.update(done, total); });
  bar.finish();
  if (!engine) fail(engine.error(), engine.error().code == ErrorCode::kInvalidArgument ? kUsage : kNoDevice);
  const MemoryPlan& plan = (*engine)->memory_plan();
  if (!quiet)
    fmt::print(stderr, "KV pool: {} blocks of {} tokens (limited by {}), context {}\n", plan.num_blocks,
               plan.block_tokens, plan.limited_by, (*engine)->config().context_max);
  open.served.context_max = (*engine)->config().context_max;
  open.served.block_tokens = plan.block_tokens;
  return std::move(*engine);
}

TraceOrigin trace_origin(Engine& engine) {
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
