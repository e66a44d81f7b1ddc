#include <iostream>
#include <random>

#include <unistd.h>

#include "core/text/utf8.h"
#include "tools/llmrt/generate.h"

namespace llmrt::cli {
namespace {

struct Options {
  ModelOptions model;
  EngineOptions engine;
  SamplingOptions sampling;
  std::string system, prompt;
  bool verbose = false;
};

class Chat {
 public:
  Chat(const Options& options, const server::ServedModel* model) : options_(options), model_(model) {
    if (!options.system.empty()) add("system", checked_text(options.system, "--system"));
  }

  // What would be wrong with this first turn.
  std::optional<std::string> problem_of(const std::string& text) {
    add("user", checked_text(text, "--prompt"));
    const auto parsed = parse();
    messages_.pop_back();
    const auto* error = std::get_if<server::ApiError>(&parsed);
    return error ? std::optional(error->message) : std::nullopt;
  }

  // Answers to standard output. An error that the next turn may avoid is printed; the turn is taken back.
  bool turn(Engine& engine, const std::string& text) {
    add("user", text);
    if (!is_valid_utf8(text)) return give_up("expected UTF-8, found bytes that are not");
    auto parsed = parse();
    if (const auto* error = std::get_if<server::ApiError>(&parsed)) return give_up(error->message);
    Result<Answer> answer =
        generate(engine, *model_, std::move(std::get<server::ApiRequest>(parsed)), [](const std::string& piece) {
          fmt::print("{}", piece);
          std::fflush(stdout);
        });
    fmt::print("\n");
    if (!answer && answer.error().code == ErrorCode::kDeviceLost) fail(answer.error());
    if (!answer) return give_up(answer.error().message);
    was_interrupted_ = answer->was_interrupted;
    add("assistant", answer->text);
    if (options_.verbose) fmt::print(stderr, "({})\n", speed_text(*answer));
    return true;
  }
  bool was_interrupted() const { return was_interrupted_; }  // the last answer

 private:
  server::ApiResult<server::ApiRequest> parse() const {
    boost::json::object body;
    write_fields(options_.sampling, body);
    body["messages"] = messages_;
    return server::parse_chat(body, *model_, std::random_device{}());
  }
  void add(const char* role, const std::string& text) { messages_.push_back({{"role", role}, {"content", text}}); }
  bool give_up(const std::string& message) {
    fmt::print(stderr, "error: {}\n", message);
    messages_.pop_back();
    return false;
  }

  const Options& options_;
  const server::ServedModel* model_;
  boost::json::array messages_;
  bool was_interrupted_ = false;
};

void chat(const Options& options) {
  catch_interrupts();
  OpenModel open = open_model(options.model);
  if (!open.served.chat_template) fail(kBadModel, open.served.no_chat_reason + "; llmrt complete needs none");
  Chat session(options, &open.served);
  // What is wrong with the options is told before weights are loaded.
  const std::string first = options.prompt.empty() ? "hello" : options.prompt;
  if (const auto problem = session.problem_of(first)) fail(kUsage, *problem);
  const SteadyClock clock;
  const std::unique_ptr<Engine> engine = open_engine(open, options.engine, &clock, /*quiet=*/false);
  if (!options.prompt.empty()) {
    if (!session.turn(*engine, options.prompt)) throw Exit{kFailed};
    if (session.was_interrupted()) throw Exit{kInterrupted};
    return;
  }
  const bool terminal = isatty(STDIN_FILENO) == 1;
  if (terminal) fmt::print(stderr, "Ctrl-C stops an answer; Ctrl-D or an empty line ends the chat.\n");
  for (std::string line;;) {
    if (terminal) fmt::print(stderr, "> ");
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) break;
    session.turn(*engine, line);
  }
  if (interrupted()) throw Exit{kInterrupted};
}

}  // namespace

void add_chat(CLI::App& app) {
  CLI::App* command = app.add_subcommand("chat", "Talk to a model in the terminal");
  const auto options = std::make_shared<Options>();
  add_model_options(*command, options->model);
  command->add_option("--system", options->system, "what the model is told first")->type_name("TEXT");
  command->add_option("--prompt", options->prompt, "answer this one turn, then end")->type_name("TEXT");
  command->add_flag("-v,--verbose", options->verbose, "tell the speed of each answer");
  add_sampling_options(*command, options->sampling, "what the context leaves");
  add_engine_options(*command, options->engine);
  command->footer(
      "Each line is a turn; all turns are kept. A conversation that outgrows the context is an error with both\n"
      "lengths, never cut. Answers go to standard output, everything else to standard error.");
  command->callback([options] { chat(*options); });
}

}  // namespace llmrt::cli
