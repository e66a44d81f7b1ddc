#include "tools/llmrt/model_loader.h"

#include <algorithm>
#include <ctime>
#include <future>
#include <map>
#include <utility>

#include "backends/backends.h"
#include "core/engine/pool_sizing.h"
#include "core/platform/free_memory.h"
#include "core/trace/trace_file.h"
#include "tools/llmrt/fleet_door.h"
#include "tools/llmrt/local_engine.h"
#include "tools/llmrt/model_files.h"

namespace llmrt::cli {
namespace {

// Beside weights: an engine's workspace and a pool for a few requests.
constexpr uint64_t kLeastBeside = 256ull << 20;
// A guess of how fast blocks go from one device to another, through the host's memory.
constexpr double kHandOverBytesMs = 8e6;

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

// Engines on several devices.
class LoadedFleet final : public server::ServedEngine {
 public:
  LoadedFleet(server::ServedModel served, std::shared_ptr<FleetDoor> its_door, uint64_t bytes)
      : ServedEngine(std::move(served), its_door, bytes), fleet_(std::move(its_door)) {}
  ~LoadedFleet() override { fleet_->close(); }

 private:
  const std::shared_ptr<FleetDoor> fleet_;
};

// "vulkan:0", and "vulkan:0#2" for the second engine there.
std::vector<std::string> worker_names(const std::vector<std::unique_ptr<Engine>>& engines) {
  std::vector<std::string> names;
  std::map<std::string, uint32_t> counts;
  for (const std::unique_ptr<Engine>& engine : engines) {
    const std::string& device = engine->backend().caps().device_id;
    const uint32_t count = ++counts[device];
    names.push_back(count == 1 ? device : fmt::format("{}#{}", device, count));
  }
  return names;
}

// Of a model that several engines serve: what one of them can do, or all.
Status describe_fleet(const std::vector<std::unique_ptr<Engine>>& engines, const std::vector<std::string>& names,
                      server::ServedModel* served) {
  served->context_max = 0;
  served->has_draft_model = false;
  const auto dtype_of = [](Engine& engine) { return engine.backend().caps().activation_dtype; };
  for (size_t i = 0; i < engines.size(); ++i) {
    served->context_max = std::max(served->context_max, engines[i]->config().context_max);
    served->has_draft_model |= engines[i]->draft_model() != nullptr;
    if (served->adapters && dtype_of(*engines[i]) != dtype_of(*engines[0]))
      return make_error(ErrorCode::kUnsupported,
                        "adapters: expected devices that compute with numbers of one type, found {} on {} and {} on {}",
                        dtype_name(dtype_of(*engines[0])), names[0], dtype_name(dtype_of(*engines[i])), names[i]);
  }
  served->origin.backend = "fleet";
  served->origin.device = fmt::format("{}", fmt::join(names, ","));
  served->origin.device_name = fmt::format("{} devices", engines.size());
  served->device_monitor = nullptr;  // each worker has its own
  return {};
}

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
  Result<std::unique_ptr<Backend>> backend = open_device(config_.devices[0]);
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
  Result<std::vector<uint64_t>> shares = device_shares();
  if (!shares) return shares.error();
  if (!shares_.empty()) (*shares)[0] = shares_[model];
  std::vector<std::unique_ptr<Engine>> engines;
  for (size_t device = 0; device < config_.devices.size(); ++device) {
    Result<std::unique_ptr<Engine>> engine = open_one(*open, device, (*shares)[device]);
    if (!engine) return engine.error();
    if (const std::string remark = (*engine)->backend().remark(); !remark.empty()) note(LogLevel::kInfo, remark);
    engines.push_back(*std::move(engine));
  }
  return assemble(*std::move(open), std::move(engines), grammars.get(), std::move(on_lost));
}

Result<std::vector<uint64_t>> EngineLoader::device_shares() const {
  std::vector<uint64_t> shares(config_.devices.size());
  if (shares.size() == 1) return shares;
  // Which of them lie in one memory: a device by two backends, or named twice.
  std::vector<std::string> memories;
  const std::vector<DeviceInfo> infos = list_devices();
  for (const std::string& device : config_.devices) {
    const auto info = std::ranges::find_if(
        infos, [&](const DeviceInfo& each) { return device == "auto" ? each.usable : each.id == device; });
    if (info == infos.end()) return open_device(device).error();
    memories.push_back(info->is_cpu ? "host" : info->pci_address.empty() ? info->id : info->pci_address);
  }
  for (size_t i = 0; i < shares.size(); ++i) {
    const auto count = static_cast<uint64_t>(std::ranges::count(memories, memories[i]));
    if (count == 1) continue;
    const auto first = std::ranges::find(memories, memories[i]) - memories.begin();
    if (static_cast<size_t>(first) < i) {
      shares[i] = shares[static_cast<size_t>(first)];
      continue;
    }
    Result<std::unique_ptr<Backend>> backend = open_device(config_.devices[i]);
    if (!backend) return backend.error();
    shares[i] = memory_for_engines(config_.engine, (*backend)->caps(), (*backend)->memory()) / count;
  }
  return shares;
}

Result<std::unique_ptr<Engine>> EngineLoader::open_one(OpenModel& open, size_t device,
                                                       uint64_t memory_bytes_max) const {
  Result<std::unique_ptr<Backend>> backend = open_device(config_.devices[device]);
  if (!backend) return backend.error();
  EngineConfig config = config_.engine;
  config.memory_bytes_max = memory_bytes_max;
  open.times.model_ns = open.times.device_ns = clock_->now_ns();
  return try_open_engine(open, config, std::move(*backend), config_.draft_model, clock_, [](uint64_t, uint64_t) {});
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

Result<std::shared_ptr<LoadedModel>> EngineLoader::assemble(OpenModel open,
                                                            std::vector<std::unique_ptr<Engine>> engines,
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
  served.adapters = config_.adapters;
  if (engines.size() > 1)
    if (Status status = describe_fleet(engines, worker_names(engines), &served); !status) return status.error();
  if (Status status = server::finish_model(&served); !status) return status.error();
  if (engines.size() > 1) return assemble_fleet(std::move(open), std::move(engines), std::move(on_lost));
  return assemble_one(std::move(served), std::move(engines[0]), std::move(on_lost));
}

Status EngineLoader::prepare(Engine& engine, const std::string& model, const std::string& worker) {
  engine.set_log(log_);
  if (config_.kv_events) config_.kv_events->follow(engine, model);
  if (config_.request_trace.empty()) return {};
  const Result<std::shared_ptr<LineFile>> file = request_trace();
  if (!file) return file.error();
  engine.set_trace(std::make_shared<TraceFile>(*file, TraceOrigin{model, worker}));
  return {};
}

Result<std::shared_ptr<LineFile>> EngineLoader::request_trace() {
  std::lock_guard lock(mutex_);
  if (request_trace_) return request_trace_;
  Result<std::unique_ptr<LineFile>> file = LineFile::open(config_.request_trace, "request trace", log_);
  if (!file) return file.error();
  return request_trace_ = *std::move(file);
}

// On the thread of the last engine.
void EngineLoader::note_loss(const Error& error) {
  {
    std::lock_guard lock(mutex_);
    last_loss_ = error;
  }
  if (on_loss_) on_loss_(error);
}

Result<std::shared_ptr<LoadedModel>> EngineLoader::assemble_one(server::ServedModel served,
                                                                std::unique_ptr<Engine> engine,
                                                                std::function<void(Error)> on_lost) {
  if (Status status = prepare(*engine, served.id, config_.worker_id); !status) return status.error();
  engine->set_ids(last_id_);
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
    lost(error);
    note_loss(error);
  });
  return std::shared_ptr<LoadedModel>(std::move(loaded));
}

