// A record read back from its file (record.h), checked: what does not have the form of docs/bench.schema.json is an
// error that names the place, what was expected and what was found.
#pragma once

#include <boost/json.hpp>

#include <string>
#include <vector>

#include "core/backend/caps.h"
#include "core/base/status.h"
#include "tools/llmrt_bench/record/record.h"

namespace llmrt::bench {

struct MissingRow {
  std::string test, device, reason;
};

struct SavedRecord {
  std::string path, command, begun_at;
  std::string version, commit;  // the commit may be empty
  std::string cpu, os;          // of the host; may be empty
  bool is_complete = false;
  std::vector<Caps> devices;  // as far as a record tells
  boost::json::object work, settings;
  std::vector<RecordRow> rows;  // a value that is not finite is a NaN
  std::vector<MissingRow> missing;

  // As the driver calls it; the id where the record has no such device.
  std::string device_name(const std::string& id) const;
};

// Null when the row has no such value.
const Value* find_value(const RecordRow& row, std::string_view name);

// Errors: not_found; corrupt_file; unsupported, of another schema version.
Result<SavedRecord> read_record(const std::string& path);

}  // namespace llmrt::bench
