// The fields of recorded rows, wherever a command put them, and the series that rows belong to.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/llmrt_bench/record/saved_record.h"

namespace llmrt::bench {

// A row with its record and the name of its series: the device, behind the file where several are of the same command.
struct SourcedRow {
  const SavedRecord* record;
  const RecordRow* row;
  std::string device;  // id and name
  std::string series;
};
std::vector<SourcedRow> sourced_rows(const std::vector<SavedRecord>& records);

// A value, or a number among the details; none when there is neither or it is not finite.
std::optional<double> number_of(const RecordRow& row, std::string_view name);
// The value `time` or `ms`.
std::optional<double> time_ms(const RecordRow& row);

// What the record of that row measured of the row's device; 0 = not measured.
struct RowLimits {
  double read_gb_s = 0, matrix_tflop_s = 0;
};
RowLimits limits_of(const SavedRecord& record, const std::string& device);

}  // namespace llmrt::bench