Result<std::shared_ptr<LoadedModel>> EngineLoader::assemble_fleet(OpenModel open,
                                                                  std::vector<std::unique_ptr<Engine>> engines,
                                                                  std::function<void(Error)> on_lost) {
  server::ServedModel& served = open.served;
  const std::vector<std::string> names = worker_names(engines);
  // The request trace's name of each: the process's, where it was given one, and its device's.
  std::vector<std::string> traced = names;
  if (config_.worker_id != kWorkerId)
    for (std::string& name : traced) name = fmt::format("{}/{}", config_.worker_id, name);
  std::vector<FleetDoor::Worker> workers;
  std::vector<uint64_t> bytes;
  const MemoryPlan& plan = engines[0]->memory_plan();
  const double token_bytes = static_cast<double>(plan.block_bytes) / plan.block_tokens;
  for (size_t i = 0; i < engines.size(); ++i) {
    if (Status status = prepare(*engines[i], served.id, traced[i]); !status) return status.error();
    const Caps& caps = engines[i]->backend().caps();
    FleetDoor::Worker worker;
    worker.device = names[i];
    worker.backend = caps.device_id.substr(0, caps.device_id.find(':'));
    worker.device_name = caps.device_name;
    worker.monitor = monitor_device(caps.pci_address);
    bytes.push_back(bytes_of(engines[i]->memory_plan()));
    worker.engine = std::move(engines[i]);
    workers.push_back(std::move(worker));
  }
  FleetDoor::Config config;
  config.placement = config_.placement;
  config.sample_trace = config_.sample_trace;
  config.first_wait_s = config_.reopen_s;
  config.hand_over = config_.hand_over;
  config.hand_over.token_ms = token_bytes / kHandOverBytesMs;
  config.exchange = config_.engine.exchange;
  if (!config_.placement_log.empty()) {
    Result<std::unique_ptr<LineFile>> file = LineFile::open(config_.placement_log, "placement log", log_);
    if (!file) return file.error();
    config.decisions = *std::move(file);
  }
  config.reopen = [this, open, bytes, traced](size_t worker) mutable -> Result<std::unique_ptr<Engine>> {
    // As much as it had: what others have taken meanwhile stays theirs.
    Result<std::unique_ptr<Engine>> engine = open_one(open, worker, bytes[worker]);
    if (!engine) return engine;
    if (Status status = prepare(**engine, open.served.id, traced[worker]); !status) return status.error();
    return engine;
  };
  auto door = std::make_shared<FleetDoor>(std::move(workers), std::move(config), clock_, log_);
  if (served.adapters) {
    served.load_adapter = [weak = std::weak_ptr(door)](const std::string& path) -> Result<ReadyAdapter> {
      if (const auto fleet = weak.lock()) return fleet->load_adapter(path);
      return make_error(ErrorCode::kCancelled, "the model is unloaded");
    };
    if (Status status = load_adapters(served); !status) return status.error();
  }
  uint64_t held_bytes = 0;
  for (const uint64_t each : bytes) held_bytes += each;
  auto loaded = std::make_shared<LoadedFleet>(std::move(served), door, held_bytes);
  door->start([this, lost = std::move(on_lost)](const Error& error) {
    lost(error);
    note_loss(error);
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
  const Result<std::vector<uint64_t>> shares = loader.device_shares();
  if (!shares) fail(shares.error(), kNoDevice);
  std::vector<std::unique_ptr<Engine>> engines;
  for (size_t i = 0; i < loader.devices().size(); ++i) {
    EngineOptions one = options;
    one.device = loader.devices()[i];
    one.devices = {one.device};
    one.config.memory_bytes_max = (*shares)[i];
    engines.push_back(open_engine(open, one, clock, start_log));
  }
  if (prepare) prepare(*engines[0]);
  const auto lose = [weak = std::weak_ptr(host)](Error error) {
    if (const auto hosting = weak.lock()) hosting->lose(0, std::move(error));
  };
  auto loaded = loader.assemble(std::move(open), std::move(engines), grammars.get(), lose);
  if (!loaded) fail(loaded.error());
  host->adopt(0, *std::move(loaded));
}

}  // namespace llmrt::cli
