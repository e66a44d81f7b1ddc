#include "core/model/model.h"

#include "core/model/load_file.h"
#include "core/model/synthetic.h"

namespace llmrt {

Result<std::shared_ptr<const Model>> load_model(const std::string& path) {
  if (path.starts_with(kSyntheticPrefix)) return make_synthetic(path);
  auto source = open_weight_source(path);
  if (!source) return source.error();
  auto model = load_from_source(*source, path);
  if (!model) return make_error(model.error().code, "{}: {}", path, model.error().message);
  return model;
}

}  // namespace llmrt
