#include "server/served_engine.h"

#include "core/base/utf8.h"
#include "server/api_request.h"
#include "server/messages_request.h"

namespace llmrt::server {

Status finish_model(ServedModel* model) {
  if (!is_valid_utf8(model->id))
    return make_error(ErrorCode::kInvalidArgument, "model: expected a name in UTF-8, found {}",
                      replace_invalid_utf8(model->id));
  model->text_bytes_max = text_bytes_max(*model);
  model->shows_inline_system = renders_inline_system(*model);
  return {};
}

}  // namespace llmrt::server
