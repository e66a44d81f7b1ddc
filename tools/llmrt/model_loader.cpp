#include "tools/llmrt/model_loader.h"

#include <algorithm>
#include <ctime>
#include <future>
#include <utility>

#include "backends/backends.h"
#include "core/engine/pool_sizing.h"
#include "core/platform/free_memory.h"
#include "core/trace/trace_file.h"
#include "tools/llmrt/local_engine.h"
#include "tools/llmrt/model_files.h"

namespace llmrt::cli {
namespace {

// Beside weights: an engine's workspace and a pool for a few requests.
constexpr uint64_t kLeastBeside = 256ull << 20;

uint64_t bytes_of(const MemoryPlan& plan) {
  return plan.weight_bytes + plan.workspace_bytes + plan.reserve_bytes + plan.pool_bytes + plan.expanded_bytes() +
         plan.draft_fixed_bytes + plan.draft_pool_bytes;
}

// Takes a while with a large vocabulary: beside the weights. Null where there is no tokenizer.
std::future<std::shared_ptr<GrammarCompiler>> make_grammars(std::shared_ptr<const Tokenizer> tokenizer) {
  return std::async(std::launch::async, [tokenizer = std::move(tokenizer)] {
    return tokenizer ? std::make_shared<GrammarCompiler>(TokenVocabulary::create(*tokenizer)) : nullptr;
  });
}

// The engine, its thread, and the door to them.
class LoadedEngine final : public server::ServedEngine {
 public:
  LoadedEngine(server::ServedModel served, std::unique_ptr<Engine> engine, std::unique_ptr<EngineThread> thread,
               std::shared_ptr<LocalEngine> its_door, std::shared_ptr<Log> log)
      : ServedEngine(std::move(served), its_door, bytes_of(engine->memory_plan())),
        engine_(std::move(engine)),
        thread_(std::move(thread)),
        local_(std::move(its_door)),
        log_(std::move(log)) {}
  // Every request has ended by then, or ends here.
  ~LoadedEngine() override {
    if (const Status ran = thread_->join(); !ran)
      log_->event(LogLevel::kError, {{"model", model.id}}, "model '{}': {}", model.id, ran.error().message);
    local_->close();
    engine_.reset();
  }

