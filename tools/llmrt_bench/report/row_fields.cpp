#include "tools/llmrt_bench/report/row_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

namespace llmrt::bench {

std::vector<SourcedRow> sourced_rows(const std::vector<SavedRecord>& records) {
  std::set<std::string> stems;
  for (const SavedRecord& record : records) stems.insert(std::filesystem::path(record.path).stem().string());
  const bool has_stems = stems.size() == records.size();  // else the place among the files names them
  std::vector<SourcedRow> all;
  for (size_t i = 0; i < records.size(); ++i) {
    const SavedRecord& record = records[i];
    const std::string file = has_stems ? std::filesystem::path(record.path).stem().string() : fmt::format("#{}", i + 1);
    const bool has_twin = std::ranges::count(records, record.command, &SavedRecord::command) > 1;
    for (const RecordRow& row : record.rows) {
      const std::string name = record.device_name(row.device);
      const std::string device = name == row.device ? name : row.device + " " + name;
      const std::string series = !has_twin ? device : device.empty() ? file : file + ": " + device;
      all.push_back({&record, &row, device, series});
    }
  }
  return all;
}

std::optional<double> number_of(const RecordRow& row, std::string_view name) {
  const Value* value = find_value(row, name);
  if (value != nullptr && std::isfinite(value->value)) return value->value;
  const boost::json::value* detail = row.details.if_contains(name);
  if (detail != nullptr && detail->is_number()) return detail->to_number<double>();
  return std::nullopt;
}

std::optional<double> time_ms(const RecordRow& row) {
  for (const char* name : {"time", "ms"}) {
    const Value* value = find_value(row, name);
    if (value == nullptr || !(value->value > 0)) continue;
    if (value->unit == "us") return value->value * 1e-3;
    if (value->unit == "ms") return value->value;
    if (value->unit == "s") return value->value * 1e3;
  }
  return std::nullopt;
}

RowLimits limits_of(const SavedRecord& record, const std::string& device) {
  RowLimits limits;
  for (const RecordRow& row : record.rows) {
    const Value* rate = find_value(row, "rate");
    const bool is_limit = record.command == "limits" || row.test.starts_with("limit");
    if (!is_limit || rate == nullptr || row.device != device) continue;
    if (rate->unit == "GB/s" && row.test.ends_with("read")) limits.read_gb_s = rate->value;
    if (rate->unit == "TFLOP/s") limits.matrix_tflop_s = std::max(limits.matrix_tflop_s, rate->value);
  }
  return limits;
}

}  // namespace llmrt::bench
