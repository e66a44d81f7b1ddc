#include "server/pages.h"

#include "server/metrics_text.h"
#include "server/openapi.h"
#include "server/routes.h"
#include "server/server_info.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

PageText page_of(const json::value& value) {
  return {json::serialize(value)};
}

std::optional<GrammarFigures> grammar_figures(const ServedModel& model) {
  return model.grammars ? std::optional(model.grammars->figures()) : std::nullopt;
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
  return page_of(health(query.state.door->stats()));
}
ApiResult<PageText> ready_page(const PageQuery& query) {
  if (auto error = query.state.not_ready()) return std::move(*error);
  return page_of(json::object{{"status", "ready"}});
}
ApiResult<PageText> metrics_page(const PageQuery& query) {
  const SharedState& state = query.state;
  const auto wanted = negotiate_metrics(query.head.accept);
  return PageText{
      metrics_text({state.door->stats(), state.figures(), state.model, process_figures(), grammar_figures(state.model)},
                   wanted),
      metrics_content_type(wanted)};
}
ApiResult<PageText> models_page(const PageQuery& query) {
  return page_of(model_list(query.state.model));
}
ApiResult<PageText> model_page(const PageQuery& query) {
  const ServedModel& model = query.state.model;
  if (query.rest != model.id && query.rest != model.id + "/")
    return http_error(404, "model_not_found",
                      fmt::format("model: there is none of the name '{}'; /v1/models lists them", shown(query.rest)));
  return page_of(model_card(model));
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
  return page_of(server_info(query.state.model, query.state.door->stats(), query.state.config.version));
}
ApiResult<PageText> model_info_page(const PageQuery& query) {
  return page_of(model_info(query.state.model));
}
ApiResult<PageText> load_page(const PageQuery& query) {
  return page_of(load(query.state.door->stats()));
}
ApiResult<PageText> loads_page(const PageQuery& query) {
  return page_of(loads(query.state.model, query.state.door->stats(), query.state.config.version));
}

}  // namespace llmrt::server
