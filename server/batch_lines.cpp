#include "server/batch_lines.h"

#include <fmt/format.h>

#include <fstream>

#include "core/base/utf8.h"
#include "server/ids.h"
#include "server/json_reader.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

Result<std::string> text_of(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  if (!value || !value->is_string() || value->as_string().empty())
    return make_error(ErrorCode::kInvalidArgument, "{}: expected a text", name);
  return std::string(value->as_string());
}

Result<json::object> object_of(std::string_view line) {
  Result<json::value> value = read_json(line);
  if (!value) return value.error();
  if (!value->is_object()) return make_error(ErrorCode::kInvalidArgument, "expected a JSON object");
  return std::move(value->as_object());
}

}  // namespace

Result<BatchLine> parse_batch_line(std::string_view line) {
  if (line.size() > kBatchLineBytesMax)
    return make_error(ErrorCode::kInvalidArgument, "expected at most {} bytes, found {}", kBatchLineBytesMax,
                      line.size());
  Result<json::object> object = object_of(line);
  if (!object) return object.error();
  BatchLine parsed;
  Result<std::string> id = text_of(*object, "custom_id");
  if (!id) return id.error();
  if (id->size() > kCustomIdBytesMax)
    return make_error(ErrorCode::kInvalidArgument, "custom_id: expected at most {} bytes, found {}", kCustomIdBytesMax,
                      id->size());
  parsed.custom_id = *std::move(id);
  Result<std::string> url = text_of(*object, "url");
  if (!url) return url.error();
  parsed.url = *std::move(url);
  if (const json::value* method = object->if_contains("method"); method && *method != "POST")
    return make_error(ErrorCode::kInvalidArgument, "method: expected POST");
  json::value* body = object->if_contains("body");
  if (!body || !body->is_object()) return make_error(ErrorCode::kInvalidArgument, "body: expected an object");
  parsed.body = std::move(body->as_object());
  return parsed;
}

std::string format_batch_line(std::string_view custom_id, const OfflineAnswer& answer) {
  return fmt::format(
      "{{\"id\":\"{}\",\"custom_id\":{},\"response\":{{\"status_code\":{},\"request_id\":\"{}\",\"body\":{}}},"
      "\"error\":null}}\n",
      make_id("batch_req"), json::serialize(json::value(custom_id)), answer.status, answer.request_id, answer.body);
}

std::string format_unanswered_line(std::string_view custom_id, std::string_view code, std::string_view message) {
  const json::object line{{"id", make_id("batch_req")},
                          {"custom_id", custom_id},
                          {"response", nullptr},
                          {"error", {{"code", code}, {"message", message}}}};
  return json::serialize(line) + '\n';
}

std::string custom_id_of(std::string_view line) {
  const Result<json::object> object = object_of(line);
  if (!object) return {};
  const Result<std::string> id = text_of(*object, "custom_id");
  return id ? *id : std::string();
}

Result<DoneLines> read_done_lines(const std::string& path) {
  DoneLines done;
  std::ifstream file(path, std::ios::binary);
  if (!file) return done;
  uint64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    if (file.eof()) break;  // without its newline
    ++number;
    done.num_bytes += line.size() + 1;
    const auto fail = [&](std::string_view what) {
      return make_error(ErrorCode::kInvalidArgument, "{}: line {}: expected an answer of a batch: {}", path, number,
                        what);
    };
    const Result<json::object> object = object_of(line);
    if (!object) return fail(object.error().message);
    const Result<std::string> id = text_of(*object, "custom_id");
    if (!id) return fail(id.error().message);
    const json::value* response = object->if_contains("response");
    if (response && response->is_null()) {
      done.status[*id] = 0;
      continue;
    }
    const json::value* status =
        response && response->is_object() ? response->as_object().if_contains("status_code") : nullptr;
    if (!status || !status->is_int64()) return fail("response.status_code: expected a number");
    done.status[*id] = static_cast<int>(status->as_int64());
  }
  if (file.bad()) return make_error(ErrorCode::kIo, "{}: cannot be read", path);
  return done;
}

}  // namespace llmrt::server
