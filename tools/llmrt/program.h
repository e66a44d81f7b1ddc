// What the commands of the program share: how it ends, what it prints while loading, and the options that several
// commands have.
#pragma once

#include <CLI/CLI.hpp>
#include <boost/json/fwd.hpp>

#include <functional>
#include <memory>
#include <string>

#include "core/engine/engine.h"
#include "core/log/log.h"
#include "core/sample_trace/trace_writer.h"
#include "server/served_model.h"

namespace llmrt::cli {

enum ExitCode : int {
  kFine = 0,
  kFailed = 1,  // anything that has no code of its own
  kUsage = 2,
  kBadModel = 3,
  kNoDevice = 4,
  kDeviceLost = 5,
  kInterrupted = 130,
};

// Prints "error: ..." to standard error and ends the command with `code`.
struct Exit {
  int code;
};
[[noreturn]] void fail(int code, const std::string& message);
// The code that fits the error; `otherwise` where none does.
[[noreturn]] void fail(const Error& error, int otherwise = kFailed);

// SIGINT sets a flag that interrupted() reads and clears. The second one, while the flag is still set, ends the
// program.
void catch_interrupts();
bool interrupted();
// What that second one calls first; async-signal-safe, null for nothing.
void on_abrupt_end(void (*restore)());

struct ModelOptions {
  std::string path;
  std::string name;                  // as clients call it; empty = the file's name
  std::string chat_format = "auto";  // how answers are written; auto = as the template says
};
void add_model_options(CLI::App& command, ModelOptions& options);

struct EngineOptions {
  std::string device = "auto";                  // the first of
  std::vector<std::string> devices = {"auto"};  // those that serve one model together (serve, batch)
  EngineConfig config;
  std::string kv_dtype = "f16";
  std::string prefix_cache = "on";
  double kv_host_gib = 0, kv_disk_gib = 0;
  std::string on_exhaustion = "preempt", batching = "continuous", window_blocks = "free", speculative = "none",
              latent_prompts = "by-cost";
  std::string draft_model = {};  // a file or folder; empty: none
  bool no_overlap = false, no_batch_invariant = false;
  std::vector<std::string> allow_classes = {};  // empty = all
  int64_t reserve_output = -1;                  // -1 = learnt
  std::vector<std::string> class_shares = {};
  uint32_t queue_mib = 256;
  double request_timeout_s = 0, queue_timeout_s = 0;
  std::string adapter = {};  // a PEFT folder or a GGUF file, of every answer; empty: none
  // Tell whether it was given.
  const CLI::Option *batch_wait = nullptr, *chunk_tokens = nullptr, *speculation = nullptr;
};
void add_engine_options(CLI::App& command, EngineOptions& options);
// --adapter, of a command with one adapter at most: open_engine reads it, and put_adapter names it in a request's body.
void add_adapter_option(CLI::App& command, EngineOptions& options);
void put_adapter(const server::ServedModel& model, boost::json::object* body);
ReadyAdapter only_adapter(const server::ServedModel& model);
// Those that a user at a terminal hardly needs go under --help-all; after add_engine_options.
void move_rare_options(CLI::App& command);
EngineConfig engine_config(const EngineOptions& options);

// When the parts of a start were over, by SteadyClock.
struct StartTimes {
  TimeNs begun_ns = 0;  // the process runs, its options are read
  TimeNs model_ns = 0, device_ns = 0, weights_ns = 0, engine_ns = 0;
};

// A model with its texts, no device yet.
struct OpenModel {
  std::shared_ptr<const Model> model;
  server::ServedModel served;
  StartTimes times;
  std::vector<std::string> warnings;  // about the file, a line each
};
// Ends the program on an error, which is a line on standard error. What else is told of a start goes to `log`; null: to
// standard error, with a bar on a terminal.
OpenModel open_model(const ModelOptions& options, Log* log = nullptr);
// Judges a file as open_model does; errors name file, key or tensor, what was expected and found.
Result<OpenModel> try_open_model(const ModelOptions& options);

// Loads it onto a device, and beside it the draft model of that path, if it is not empty; `progress` is told of the
// model's bytes. Fills in what `open` says of the engine.
Result<std::unique_ptr<Engine>> try_open_engine(OpenModel& open, const EngineConfig& config,
                                                std::unique_ptr<Backend> backend, const std::string& draft_model,
                                                const Clock* clock, const Progress& progress);
// The same on the only device, told as open_model does.
std::unique_ptr<Engine> open_engine(OpenModel& open, const EngineOptions& options, const Clock* clock,
                                    Log* log = nullptr);

// Records how tokens are drawn on this engine; null when the path is empty. Ends the program on an error.
// `device`: where several engines draw them; empty: the engine's.
std::shared_ptr<TraceWriter> open_trace(const std::string& path, Engine& engine, Log* log = nullptr,
                                        const std::string& device = {});
// What goes into a trace's header.
SampleTraceOrigin trace_origin(Engine& engine);

// "1.23 GB", "98.4 MB".
std::string bytes_text(uint64_t bytes);
// What the model has of layers that draft tokens.
std::string drafts_text(const Model& model);
// `text`, which came from `place`; a usage error unless it is UTF-8: nothing is replaced behind the user's back.
std::string checked_text(std::string text, const std::string& place);
// Ends the program where `path` cannot be written later: to be called before anything long. An empty path is fine.
void check_writable(const std::string& path, const std::string& option);
// Standard input is neither a terminal nor a device: a pipe, a file or a socket.
bool has_piped_input();
// The text of a file, or of standard input for "-"; checked.
std::string read_text(const std::string& path);

// Each adds one command; its callback does the work.
void add_devices(CLI::App& app);
void add_list(CLI::App& app);
void add_inspect(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_complete(CLI::App& app);
void add_chat(CLI::App& app);
void add_serve(CLI::App& app);
void add_batch(CLI::App& app);
void add_ps(CLI::App& app);
void add_stop(CLI::App& app);
void add_drain(CLI::App& app);
void add_explain(CLI::App& app);
void add_trace(CLI::App& app);
void add_synthesize(CLI::App& app);
void add_replay(CLI::App& app);

}  // namespace llmrt::cli
