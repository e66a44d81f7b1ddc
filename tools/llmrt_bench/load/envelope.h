// The operating envelope of a model on a device: a file with a row for each cell, all with the same named columns
// (docs/load.md says what they are). CSV where its name ends in .csv, else JSON lines. Whole after each row.
#pragma once

#include <boost/json.hpp>

#include <string>
#include <vector>

#include "core/base/status.h"
#include "tools/llmrt_bench/load/cell.h"

namespace llmrt::bench {

// What is not known of a cell is null.
boost::json::object envelope_row(const std::string& model, const std::string& device, KvDType kv_dtype,
                                 const Cell& cell, const CellOptions& options, const CellResult& result);

std::string envelope_csv(const std::vector<boost::json::object>& rows);
std::string envelope_lines(const std::vector<boost::json::object>& rows);
// Errors: io.
Status write_envelope(const std::string& path, const std::vector<boost::json::object>& rows);

}  // namespace llmrt::bench
