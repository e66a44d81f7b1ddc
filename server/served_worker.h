// One of the engines that answer for a model, as reports show it. Plain data.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/metrics/engine_stats.h"
#include "core/platform/device_monitor.h"
#include "core/router/fleet_figures.h"

namespace llmrt::server {

struct ServedWorker {
  std::string name;                  // of its device; empty: there is only one
  std::optional<EngineStats> stats;  // nothing: it is lost
  // Of several.
  std::string backend = {}, device_name = {};
  FleetWorkerFigures figures = {};
  std::shared_ptr<const DeviceMonitor> monitor = {};  // null: nobody tells of its device
};

}  // namespace llmrt::server
