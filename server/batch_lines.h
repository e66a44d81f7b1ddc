// The files of a batch, as OpenAI's Batch API has them: a line of JSON for each request, and one for each answer.
//   in:  {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
//   out: {"id": "batch_req_...", "custom_id": "a", "response": {"status_code", "request_id", "body"}, "error": null}
// Pure, but for read_done_lines.
#pragma once

#include <boost/json.hpp>

#include <string>
#include <string_view>

#include "core/base/keyed_hash.h"
#include "core/base/status.h"
#include "server/offline.h"

namespace llmrt::server {

inline constexpr size_t kBatchLineBytesMax = 8 << 20;
inline constexpr size_t kCustomIdBytesMax = 512;

struct BatchLine {
  std::string custom_id, url;
  boost::json::object body;
};
// invalid_argument with what is wrong.
Result<BatchLine> parse_batch_line(std::string_view line);

// With its newline. `body` is a JSON object.
std::string format_batch_line(std::string_view custom_id, const OfflineAnswer& answer);
// Of a line that was never answered.
std::string format_unanswered_line(std::string_view custom_id, std::string_view code, std::string_view message);

// The custom_id of a line of answers; empty: it is none.
std::string custom_id_of(std::string_view line);

// What a file of answers holds already, so that a batch goes on where it was stopped.
struct DoneLines {
  KeyedMap<int> status;    // by custom_id; 0: it was never answered
  uint64_t num_bytes = 0;  // of whole lines; what is behind them was being written
};
// A file that is not there holds nothing. io_error; invalid_argument where a whole line is no such answer.
Result<DoneLines> read_done_lines(const std::string& path);

}  // namespace llmrt::server
