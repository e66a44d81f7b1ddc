#include "tools/llmrt_bench/record/saved_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

#include "core/base/utf8.h"

namespace llmrt::bench {
namespace {

namespace json = boost::json;

// A value with its place in the file. Asking for what is not there throws WrongForm, which read_record catches.
struct WrongForm {
  std::string message;
};

struct At {
  const json::value* value;
  std::string place;

  [[noreturn]] void expected(std::string_view what) const {
    constexpr size_t kShownBytes = 60;
    std::string found = json::serialize(*value);
    if (found.size() > kShownBytes) found = found.substr(0, kShownBytes) + "...";
    throw WrongForm{
        fmt::format("{}expected {}, found {}", place.empty() ? "" : place + ": ", what, replace_invalid_utf8(found))};
  }
  const json::object& object() const {
    if (!value->is_object()) expected("an object");
    return value->get_object();
  }
  const json::array& array() const {
    if (!value->is_array()) expected("an array");
    return value->get_array();
  }
  std::string text() const {
    if (!value->is_string()) expected("a string");
    return std::string(value->get_string());
  }
  std::string text_or_null() const { return value->is_null() ? "" : text(); }
  double number_or_null() const {
    if (value->is_null()) return std::numeric_limits<double>::quiet_NaN();
    if (!value->is_number()) expected("a number or null");
    return value->to_number<double>();
  }
  uint64_t count() const {
    boost::system::error_code failure;
    const auto number = value->is_double() ? 0 : value->to_number<uint64_t>(failure);
    if (!value->is_number() || value->is_double() || failure) expected("a whole number of at least 0");
    return number;
  }
  bool flag() const {
    if (!value->is_bool()) expected("true or false");
    return value->get_bool();
  }

  At operator[](std::string_view name) const {
    const json::value* member = object().if_contains(name);
    if (member == nullptr)
      throw WrongForm{fmt::format("{}expected a member \"{}\", found none", place.empty() ? "" : place + ": ", name)};
    return {member, place.empty() ? std::string(name) : fmt::format("{}.{}", place, name)};
  }
  std::vector<At> items() const {
    std::vector<At> all;
    for (const json::value& item : array()) all.push_back({&item, fmt::format("{}[{}]", place, all.size())});
    return all;
  }
};

RecordRow read_row(const At& at) {
  RecordRow row{at["test"].text(), at["device"].text_or_null(), {}, at["details"].object()};
  const At values = at["values"];
  for (const auto& [name, unused] : values.object()) {
    const At value = values[name];
    row.values.push_back({std::string(name), value["unit"].text(), value["value"].number_or_null()});
    for (const At& sample : value["samples"].items()) row.values.back().samples.push_back(sample.number_or_null());
  }
  return row;
}

Caps read_device(const At& at) {
  Caps caps;
  caps.device_id = at["id"].text();
  caps.device_name = at["name"].text();
  caps.driver = at["driver"].text_or_null();
  caps.tier = at["tier"].text();
  caps.is_cpu = at["is_cpu"].flag();
  caps.memory_bytes = at["memory_bytes"].count();
  caps.memory_free_bytes = at["memory_free_bytes"].count();
  return caps;
}

SavedRecord read_root(const At& root, const std::string& path) {
  SavedRecord record;
  record.path = path;
  record.command = root["command"].text();
  record.begun_at = root["begun_at"].text();
  record.version = root["llmrt"]["version"].text();
  record.commit = root["llmrt"]["commit"].text_or_null();
  record.cpu = root["host"]["cpu"].text_or_null();
  record.os = root["host"]["os"].text_or_null();
  record.is_complete = root["is_complete"].flag();
  for (const At& device : root["devices"].items()) record.devices.push_back(read_device(device));
  record.work = root["work"].object();
  record.settings = root["settings"].object();
  for (const At& row : root["rows"].items()) record.rows.push_back(read_row(row));
  for (const At& missing : root["missing"].items())
    record.missing.push_back({missing["test"].text(), missing["device"].text_or_null(), missing["reason"].text()});
  return record;
}

}  // namespace

const Value* find_value(const RecordRow& row, std::string_view name) {
  const auto it = std::ranges::find(row.values, name, &Value::name);
  return it == row.values.end() ? nullptr : &*it;
}

std::string SavedRecord::device_name(const std::string& id) const {
  const auto it = std::ranges::find(devices, id, &Caps::device_id);
  return it == devices.end() ? id : it->device_name;
}

Result<SavedRecord> read_record(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  if (!file || !(text << file.rdbuf()))
    return make_error(ErrorCode::kNotFound, "record: {}: expected a file that can be read, found none or nothing in it",
                      path);
  boost::system::error_code failure;
  const json::value root = json::parse(text.str(), failure);
  if (failure)
    return make_error(ErrorCode::kCorruptFile, "record: {}: expected JSON, found: {}", path, failure.message());
  try {
    const At at{&root, ""};
    if (const At version = at["schema_version"]; version.count() != 1)
      return make_error(ErrorCode::kUnsupported, "record: {}: schema_version: expected 1, found {}", path,
                        version.count());
    return read_root(at, path);
  } catch (const WrongForm& wrong) {
    return make_error(ErrorCode::kCorruptFile, "record: {}: {}", path, wrong.message);
  }
}

}  // namespace llmrt::bench
