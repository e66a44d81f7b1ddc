// What the server says of itself: models, health, load. JSON of the small GET pages.
#pragma once

#include <boost/json.hpp>

#include <memory>
#include <string>
#include <vector>

#include "core/metrics/engine_stats.h"
#include "server/model_choice.h"
#include "server/served_model.h"

namespace llmrt::server {

// OpenAI's cards, with the state of each model, and our health.
boost::json::object model_card(const SeenModel& model);
boost::json::object model_list(const std::vector<SeenModel>& models);
// An adapter's card: its model's, with its own name; as vLLM has it, `parent` is the model and `root` its name.
boost::json::object adapter_card(const ShelvedAdapter& adapter, const SeenModel& model);
// The shelf of the models' adapters, as far as one is loaded; null: there is none.
std::shared_ptr<AdapterShelf> shelf_of(const std::vector<SeenModel>& models);
// "ready", "on trial", "drained", "lost".
const char* worker_state_name(const FleetWorkerFigures& figures);
boost::json::object health(const std::vector<SeenModel>& models);

// As SGLang has them, for its router and for load generators: /server_info, /model_info; /get_load with one entry, as
// for one rank: the sum over all models; /v1/loads with one for each model that is loaded.
boost::json::object server_info(const ServedModel& model, const std::vector<ServedWorker>& workers,
                                const std::string& version);
boost::json::object model_info(const ServedModel& model);
boost::json::array load(const std::vector<SeenModel>& models);
boost::json::object loads(const std::vector<SeenModel>& models, const std::string& version);

}  // namespace llmrt::server
