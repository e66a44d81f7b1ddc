// The figures of the engine, of the HTTP side and of the process in one of the two text formats. Pure.
#pragma once

#include <optional>
#include <string>

#include "core/grammar/grammar_compiler.h"
#include "core/metrics/engine_stats.h"
#include "core/platform/process_figures.h"
#include "server/metrics_format.h"
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

std::string metrics_text(const MetricsSource& source, MetricsFormat format);

}  // namespace llmrt::server
