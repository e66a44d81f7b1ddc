// `llmrt batch`: a file of requests to a file of answers, with the engine in the process.
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include <unistd.h>

#include "core/platform/free_memory.h"
#include "core/platform/private_file.h"
#include "server/batch_input.h"
#include "tools/llmrt/model_loader.h"
#include "tools/llmrt/program.h"
#include "tools/llmrt/serve_models.h"
#include "tools/number_range.h"

namespace llmrt::cli {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

struct Options {
  ModelOptions model;
  ServedModelsOptions models;
  EngineOptions engine;
  server::OfflineSettings answers;
  std::string input, output;
  uint32_t in_flight = 0;  // 0: twice what the engine runs at once
  double price_per_hour = 0;
  bool retries_errors = false;
};

// Reads all lines once: what is wrong with one is told before a model is loaded. How many have no answer yet.
uint64_t check_lines(server::BatchInput& lines, const server::OfflineSettings& settings, const std::string& path) {
  const server::OfflineAnswerer answerer(nullptr, settings);
  const auto checked = lines.check([&](std::string_view url) { return answerer.check_url(url); }, 1, ~uint64_t{0});
  if (!checked) fail(checked.error());
  for (const server::LineProblem& problem : checked->problems)
    fail(kUsage, fmt::format("{}: line {}: {}", path, problem.line, problem.message));
  return checked->num_lines - checked->num_done;
}

// What is done, and how fast. Thread-safe.
class Account {
 public:
  explicit Account(uint64_t num_lines) : num_lines_(num_lines) {}

  void add(const server::OfflineAnswer& answer) {
    std::lock_guard lock(mutex_);
    ++num_done_;
    num_failed_ += answer.status != 200;
    prompt_tokens_ += answer.prompt_tokens;
    cached_tokens_ += answer.cached_tokens;
    generated_tokens_ += answer.generated_tokens;
  }
  // "1204 of 50000 (3 failed), 5,120 tokens/s, 12 min left"
  std::string progress() const {
    std::lock_guard lock(mutex_);
    const double seconds = elapsed_s();
    std::string text = fmt::format("{} of {} answered", num_done_, num_lines_);
    if (num_failed_ > 0) text += fmt::format(" ({} failed)", num_failed_);
    text += fmt::format(", {:.0f} tokens/s", static_cast<double>(prompt_tokens_ + generated_tokens_) / seconds);
    if (num_done_ == 0) return text;
    const double left_s = seconds * static_cast<double>(num_lines_ - num_done_) / static_cast<double>(num_done_);
    return text + ", " + duration_text(left_s) + " left";
  }
  void print_summary(double price_per_hour) const {
    std::lock_guard lock(mutex_);
    const double seconds = elapsed_s();
    const auto rate = [&](uint64_t tokens) { return static_cast<double>(tokens) / seconds; };
    fmt::print(stderr, "{} of {} requests answered, {} of them with an error, in {}\n", num_done_, num_lines_,
               num_failed_, duration_text(seconds));
    fmt::print(stderr, "prompt tokens     {:>14} {:>10.0f}/s, {} of them from the prefix cache\n", prompt_tokens_,
               rate(prompt_tokens_), cached_tokens_);
    fmt::print(stderr, "generated tokens  {:>14} {:>10.0f}/s\n", generated_tokens_, rate(generated_tokens_));
    const uint64_t tokens = prompt_tokens_ + generated_tokens_;
    if (price_per_hour > 0 && tokens > 0)
      fmt::print(stderr, "price             {:.4f} per million tokens, at {} an hour\n",
                 price_per_hour * seconds / 3600 * 1e6 / static_cast<double>(tokens), price_per_hour);
  }
  uint64_t num_failed() const { return num_failed_; }

 private:
  static std::string duration_text(double seconds) {
    if (seconds < 120) return fmt::format("{:.0f} s", seconds);
    if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
    return fmt::format("{:.1f} h", seconds / 3600);
  }
  double elapsed_s() const {
    return std::max(1e-3, std::chrono::duration<double>(steady_clock::now() - begin_).count());
  }

