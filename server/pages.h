// The small pages: what each GET path answers. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "server/api_error.h"
#include "server/http.h"
#include "server/shared_state.h"

namespace llmrt::server {

struct PageQuery {
  const SharedState& state;
  const RequestHead& head;
  std::string_view rest;  // of the path, where its route ends in {id}
};
struct PageText {
  std::string text;
  std::string_view type = "application/json";
};
using PageHandler = ApiResult<PageText> (*)(const PageQuery& query);

ApiResult<PageText> live_page(const PageQuery& query);
ApiResult<PageText> version_page(const PageQuery& query);
ApiResult<PageText> openapi_page(const PageQuery& query);
ApiResult<PageText> health_page(const PageQuery& query);
ApiResult<PageText> ready_page(const PageQuery& query);
ApiResult<PageText> metrics_page(const PageQuery& query);
ApiResult<PageText> models_page(const PageQuery& query);
ApiResult<PageText> model_page(const PageQuery& query);
// Responses are not stored: there is none of any id.
ApiResult<PageText> no_response_page(const PageQuery& query);
ApiResult<PageText> server_info_page(const PageQuery& query);
ApiResult<PageText> model_info_page(const PageQuery& query);
ApiResult<PageText> load_page(const PageQuery& query);
ApiResult<PageText> loads_page(const PageQuery& query);
ApiResult<PageText> config_page(const PageQuery& query);
ApiResult<PageText> ollama_tags_page(const PageQuery& query);
ApiResult<PageText> ollama_ps_page(const PageQuery& query);
ApiResult<PageText> ollama_version_page(const PageQuery& query);
ApiResult<PageText> ollama_root_page(const PageQuery& query);

}  // namespace llmrt::server
