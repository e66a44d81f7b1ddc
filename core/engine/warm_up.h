// What happens between opening a device and serving: weights, state, the measured run of the largest step, the KV pool.
#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "core/engine/engine_config.h"
#include "core/engine/lower.h"
#include "core/engine/pool_sizing.h"
#include "core/model/model.h"
#include "core/schedule/scheduler.h"

namespace llmrt {

struct WarmEngine {
  EngineConfig config;  // zeros resolved, limits lowered to what the device has
  MemoryPlan memory_plan;
  std::unique_ptr<Lowering> lowering;
  CostPrior cost_prior;  // measured; zeros on a processor, where the largest step would take seconds
};

// Unsupported when the device cannot do what the heads of the model's layers ask for; check_layers (layer.h) says what
// no device can.
Status check_heads(const Model& model, const Caps& caps);

// A model's pools, and behind them the one for expanded latents, if it has blocks.
std::vector<KvGroup> with_expanded(std::vector<KvGroup> groups, const KvGroup& expanded);

// Leaves the backend with weights, state and KV pools, ready to submit. Errors: unsupported (an op or a KV dtype that
// the device lacks, by name), out_of_memory with the terms, invalid_argument for a knob outside its range.
// The scheduler's end tokens are counted in the room for a step's inputs. `beside`: what else of the engine is there
// by now, and what grows with the pool.
Result<WarmEngine> warm_up(const EngineConfig& config, std::shared_ptr<const Model> model,
                           const std::vector<int32_t>& end_of_generation, Backend* backend, const Progress& progress,
                           const BesideMemory& beside = {});

// A model that runs beside an engine's own, on a backend of its own: with weights and state, the largest step measured,
// no pool. `config` is complete.
struct WarmModel {
  EngineConfig config;  // limits lowered to what the device has
  std::unique_ptr<Lowering> lowering;
  uint64_t fixed_bytes;  // weights, state and workspace
};
Result<WarmModel> warm_up_beside(const EngineConfig& config, std::shared_ptr<const Model> model, Backend* backend,
                                 const Progress& progress);

// With zeros resolved and limits lowered to what the device has; invalid_argument for a knob outside its range.
Result<EngineConfig> resolve(EngineConfig config, const Model& model, const Backend& backend);

SchedulerConfig scheduler_config(const EngineConfig& config, const MemoryPlan& plan,
                                 std::vector<int32_t> end_of_generation);

}  // namespace llmrt
