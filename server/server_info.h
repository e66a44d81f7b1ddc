// What the server says of itself: model, health, load. JSON of the small GET pages. Pure.
#pragma once

#include <boost/json.hpp>

#include <string>

#include "core/metrics/engine_stats.h"
#include "server/served_model.h"

namespace llmrt::server {

// OpenAI's cards, and our health.
boost::json::object model_card(const ServedModel& model);
boost::json::object model_list(const ServedModel& model);
boost::json::object health(const EngineStats& stats);

// As SGLang has them, for its router and for load generators: /server_info, /model_info; /get_load with one entry, as
// for one rank; /v1/loads.
boost::json::object server_info(const ServedModel& model, const EngineStats& stats, const std::string& version);
boost::json::object model_info(const ServedModel& model);
boost::json::array load(const EngineStats& stats);
boost::json::object loads(const ServedModel& model, const EngineStats& stats, const std::string& version);

}  // namespace llmrt::server
