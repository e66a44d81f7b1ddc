// How `llmrt serve` gets a model: files to engine to what the server can use, and back. Memory is shared by one rule:
// each of the models that may be loaded at once gets an equal share of what engines may take, or what its weights need
// where that is more.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/engine_thread.h"
#include "core/router/hand_over.h"
#include "core/router/model_host.h"
#include "core/router/placement.h"
#include "core/trace/line_file.h"
#include "server/served_engine.h"
#include "tools/llmrt/kv_events_options.h"
#include "tools/llmrt/program.h"

namespace llmrt::cli {

// The name of this process's engine in request traces, where nobody gives it another.
inline constexpr const char* kWorkerId = "0";

struct LoaderConfig {
  std::vector<ModelOptions> models;
  std::vector<std::string> devices;  // several serve the only model together
  PlacementConfig placement;         // by which rule
  std::string placement_log;         // a file; empty: decisions are not recorded
  double reopen_s = 10;              // before a lost device is opened again
  // Who computes prompts for whom, by device; the engine's exchange is there then. Empty: nothing is handed over.
  HandOverRule hand_over = {};
  EngineConfig engine;
  std::string draft_model;  // of the only model; empty: none
  // Of the models at once, for their shares of memory. 0: one model, which takes all.
  uint32_t num_shares = 0;
  std::string thought_field = "reasoning_content", request_trace, worker_id;
  std::optional<uint32_t> thought_tokens_max;  // where the chat format has thoughts
  std::shared_ptr<TraceWriter> sample_trace;
  std::shared_ptr<const Policy> policy;            // of every answer; null: none
  std::shared_ptr<server::AdapterShelf> adapters;  // with the names of those that are loaded with their model
  std::shared_ptr<KvEventStream> kv_events;        // null: blocks are told to nobody
};

// The shares of models whose weights take so many bytes. Pure.
std::vector<uint64_t> memory_shares(uint64_t total_bytes, const std::vector<uint64_t>& weight_bytes,
                                    uint32_t num_shares);

class EngineLoader final : public ModelLoader {
 public:
  // `clock` outlives this and what it loads.
  EngineLoader(LoaderConfig config, const Clock* clock, std::shared_ptr<Log> log);

  // Opens the device to see what engines may take together: shares are known from then on. Errors: those of opening it.
  Status measure_memory();

  Result<std::shared_ptr<LoadedModel>> load(ModelIdx model, std::function<void(Error)> on_lost) override;
  void unload(ModelIdx model, std::shared_ptr<LoadedModel> loaded) override;
  uint64_t need_bytes(ModelIdx model) const override;
  uint64_t free_bytes(uint64_t held_bytes) const override;

  // Reads the adapters of the model that have not been read yet. Error: the first that cannot be used.
  Status load_adapters(const server::ServedModel& served) const;
  // What each device's engine may take, by device; 0: what the device has. Those that share a device's memory get equal
  // parts of it. Errors: those of opening it.
  Result<std::vector<uint64_t>> device_shares() const;
  // What serves engines that are there, by device; `grammars` may be null.
  Result<std::shared_ptr<LoadedModel>> assemble(OpenModel open, std::vector<std::unique_ptr<Engine>> engines,
                                                std::shared_ptr<GrammarCompiler> grammars,
                                                std::function<void(Error)> on_lost);
  // Called when a model's only or last engine fails, on its thread. Before the first load.
  void on_loss(std::function<void(const Error&)> told) { on_loss_ = std::move(told); }
  // Why the last engine that failed did.
  std::optional<Error> last_loss() const;
  void set_sample_trace(std::shared_ptr<TraceWriter> trace) { config_.sample_trace = std::move(trace); }
  const std::vector<std::string>& devices() const { return config_.devices; }

 private:
  Result<std::unique_ptr<Engine>> open_one(OpenModel& open, size_t device, uint64_t memory_bytes_max) const;
  Status prepare(Engine& engine, const std::string& model, const std::string& worker);
  Result<std::shared_ptr<LineFile>> request_trace();
  Result<std::shared_ptr<LoadedModel>> assemble_one(server::ServedModel served, std::unique_ptr<Engine> engine,
                                                    std::function<void(Error)> on_lost);
  Result<std::shared_ptr<LoadedModel>> assemble_fleet(OpenModel open, std::vector<std::unique_ptr<Engine>> engines,
                                                      std::function<void(Error)> on_lost);
  void note_loss(const Error& error);

  LoaderConfig config_;
  const Clock* const clock_;
  const std::shared_ptr<Log> log_;
  std::function<void(const Error&)> on_loss_;
  const std::shared_ptr<std::atomic<RequestId>> last_id_ = std::make_shared<std::atomic<RequestId>>(0);
  uint64_t total_bytes_ = ~uint64_t{0};
  std::vector<uint64_t> shares_;  // by model; empty: one model
  mutable std::mutex mutex_;      // of what follows
  std::optional<Error> last_loss_;
  std::shared_ptr<LineFile> request_trace_;
};

// The only model of a process, loaded while everybody sees it: an error ends the program with its exit code. It is the
// host's from then on. `prepare` gets the first engine before it runs. `start_log`: as open_engine's.
void adopt_only_model(OpenModel open, const EngineOptions& options, EngineLoader& loader,
                      const std::shared_ptr<ModelHost>& host, const Clock* clock,
                      const std::function<void(Engine&)>& prepare = {}, Log* start_log = nullptr);

}  // namespace llmrt::cli
