#include "server/pages.h"

#include "server/metrics_text.h"
#include "server/model_choice.h"
#include "server/ollama_info.h"
#include "server/openapi.h"
#include "server/rfc3339.h"
#include "server/routes.h"
#include "server/server_info.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

PageText page_of(const json::value& value) {
  return {json::serialize(value)};
}

// What pages about one model say of one that is not loaded: its name.
ServedModel model_of(const SeenModel& seen) {
  if (seen.loaded) return seen.loaded->model;
  ServedModel model;
  model.id = seen.figures.name;
  return model;
}

}  // namespace

ApiResult<PageText> live_page(const PageQuery&) {
  return page_of(json::object{{"status", "live"}});
}
ApiResult<PageText> version_page(const PageQuery& query) {
  return page_of(json::object{{"version", query.state.config.version}});
}
ApiResult<PageText> openapi_page(const PageQuery& query) {
  return page_of(openapi_document(query.state.config.version));
}
ApiResult<PageText> health_page(const PageQuery& query) {
  if (auto error = query.state.not_ready()) return std::move(*error);
  return page_of(health(see_models(*query.state.models)));
}
ApiResult<PageText> ready_page(const PageQuery& query) {
  if (auto error = query.state.not_ready()) return std::move(*error);
  return page_of(json::object{{"status", "ready"}});
}
ApiResult<PageText> metrics_page(const PageQuery& query) {
  const auto wanted = negotiate_metrics(query.head.accept);
  const std::vector<SeenModel> models = see_models(*query.state.models);
  return PageText{metrics_text(models, query.state.figures(), process_figures(), wanted,
                               query.state.config.metrics_compat, unix_seconds()),
                  metrics_content_type(wanted)};
}
ApiResult<PageText> models_page(const PageQuery& query) {
  return page_of(model_list(see_models(*query.state.models)));
}
ApiResult<PageText> model_page(const PageQuery& query) {
  std::string_view name = query.rest;
  if (name.ends_with('/') && !query.state.models->find(name)) name.remove_suffix(1);
  const ApiResult<ModelIdx> found = find_model(*query.state.models, name);
  if (const auto* error = std::get_if<ApiError>(&found)) return *error;
  const std::vector<SeenModel> models = see_models(*query.state.models);
  const SeenModel& model = models[std::get<ModelIdx>(found)];
  const std::shared_ptr<AdapterShelf> shelf = shelf_of(models);
  const std::optional<ShelvedAdapter> adapter = shelf ? shelf->find(name) : std::nullopt;
  return page_of(adapter && model.loaded ? adapter_card(*adapter, model) : model_card(model));
}
ApiResult<PageText> no_response_page(const PageQuery& query) {
  ApiError error = http_error(404, "not_found",
                              fmt::format("response_id: there is no response '{}': responses are not stored here "
                                          "(store: false); send the whole history as input",
                                          shown(query.rest)));
  error.param = "response_id";
  return error;
}
ApiResult<PageText> server_info_page(const PageQuery& query) {
  const SeenModel seen = see_main_model(*query.state.models);
  return page_of(server_info(model_of(seen), seen.workers(), query.state.config.version));
}
ApiResult<PageText> model_info_page(const PageQuery& query) {
  return page_of(model_info(model_of(see_main_model(*query.state.models))));
}
ApiResult<PageText> load_page(const PageQuery& query) {
  return page_of(load(see_models(*query.state.models)));
}
ApiResult<PageText> loads_page(const PageQuery& query) {
  return page_of(loads(see_models(*query.state.models), query.state.config.version));
}
ApiResult<PageText> config_page(const PageQuery& query) {
  if (query.state.settings_text.empty())
    return http_error(404, "not_found", "config: this server was not told its settings");
  return PageText{query.state.settings_text};
}
ApiResult<PageText> ollama_tags_page(const PageQuery& query) {
  json::array models;
  for (const SeenModel& seen : see_models(*query.state.models)) models.emplace_back(ollama_tag(model_of(seen)));
  return page_of(json::object{{"models", std::move(models)}});
}
ApiResult<PageText> ollama_ps_page(const PageQuery& query) {
  json::array models;
  for (const SeenModel& seen : see_models(*query.state.models))
    if (seen.loaded) models.emplace_back(ollama_running(seen.loaded->model));
  return page_of(json::object{{"models", std::move(models)}});
}
ApiResult<PageText> ollama_version_page(const PageQuery&) {
  return page_of(json::object{{"version", kOllamaVersion}});
}
// Programs that look for Ollama ask for this.
ApiResult<PageText> ollama_root_page(const PageQuery&) {
  return PageText{"Ollama is running", "text/plain; charset=utf-8"};
}

}  // namespace llmrt::server
