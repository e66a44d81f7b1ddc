#include "tools/llmrt/serve_models.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/utf8.h"
#include "core/router/near_names.h"
#include "tools/llmrt/model_files.h"
#include "tools/number_range.h"

namespace llmrt::cli {
namespace {

constexpr uint32_t kAtOnceDefault = 4;

TimeNs nanoseconds(double seconds) {
  return static_cast<TimeNs>(std::llround(seconds * 1e9));
}

void check_names(const std::vector<std::string>& wanted, const std::vector<std::string>& names, const char* option) {
  for (const std::string& name : wanted) {
    if (std::ranges::count(names, name) > 0) continue;
    const std::vector<std::string> near = near_names(name, names, 3);
    fail(kUsage, fmt::format("{}: expected the name of a model that is served{}{}, found {}", option,
                             near.empty() ? "" : ", as ", fmt::join(near, " or "), replace_invalid_utf8(name)));
  }
}

}  // namespace

void add_served_models_options(CLI::App& command, ServedModelsOptions& options) {
  const char* group = "Models";
  command
      .add_option("-m,--model,model", options.paths,
                  "GGUF files, Hugging Face folders, or synthetic:SHAPE:ENCODING; the first answers requests that name "
                  "no model")
      ->type_name("MODEL");
  command
      .add_option("--models-dir", options.folder,
                  "serve every model in this folder, by name (llmrt list FOLDER shows them)")
      ->type_name("FOLDER")
      ->group(group);
  command
      .add_option("--models-loaded-max", options.loaded_max,
                  "models loaded at once, at most; each gets an equal share of memory, or what it needs where that is "
                  "more. Default: all, but no more than 4")
      ->check(number_range(1u, 1024u))
      ->type_name("N")
      ->group(group);
  command
      .add_option("--model-wait-s", options.wait_s,
                  "seconds that a request waits until its model is loaded; then it gets 503")
      ->check(number_range(1.0, 86'400.0))
      ->capture_default_str()
      ->type_name("S")
      ->group(group);
  command
      .add_option("--idle-unload-s", options.idle_unload_s,
                  "unload a model that no request has used for so long; the next one loads it again. 0: never")
      ->check(number_range(0.0, 1e7))
      ->capture_default_str()
      ->type_name("S")
      ->group(group);
  command
      .add_option("--pin", options.pinned,
                  "names of models that are loaded at the start and never make room for others")
      ->delimiter(',')
      ->type_name("NAME")
      ->group(group);
  command.add_option("--preload", options.preloaded, "names of models that are loaded at the start")
      ->delimiter(',')
      ->type_name("NAME")
      ->group(group);
}

std::vector<ModelOptions> served_models(const ServedModelsOptions& options, const ModelOptions& common, Log& log) {
  std::vector<ModelOptions> models;
  std::set<std::string> names;
  const auto add = [&](const std::string& path, const std::string& name) {
    if (!names.insert(name).second)
      fail(kUsage, fmt::format("expected models of different names, found two that are called {}", name));
    ModelOptions model = common;
    model.path = path;
    model.name = name;
    models.push_back(std::move(model));
  };
  for (const std::string& path : options.paths) {
    const bool is_file = !path.starts_with("synthetic:");
    add(path, common.name.empty() ? replace_invalid_utf8(is_file ? model_name(path) : path) : common.name);
    if (!common.name.empty() && (options.paths.size() > 1 || !options.folder.empty()))
      fail(kUsage, "--name: expected one model, found several: each is called as its file");
  }
  if (!options.folder.empty()) {
    const Result<std::vector<ModelFile>> found = find_models(options.folder);
    if (!found) fail(found.error());
    for (const ModelFile& file : *found) {
      if (names.contains(file.name)) continue;  // named already
      const std::string problem = summarize_model(file.path).problem;
      if (problem.empty())
        add(file.path, file.name);
      else
        log.warn("{}: not served: {}", file.path, problem);
    }
  }
  if (models.empty() && !options.folder.empty())
    fail(kBadModel, fmt::format("--models-dir: expected models in {}, found none", options.folder));
  if (models.empty())
    fail(kUsage, "MODEL: expected GGUF files or Hugging Face folders, or --models-dir, found nothing");
  return models;
}

std::vector<ModelSpec> model_specs(const ServedModelsOptions& options, const std::vector<ModelOptions>& models) {
  std::vector<std::string> names;
  for (const ModelOptions& model : models) names.push_back(model.name);
  check_names(options.pinned, names, "--pin");
  check_names(options.preloaded, names, "--preload");
  std::vector<ModelSpec> specs;
  for (const std::string& name : names)
    specs.push_back({.name = name,
                     .is_pinned = std::ranges::count(options.pinned, name) > 0,
                     .is_preloaded = std::ranges::count(options.preloaded, name) > 0});
  if (specs.size() == 1) {
    specs[0].is_pinned = specs[0].is_pinned || options.idle_unload_s == 0;
    specs[0].is_preloaded = true;
  }
  const auto num_pinned = std::ranges::count_if(specs, [](const ModelSpec& spec) { return spec.is_pinned; });
  if (static_cast<size_t>(num_pinned) > models_at_once(options, models.size()))
    fail(kUsage, fmt::format("--pin: expected at most as many models as may be loaded at once ({}), found {}",
                             models_at_once(options, models.size()), num_pinned));
  return specs;
}

uint32_t models_at_once(const ServedModelsOptions& options, size_t num_models) {
  const uint32_t wanted = options.loaded_max > 0 ? options.loaded_max : kAtOnceDefault;
  return static_cast<uint32_t>(std::min<size_t>(wanted, num_models));
}

LoaderConfig loader_config(const ServedModelsOptions& options, const EngineOptions& engine,
                           std::vector<ModelOptions> models) {
  LoaderConfig config;
  config.devices = engine.devices;
  config.placement.ttft_target_ms = engine.config.slo.ttft_ms;
  config.placement.tpot_target_ms = engine.config.slo.tpot_ms;
  config.engine = engine_config(engine);
  config.draft_model = engine.draft_model;
  if (models.size() > 1 && !engine.draft_model.empty())
    fail(kUsage, fmt::format("--draft-model: expected one model, found {}", models.size()));
  if (models.size() > 1 && engine.devices.size() > 1)
    fail(kUsage,
         fmt::format("--device: expected one device for several models, found {}", fmt::join(engine.devices, ", ")));
  if (models.size() > 1) config.num_shares = models_at_once(options, models.size());
  config.models = std::move(models);
  return config;
}

uint32_t lines_in_flight(uint32_t wanted, uint32_t sequences_max) {
  return wanted > 0 ? wanted : std::clamp(2 * sequences_max, 1u, 512u);
}

RegistryLimits registry_limits(const ServedModelsOptions& options, size_t num_models) {
  RegistryLimits limits;
  limits.loaded_max = models_at_once(options, num_models);
  limits.wait_ns = nanoseconds(options.wait_s);
  limits.idle_unload_ns = nanoseconds(options.idle_unload_s);
  return limits;
}

}  // namespace llmrt::cli
