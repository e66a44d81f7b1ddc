// What the server knows of a client's file and of a batch: as OpenAI's API shows it, and as it stands on the disk.
// Plain values; times are seconds since 1970, 0 for none.
#pragma once

#include <boost/json.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "server/batch_input.h"
#include "server/batch_state.h"

namespace llmrt::server {

inline constexpr std::string_view kPurposeBatch = "batch", kPurposeOutput = "batch_output";

struct StoredFile {
  std::string id;       // "file-" and 32 digits
  std::string owner;    // the name of the key that it belongs to; empty: the server had no keys
  uint64_t number = 0;  // of the store's records, in the order in which they were made
  std::string filename, purpose;
  uint64_t bytes = 0;
  int64_t created_at = 0, expires_at = 0;
};

struct StoredBatch {
  std::string id;  // "batch_" and 32 digits
  std::string owner;
  uint64_t number = 0;
  std::string endpoint, input_id;
  std::string output_id, error_id;  // of the files that its answers go to; files once the batch is over
  bool has_output = false, has_errors = false;
  BatchState state = BatchState::kValidating;
  std::array<int64_t, kNumBatchStates> reached_at = {};  // of kValidating: when it was made
  int64_t expires_at = 0, output_expires_s = 0;
  uint64_t num_lines = 0, num_completed = 0, num_failed = 0;
  std::vector<LineProblem> problems;
  boost::json::value metadata;  // an object, or null

  int64_t created_at() const { return reached_at[static_cast<size_t>(BatchState::kValidating)]; }
  void move_to(BatchState next, int64_t now_s) {
    state = next;
    reached_at[static_cast<size_t>(next)] = now_s;
  }
};

// For clients.
boost::json::object file_object(const StoredFile& file);
boost::json::object batch_object(const StoredBatch& batch);

// For the disk, and back: corrupt_file with what is wrong.
boost::json::object to_record(const StoredFile& file);
boost::json::object to_record(const StoredBatch& batch);
Result<StoredFile> read_file_record(const boost::json::object& record);
Result<StoredBatch> read_batch_record(const boost::json::object& record);

}  // namespace llmrt::server
