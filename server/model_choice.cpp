#include "server/model_choice.h"

#include <fmt/format.h>

#include "core/router/near_names.h"
#include "server/routes.h"

namespace llmrt::server {
namespace {

constexpr size_t kNearMax = 5;

}  // namespace

ApiResult<ModelIdx> find_model(const ModelHost& models, std::string_view name) {
  if (const std::optional<ModelIdx> found = models.find(name)) return *found;
  // As is_name_of() has it.
  constexpr std::string_view kLatest = ":latest";
  const bool has_tag = name.ends_with(kLatest);
  const std::string other =
      has_tag ? std::string(name.substr(0, name.size() - kLatest.size())) : fmt::format("{}{}", name, kLatest);
  if (const std::optional<ModelIdx> found = models.find(other)) return *found;
  std::vector<std::string> names;
  for (const ModelFigures& figures : models.figures()) names.push_back(figures.name);
  const std::vector<std::string> near = near_names(name, names, kNearMax);
  ApiError error = http_error(
      404, "model_not_found",
      fmt::format("model: there is none of the name '{}'{}; /v1/models lists {}", shown(name),
                  near.empty() ? "" : fmt::format(", did you mean '{}'?", fmt::join(near, "', '")), names.size()));
  error.param = "model";
  return error;
}

ApiResult<ModelIdx> choose_model(const ModelHost& models, const boost::json::object& body) {
  const boost::json::value* name = body.if_contains("model");
  if (models.size() == 1 || !name || !name->is_string()) return ModelIdx{0};
  return find_model(models, name->get_string());
}

std::vector<SeenModel> see_models(const ModelHost& models) {
  std::vector<SeenModel> seen;
  std::vector<ModelLease> loaded = models.look();
  std::vector<ModelFigures> figures = models.figures();
  for (size_t i = 0; i < figures.size(); ++i) seen.push_back({std::move(figures[i]), to_served(std::move(loaded[i]))});
  return seen;
}

SeenModel see_main_model(const ModelHost& models) {
  std::vector<SeenModel> seen = see_models(models);
  for (SeenModel& model : seen)
    if (model.loaded) return std::move(model);
  return std::move(seen.front());
}

std::optional<NotServing> not_serving(const ModelHost& models) {
  std::optional<std::string> failure, trouble;  // of a load; of an engine
  bool can_load = false;
  for (const SeenModel& model : see_models(models)) {
    const ModelFigures& figures = model.figures;
    if (figures.is_wanted && figures.num_loads + figures.num_failures == 0)
      return NotServing{true, models.size() == 1 ? "the model is being loaded"
                                                 : fmt::format("the model '{}' is being loaded", figures.name)};
    if (figures.state == ModelState::kFailed) {
      if (!failure) failure = fmt::format("the model '{}' cannot be loaded: {}", figures.name, figures.error->message);
      continue;
    }
    const std::optional<std::string> its = model.loaded ? model.loaded->door->trouble() : std::nullopt;
    if (model.loaded && !its) return std::nullopt;
    if (its) trouble = its;
    can_load = can_load || !model.loaded;
  }
  if (trouble) return NotServing{false, *trouble};  // a device that is in trouble would load nothing
  if (failure && !can_load) return NotServing{false, *failure};
  return std::nullopt;
}

}  // namespace llmrt::server