  mutable std::mutex mutex_;
  const uint64_t num_lines_;
  const steady_clock::time_point begin_ = steady_clock::now();
  uint64_t num_done_ = 0, num_failed_ = 0, prompt_tokens_ = 0, cached_tokens_ = 0, generated_tokens_ = 0;
};

// Answers of an earlier run that are kept; the file then ends behind them.
server::DoneLines keep_done(const Options& options) {
  Result<server::DoneLines> done = server::read_done_lines(options.output);
  if (!done) fail(done.error(), kUsage);
  std::error_code error;
  if (!fs::exists(options.output, error)) return *std::move(done);
  fs::resize_file(options.output, done->num_bytes, error);
  if (error) fail(kFailed, fmt::format("{}: {}", options.output, error.message()));
  if (!options.retries_errors) return *std::move(done);
  // The others are written anew beside it, which then takes its place: a stop in between loses nothing.
  const std::string kept_path = options.output + ".kept";
  std::ifstream old(options.output, std::ios::binary);
  std::ofstream kept(kept_path, std::ios::binary | std::ios::trunc);
  std::erase_if(done->status, [](const auto& entry) { return entry.second != 200; });
  for (std::string line; std::getline(old, line);)
    if (done->status.contains(server::custom_id_of(line))) kept << line << '\n';
  if (!kept.flush()) fail(kFailed, fmt::format("{}: cannot be written", kept_path));
  fs::rename(kept_path, options.output, error);
  if (error) fail(kFailed, fmt::format("{}: {}", options.output, error.message()));
  return *std::move(done);
}

std::shared_ptr<ModelHost> host_models(const Options& options, const std::shared_ptr<EngineLoader>& loader,
                                       const std::vector<ModelOptions>& models, const Clock* clock,
                                       const std::shared_ptr<Log>& log) {
  std::vector<ModelSpec> specs = model_specs(options.models, models);
  const bool is_only = models.size() == 1;
  specs[0].is_adopted = is_only;
  if (!is_only)
    if (Status status = loader->measure_memory(); !status) fail(status.error(), kNoDevice);
  RegistryLimits limits = registry_limits(options.models, models.size());
  limits.wait_ns = TimeNs{1} << 60;  // there is nobody who would go away
  auto host = std::make_shared<ModelHost>(specs, limits, loader, clock, log);
  if (is_only) adopt_only_model(open_model(models[0]), options.engine, *loader, host, clock);
  return host;
}

// One line of progress: drawn again on a terminal, twice a minute elsewhere.
void show_progress(const Account& account, steady_clock::time_point* shown) {
  const bool is_terminal = isatty(STDERR_FILENO) == 1;
  const auto now = steady_clock::now();
  if (now - *shown < (is_terminal ? std::chrono::milliseconds(200) : std::chrono::milliseconds(30'000))) return;
  *shown = now;
  if (is_terminal)
    fmt::print(stderr, "\r\x1b[K{}", account.progress());
  else
    fmt::print(stderr, "{}\n", account.progress());
  std::fflush(stderr);
}

// Threads that each take a line, wait for its answer and write it.
class Workers {
 public:
  Workers(const server::OfflineAnswerer& answerer, server::BatchInput& lines, Account& account,
          const std::string& output)
      : answerer_(answerer), lines_(lines), account_(account) {
    Result<PrivateFile> opened = open_private_file(output, OpenFor::kAppending);
    if (!opened) fail(opened.error());
    output_ = ::fdopen(opened->descriptor, "a");
  }

  void start(uint32_t num_threads) {
    num_working_ = num_threads;
    for (uint32_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { work(); });
  }
  bool are_working() const { return num_working_ > 0; }
  // Answers that are not whole are dropped.
  void cancel() { cancelled_ = true; }
  // Waits for them; false where the file could not be written.
  bool finish() {
    for (std::thread& thread : threads_) thread.join();
    return std::fclose(output_) == 0 && !write_failed_;
  }

 private:
  void work() {
    while (!cancelled_) {
      const std::optional<server::BatchLine> line = lines_.next();
      if (!line) break;
      const server::OfflineAnswer answer = answerer_.answer(line->url, line->body, cancelled_);
      if (cancelled_) break;  // this answer may be one of the stop
      write(server::format_batch_line(line->custom_id, answer), answer);
    }
    --num_working_;
  }
  void write(const std::string& text, const server::OfflineAnswer& answer) {
    std::lock_guard lock(mutex_);
    if (std::fwrite(text.data(), 1, text.size(), output_) == text.size() && std::fflush(output_) == 0)
      account_.add(answer);
    else
      write_failed_ = cancelled_ = true;
  }

  const server::OfflineAnswerer& answerer_;
  server::BatchInput& lines_;
  Account& account_;
  std::FILE* output_ = nullptr;
  std::mutex mutex_;  // of the file
  std::vector<std::thread> threads_;
  std::atomic<uint32_t> num_working_ = 0;
  std::atomic<bool> cancelled_ = false, write_failed_ = false;
};

// How a batch ended, behind its summary.
void tell_end(const Options& options, const Account& account, const std::optional<Error>& loss, bool is_written,
              bool is_stopped) {
  account.print_summary(options.price_per_hour);
  if (!is_written) fail(kFailed, fmt::format("{}: cannot be written", options.output));
  if (loss) fail(*loss);
  if (is_stopped) {
    fmt::print(stderr, "stopped; the same command goes on from here\n");
    throw Exit{kInterrupted};
  }
  if (account.num_failed() > 0)
    fmt::print(stderr, "{}: {} answers are errors; --retry-errors asks for these again\n", options.output,
               account.num_failed());
}

void answer_lines(const Options& options, server::BatchInput& lines, uint64_t num_open) {
  const SteadyClock clock;
  const std::shared_ptr<Log> log = stderr_log(LogLevel::kWarning);
  const std::vector<ModelOptions> models = served_models(options.models, options.model, *log);
  const LoaderConfig config = loader_config(options.models, options.engine, models);
  const auto loader = std::make_shared<EngineLoader>(config, &clock, log);
  std::atomic<bool> lost = false;
  if (models.size() == 1) loader->on_loss([&](const Error&) { lost = true; });
  const std::shared_ptr<ModelHost> host = host_models(options, loader, models, &clock, log);
  const server::OfflineAnswerer answerer(host.get(), options.answers);
  Account account(num_open);
  Workers workers(answerer, lines, account, options.output);
  const uint32_t wanted = lines_in_flight(options.in_flight, config.engine.sequences_max);
  catch_interrupts();
  workers.start(static_cast<uint32_t>(std::min<uint64_t>(wanted, num_open)));
  bool is_stopped = false;
  for (steady_clock::time_point shown = steady_clock::now(); workers.are_working();) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    is_stopped = interrupted() || is_stopped;
    if (is_stopped || lost) workers.cancel();
    show_progress(account, &shown);
  }
  const bool is_written = workers.finish();
  if (isatty(STDERR_FILENO) == 1) fmt::print(stderr, "\r\x1b[K");
  host->stop();
  tell_end(options, account, lost ? loader->last_loss() : std::nullopt, is_written, is_stopped);
}

void run_batch(const Options& options) {
  return_large_blocks_at_once();
  check_writable(options.output, "OUT");
  std::error_code same;
  if (fs::equivalent(options.input, options.output, same)) fail(kUsage, "OUT: expected another file than IN");
  const server::DoneLines done = keep_done(options);
  const auto lines = server::BatchInput::open(options.input, &done);
  if (!lines) fail(kUsage, lines.error().message);
  const uint64_t num_open = check_lines(**lines, options.answers, options.input);
  if (!done.status.empty())
    fmt::print(stderr, "{}: {} answers are there already\n", options.output, done.status.size());
  if (num_open == 0)
    fmt::print(stderr, "nothing is left to answer\n");
  else
    answer_lines(options, **lines, num_open);
}

}  // namespace

void add_batch(CLI::App& app) {
  CLI::App* command = app.add_subcommand("batch", "Answer a file of requests (OpenAI's batch lines), offline");
  const auto options = std::make_shared<Options>();
  const char* group = "Batch";
  command->add_option("input", options->input, "requests, a line of JSON each: custom_id, url, body")
      ->required()
      ->type_name("IN.jsonl");
  command
      ->add_option("output", options->output,
                   "answers, a line each, in the order in which they end; what it holds already is not asked again")
      ->required()
      ->type_name("OUT.jsonl");
  command
      ->add_option("-m,--model", options->models.paths,
                   "the models, as for serve; a request's `model` picks one, the first where it names none")
      ->type_name("MODEL");
  command->add_option("--models-dir", options->models.folder, "every model in this folder, by name")
      ->type_name("FOLDER")
      ->group(group);
  command->add_option("--name", options->model.name, "what requests call the model, of one; default: the file's name")
      ->type_name("NAME")
      ->group(group);
  command
      ->add_option("--in-flight", options->in_flight,
                   "requests in the engine at a time; default: twice --sequences, at most 512")
      ->check(number_range(1u, 4096u))
      ->type_name("N")
      ->group(group);
  command->add_flag("--retry-errors", options->retries_errors, "ask again for answers that are errors")->group(group);
  command->add_flag("--strict-fields", options->answers.strict_fields, "refuse requests with fields that are unknown")
      ->group(group);
  command
      ->add_option("--price-per-hour", options->price_per_hour,
                   "what an hour of this machine costs: the summary then tells the price of a million tokens")
      ->check(number_range(0.0, 1e9))
      ->type_name("PRICE")
      ->group(group);
  add_engine_options(*command, options->engine);
  command->footer(
      "Endpoints are those of serve that models answer (/v1/chat/completions, /v1/completions, /v1/responses, "
      "/v1/messages ...), each with its own body; no answer streams. An interrupted batch goes on with the same "
      "command.");
  command->callback([options] { run_batch(*options); });
}

}  // namespace llmrt::cli
