#include "server/adapter_requests.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "core/base/utf8.h"
#include "server/adapter_shelf.h"
#include "server/fields.h"
#include "server/rfc3339.h"
#include "server/shared_fields.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

constexpr size_t kAdapterNameBytesMax = 256, kAdapterPathBytesMax = 4096;

std::string read_adapter_name(Fields& fields) {
  std::string name = fields.string("lora_name", kAdapterNameBytesMax).value_or("");
  if (!fields.failed() && name.empty()) fields.fail("lora_name", "expected a name, found none");
  return name;
}

// The place that a path names, if it lies below the folder however it is written; empty: it does not, or there is
// nothing.
fs::path place_below(const std::string& folder, const std::string& path) {
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) return {};
  const fs::path place = fs::canonical(root / path, error);  // an absolute path stands by itself
  if (error || place == root) return {};
  const auto [left, rest] = std::mismatch(root.begin(), root.end(), place.begin(), place.end());
  return left == root.end() ? place : fs::path();
}

// Where the folder lies is nobody's business: what the client sent stands in its place.
Error without_place(Error error, const std::string& place, const std::string& path) {
  for (size_t at = error.message.find(place); at != std::string::npos; at = error.message.find(place, at))
    error.message.replace(at, place.size(), shown_name(path));
  return error;
}

ApiError no_folder() {
  return http_error(404, "not_found",
                    "adapters: this server loads none for clients; its operator may name a folder for them "
                    "(--adapters-dir)");
}

}  // namespace

ApiResult<json::object> load_adapter(const json::object& body, const ServedModel& model, const ParseContext&,
                                     ParseNotes*) {
  if (!model.adapters || model.adapters->folder().empty() || !model.load_adapter) return no_folder();
  Fields fields(body);
  const std::string name = read_adapter_name(fields);
  const std::string path = fields.string("lora_path", kAdapterPathBytesMax).value_or("");
  fields.any("model");
  fields.neutral(
      "base_model_name", [](const json::value&) { return true; }, "any");
  fields.refuse_unread();
  if (!fields.failed() && path.empty()) fields.fail("lora_path", "expected a folder or a file, found none");
  if (!fields.failed() && is_name_of_model(name, model))
    fields.fail("lora_name", "expected another name than the model's own");
  if (fields.error()) return *fields.error();
  const fs::path place = place_below(model.adapters->folder(), path);
  if (place.empty()) {
    ApiError error =
        http_error(404, "adapter_not_found",
                   fmt::format("lora_path: there is no '{}' in the folder for adapters", shown_name(path)));
    error.param = "lora_path";
    return error;
  }
  Result<ReadyAdapter> ready = model.load_adapter(place.string());
  if (!ready) {
    ApiError error = to_api_error(without_place(ready.error(), place.string(), path));
    if (error.status < 500) error.code = "adapter_unsupported";
    error.param = "lora_path";
    return error;
  }
  const Status added = model.adapters->add({name, model.id, place.string(), *ready, unix_seconds()});
  if (!added) return to_api_error(added.error());
  return json::object{{"status", "loaded"}, {"id", name}, {"parent", model.id}, {"rank", ready->rank_max}};
}

ApiResult<json::object> unload_adapter(const json::object& body, const ServedModel& model, const ParseContext&,
                                       ParseNotes*) {
  if (!model.adapters || model.adapters->folder().empty()) return no_folder();
  Fields fields(body);
  const std::string name = read_adapter_name(fields);
  fields.any("model");
  fields.neutral(
      "lora_int_id", [](const json::value&) { return true; }, "any");
  fields.refuse_unread();
  if (fields.error()) return *fields.error();
  if (!model.adapters->remove(name)) {
    ApiError error =
        http_error(404, "adapter_not_found", fmt::format("lora_name: there is no adapter '{}'", shown_name(name)));
    error.param = "lora_name";
    return error;
  }
  return json::object{{"status", "unloaded"}, {"id", name}};
}

}  // namespace llmrt::server
