// The figures of the engine, of the HTTP side and of the process in one of the two text formats. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/grammar/grammar_compiler.h"
#include "core/metrics/engine_stats.h"
#include "core/platform/process_figures.h"
#include "server/metrics_format.h"
#include "server/model_choice.h"
#include "server/served_model.h"
#include "server/server_figures.h"

namespace llmrt::server {

struct MetricsSource {
  const EngineStats& stats;
  const ServerFigures& server;
  const ServedModel& model;
  const ProcessFigures& process;
  std::optional<GrammarFigures> grammars = {};  // absent: the model has no vocabulary for them
};

// One model that is loaded, without what its host counts.
std::string metrics_text(const MetricsSource& source, MetricsFormat format);
// All models, loaded or not. Where there are several, what is an engine's has the label `model`; what the host
// counts of a model always has. `compat`: engines are told under other names, too. `unix_seconds`: the
// time now, where it is a sample's value.
std::string metrics_text(const std::vector<SeenModel>& models, const ServerFigures& server,
                         const ProcessFigures& process, MetricsFormat format, MetricsCompat compat,
                         int64_t unix_seconds);

}  // namespace llmrt::server
