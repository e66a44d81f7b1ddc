// One answer at a time from an engine in this process, for `complete` and `chat`. The same reading of requests and the
// same text assembly as the server's, so that a prompt means the same here and there.
#pragma once

#include <boost/json.hpp>

#include <functional>
#include <optional>
#include <string>

#include "core/sample_trace/trace_writer.h"
#include "server/api_request.h"
#include "tools/llmrt/program.h"
#include "tools/sampling_values.h"

namespace llmrt::cli {

struct SamplingOptions {
  SamplingValues numbers = SamplingValues().set("temperature", 0.7);
  std::optional<int64_t> seed = {};  // none: a random one
  uint32_t max_tokens = 0;           // not given: the command's default
  std::vector<std::string> stop, bad_words;
};
// `max_tokens_default`: for the help only, what the command does without --max-tokens.
void add_sampling_options(CLI::App& command, SamplingOptions& options, const std::string& max_tokens_default);
// As the fields of a request body.
void write_fields(const SamplingOptions& options, boost::json::object& body);

struct Answer {
  std::string text;
  std::vector<int32_t> token_ids;
  FinishReason finish = FinishReason::kNone;
  size_t num_prompt_tokens = 0, num_generated = 0;
  double first_token_s = 0, all_s = 0;
  TimeNs first_token_ns = 0;         // by SteadyClock
  double first_token_device_ms = 0;  // of the steps up to it, on the device
  bool was_interrupted = false;
  size_t cut_bytes = 0;  // of a character that is not in `text`, because the answer ended inside it
};

// Runs the engine on this thread until the answer is complete or Ctrl-C was pressed. `on_text` gets each piece, `trace`
// each draw.
Result<Answer> generate(Engine& engine, const server::ServedModel& model, server::ApiRequest request,
                        const std::function<void(const std::string&)>& on_text, TraceWriter* trace = nullptr);
// Says so on standard error when the answer ends inside a character.
void tell_cut(const Answer& answer);
// "12 prompt tokens in 0.51 s, 40 tokens at 15.2 a second".
std::string speed_text(const Answer& answer);

}  // namespace llmrt::cli
