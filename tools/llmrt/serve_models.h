// Which models `llmrt serve` serves, and by which rules they are loaded: options, and what follows from them.
#pragma once

#include <string>
#include <vector>

#include "core/router/model_registry.h"
#include "tools/llmrt/model_loader.h"
#include "tools/llmrt/program.h"

namespace llmrt::cli {

struct ServedModelsOptions {
  std::vector<std::string> paths;
  std::string folder;
  std::vector<std::string> pinned, preloaded;  // names
  uint32_t loaded_max = 0;
  double wait_s = 60, idle_unload_s = 0;
};
// The models themselves, `model` and --models-dir, come with them.
void add_served_models_options(CLI::App& command, ServedModelsOptions& options);

// Those that were named, then those of the folder, each with its name; ends the program where there are none, or two of
// one name. `common`: --name (of one model alone) and --chat-format.
std::vector<ModelOptions> served_models(const ServedModelsOptions& options, const ModelOptions& common, Log& log);
// Ends the program where a name is none of theirs. One model is loaded from the beginning, and stays unless it is to be
// unloaded when idle.
std::vector<ModelSpec> model_specs(const ServedModelsOptions& options, const std::vector<ModelOptions>& models);
// How many of so many models may be loaded at once.
uint32_t models_at_once(const ServedModelsOptions& options, size_t num_models);
// What loads them, with what follows from both kinds of options.
LoaderConfig loader_config(const ServedModelsOptions& options, const EngineOptions& engine,
                           std::vector<ModelOptions> models);
// Requests of a batch in the engine at a time; `wanted` 0: twice what runs at once, at most 512.
uint32_t lines_in_flight(uint32_t wanted, uint32_t sequences_max);
RegistryLimits registry_limits(const ServedModelsOptions& options, size_t num_models);

}  // namespace llmrt::cli
