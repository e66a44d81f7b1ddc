#include "tools/llmrt_bench/record/record.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "core/base/utf8.h"
#include "core/model/model_digest.h"
#include "tools/llmrt_bench/record/machine.h"
#include "tools/llmrt_bench/record/stats.h"

namespace llmrt::bench {
namespace {

namespace json = boost::json;

constexpr int kSchemaVersion = 1;

std::string utc_now() {
  return fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)));
}

json::value text_or_null(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}

json::object to_json(const RecordRow& row) {
  json::object values;
  for (const Value& value : row.values) {
    json::array samples;
    for (const double sample : value.samples) samples.push_back(number_or_null(sample));
    values[value.name] = {
        {"value", number_or_null(value.value)}, {"unit", value.unit}, {"samples", std::move(samples)}};
  }
  return {{"test", row.test},
          {"device", text_or_null(row.device)},
          {"values", std::move(values)},
          {"details", row.details}};
}

}  // namespace

json::value number_or_null(double value) {
  return std::isfinite(value) ? json::value(value) : json::value(nullptr);
}

Value median_value(std::string name, std::string unit, std::vector<double> samples) {
  const double value = median(samples);
  return {std::move(name), std::move(unit), value, std::move(samples)};
}

std::pair<double, double> range_of(const Value& value) {
  std::vector<double> known = value.samples;
  std::erase_if(known, [](double sample) { return std::isnan(sample); });
  if (known.empty()) return {value.value, value.value};
  const auto [least, most] = median_range(std::move(known));
  return {std::min(least, value.value), std::max(most, value.value)};
}

double spread_of(const Value& value) {
  const auto [least, most] = range_of(value);
  return value.value == 0 ? 0 : std::fabs((most - least) / 2 / value.value);
}

Result<Record> Record::create(std::string command, json::object work, json::object settings, std::string path) {
  Record record;
  std::error_code ignored;
  const auto kind = std::filesystem::status(path, ignored).type();
  using enum std::filesystem::file_type;
  record.is_stream_ = kind == character || kind == fifo || kind == socket;
  if (kind == regular) path = std::filesystem::canonical(path, ignored).string();
  record.path_ = std::move(path);
  record.json_ = {{"schema_version", kSchemaVersion},
                  {"command", std::move(command)},
                  {"arguments", json::value_from(command_line())},
                  {"llmrt", {{"version", LLMRT_VERSION}, {"commit", text_or_null(git_commit())}}},
                  {"begun_at", utc_now()},
                  {"ended_at", nullptr},
                  {"is_complete", false},
                  {"host", host_json()},
                  {"devices", json::array()},
                  {"work", std::move(work)},
                  {"settings", std::move(settings)},
                  {"rows", json::array()},
                  {"missing", json::array()}};
  record.write();
  if (!record.status_) return record.status_.error();
  return record;
}

void Record::add_device(const Caps& caps) {
  json_["devices"].as_array().push_back({{"id", caps.device_id},
                                         {"name", caps.device_name},
                                         {"driver", text_or_null(caps.driver)},
                                         {"tier", caps.tier},
                                         {"is_cpu", caps.is_cpu},
                                         {"memory_bytes", caps.memory_bytes},
                                         {"memory_free_bytes", caps.memory_free_bytes},
                                         {"clocks", clocks_json(caps.device_name)}});
  write();
}

void Record::add(const RecordRow& row) {
  json::object entry = to_json(row);
  entry["clocks"] = nullptr;
  for (const json::value& device : json_["devices"].as_array())
    if (device.at("id") == json::value(row.device))
      entry["clocks"] = clocks_json(json::value_to<std::string>(device.at("name")));
  json_["rows"].as_array().push_back(std::move(entry));
  write();
}

void Record::miss(const std::string& test, const std::string& device, const std::string& reason) {
  json_["missing"].as_array().push_back({{"test", test}, {"device", text_or_null(device)}, {"reason", reason}});
  write();
}

Status Record::finish() {
  json_["ended_at"] = utc_now();
  json_["is_complete"] = true;
  write();
  return status_;
}

void Record::write() {
  if (path_.empty() || !status_ || (is_stream_ && !json_["is_complete"].as_bool())) return;
  const std::string written = is_stream_ ? path_ : path_ + ".part";
  std::ofstream file(written, std::ios::binary);
  const std::string text = json::serialize(json_);  // a path or what a server said may be no UTF-8
  file << (is_valid_utf8(text) ? text : replace_invalid_utf8(text)) << '\n';
  file.close();
  std::error_code failure;
  if (file && !is_stream_) std::filesystem::rename(written, path_, failure);
  if (!file || failure)
    status_ = make_error(ErrorCode::kIo, "--json: expected a file that can be written, found {}{}", path_,
                         failure ? ": " + failure.message() : "");
}

json::object model_work(const Model& model) {
  return {{"model_digest", to_hex(model_digest(model))},
          {"architecture", model.config.architecture},
          {"encoding", model.encoding}};
}

json::object model_work(const Model& model, KvDType kv_dtype) {
  json::object work = model_work(model);
  work["kv_dtype"] = kv_dtype_name(kv_dtype);
  return work;
}

}  // namespace llmrt::bench
