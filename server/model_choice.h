// Which model a request means, and what the server says of all of its models. Thread-safe, as the host is.
#pragma once

#include <boost/json.hpp>

#include <optional>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/served_engine.h"

namespace llmrt::server {

// The model of `name`: 404, naming those that may have been meant and how many there are.
ApiResult<ModelIdx> find_model(const ModelHost& models, std::string_view name);
// That of a body's `model`; the first one where it names none. Where there is only one, what it says is the dialect's
// business.
ApiResult<ModelIdx> choose_model(const ModelHost& models, const boost::json::object& body);

// A model as pages show it, loaded or not.
struct SeenModel {
  ModelFigures figures;
  ServedLease loaded;  // null: not loaded

  std::vector<ServedWorker> workers() const { return loaded ? loaded->door->workers() : std::vector<ServedWorker>(); }
};
std::vector<SeenModel> see_models(const ModelHost& models);
// The first one; where it is not loaded and another is, that one.
SeenModel see_main_model(const ModelHost& models);

// Why no request can be served: those that belong loaded are not yet, or no model could be had. A model that can still
// be loaded is fine.
struct NotServing {
  bool is_loading;
  std::string reason;
};
std::optional<NotServing> not_serving(const ModelHost& models);

}  // namespace llmrt::server