 private:
  std::unique_ptr<Engine> engine_;
  const std::unique_ptr<EngineThread> thread_;
  const std::shared_ptr<LocalEngine> local_;
  const std::shared_ptr<Log> log_;
};

}  // namespace

std::vector<uint64_t> memory_shares(uint64_t total_bytes, const std::vector<uint64_t>& weight_bytes,
                                    uint32_t num_shares) {
  const uint64_t equal = total_bytes / std::max(num_shares, 1u);
  std::vector<uint64_t> shares;
  for (const uint64_t weights : weight_bytes) {
    const uint64_t least = weights + weights / 8 + kLeastBeside;
    // One that fits alone, if only just, may have all of it.
    shares.push_back(std::max(equal, std::min(least, std::max(total_bytes, weights))));
  }
  return shares;
}

EngineLoader::EngineLoader(LoaderConfig config, const Clock* clock, std::shared_ptr<Log> log)
    : config_(std::move(config)), clock_(clock), log_(std::move(log)) {}

Status EngineLoader::measure_memory() {
  Result<std::unique_ptr<Backend>> backend = open_device(config_.device);
  if (!backend) return backend.error();
  total_bytes_ = memory_for_engines(config_.engine, (*backend)->caps(), (*backend)->memory());
  std::vector<uint64_t> weights;
  for (const ModelOptions& model : config_.models) weights.push_back(weight_bytes(model.path));
  shares_ = memory_shares(total_bytes_, weights, config_.num_shares);
  log_->info("device {} ({}): {} for models, {} at a time", (*backend)->caps().device_id,
             (*backend)->caps().device_name, bytes_text(total_bytes_), config_.num_shares);
  return {};
}

uint64_t EngineLoader::need_bytes(ModelIdx model) const {
  return shares_.empty() ? 0 : shares_[model];
}

uint64_t EngineLoader::free_bytes(uint64_t held_bytes) const {
  return total_bytes_ - std::min(total_bytes_, held_bytes);
}

Result<std::shared_ptr<LoadedModel>> EngineLoader::load(ModelIdx model, std::function<void(Error)> on_lost) {
  Result<OpenModel> open = try_open_model(config_.models[model]);
  if (!open) return open.error();
  const auto note = [&](LogLevel level, std::string_view text) {
    log_->event(level, {{"model", open->served.id}}, "model '{}': {}", open->served.id, text);
  };
  for (const std::string& warning : open->warnings) note(LogLevel::kWarning, warning);
  std::future<std::shared_ptr<GrammarCompiler>> grammars = make_grammars(open->served.tokenizer);
  Result<std::unique_ptr<Backend>> backend = open_device(config_.device);
  if (!backend) return backend.error();
  EngineConfig config = config_.engine;
  if (!shares_.empty()) config.memory_bytes_max = shares_[model];
  open->times.model_ns = open->times.device_ns = clock_->now_ns();
  Result<std::unique_ptr<Engine>> engine =
      try_open_engine(*open, config, std::move(*backend), config_.draft_model, clock_, [](uint64_t, uint64_t) {});
  if (!engine) return engine.error();
  if (const std::string remark = (*engine)->backend().remark(); !remark.empty()) note(LogLevel::kInfo, remark);
  return assemble(std::move(*open), std::move(*engine), grammars.get(), std::move(on_lost));
}

Status EngineLoader::load_adapters(const server::ServedModel& served) const {
  for (const server::ShelvedAdapter& adapter : config_.adapters->all()) {
    if (adapter.model != served.id || adapter.ready.image) continue;
    Result<ReadyAdapter> ready = served.load_adapter(adapter.path);
    if (!ready) return make_error(ready.error().code, "adapter '{}': {}", adapter.name, ready.error().message);
    log_->info("adapter '{}' of model '{}': rank {}", adapter.name, served.id, ready->rank_max);
    config_.adapters->make_ready(adapter.name, *std::move(ready));
  }
  return {};
}

Result<std::shared_ptr<LoadedModel>> EngineLoader::assemble(OpenModel open, std::unique_ptr<Engine> engine,
                                                            std::shared_ptr<GrammarCompiler> grammars,
                                                            std::function<void(Error)> on_lost) {
  server::ServedModel& served = open.served;
  served.created = std::time(nullptr);
  served.grammars = std::move(grammars);
  served.thought_field = config_.thought_field;
  served.policy = config_.policy;
  served.tells_structures = config_.sample_trace != nullptr;
  if (served.chat_format && served.chat_format->format->has_thoughts())
    served.thought_tokens_max = config_.thought_tokens_max;
  if (Status status = server::finish_model(&served); !status) return status.error();
  served.adapters = config_.adapters;
  engine->set_log(log_);
  engine->set_ids(last_id_);
  if (!config_.request_trace.empty()) {
    auto file = TraceFile::open(config_.request_trace, {served.id, config_.worker_id}, log_);
    if (!file) return file.error();
    engine->set_trace(std::move(*file));
  }
  auto thread = std::make_unique<EngineThread>(engine.get());
  EngineThread* const running = thread.get();
  auto door = std::make_shared<LocalEngine>(running, config_.sample_trace);
  if (served.adapters) {
    served.load_adapter = [weak = std::weak_ptr(door)](const std::string& path) -> Result<ReadyAdapter> {
      if (const auto engine_door = weak.lock()) return engine_door->load_adapter(path);
      return make_error(ErrorCode::kCancelled, "the model is unloaded");
    };
    if (Status status = load_adapters(served); !status) return status.error();
  }
  auto loaded =
      std::make_shared<LoadedEngine>(std::move(served), std::move(engine), std::move(thread), std::move(door), log_);
  // Called on the engine's thread, behind the ends of all requests.
  running->start([this, running, lost = std::move(on_lost)] {
    const Error error = running->failure().value_or(make_error(ErrorCode::kInternal, "the engine has ended"));
    {
      std::lock_guard lock(mutex_);
      last_loss_ = error;
    }
    lost(error);
    if (on_loss_) on_loss_(error);
  });
  return std::shared_ptr<LoadedModel>(std::move(loaded));
}

void EngineLoader::unload(ModelIdx, std::shared_ptr<LoadedModel> loaded) {
  loaded.reset();
  return_free_memory();
}

std::optional<Error> EngineLoader::last_loss() const {
  std::lock_guard lock(mutex_);
  return last_loss_;
}

void adopt_only_model(OpenModel open, const EngineOptions& options, EngineLoader& loader,
                      const std::shared_ptr<ModelHost>& host, const Clock* clock,
                      const std::function<void(Engine&)>& prepare, Log* start_log) {
  std::future<std::shared_ptr<GrammarCompiler>> grammars = make_grammars(open.served.tokenizer);
  std::unique_ptr<Engine> engine = open_engine(open, options, clock, start_log);
  if (prepare) prepare(*engine);
  const auto lose = [weak = std::weak_ptr(host)](Error error) {
    if (const auto hosting = weak.lock()) hosting->lose(0, std::move(error));
  };
  auto loaded = loader.assemble(std::move(open), std::move(engine), grammars.get(), lose);
  if (!loaded) fail(loaded.error());
  host->adopt(0, *std::move(loaded));
}

}  // namespace llmrt::cli
