#include <cstdio>
#include <random>

#include <unistd.h>

#include "core/base/utf8.h"
#include "tools/llmrt/generate.h"
#include "tools/llmrt/screen_text.h"
#include "tools/llmrt/terminal.h"

namespace llmrt::cli {
namespace {

struct Options {
  ModelOptions model;
  EngineOptions engine;
  SamplingOptions sampling;
  std::string system, prompt;
  bool has_prompt = false, verbose = false;
};

constexpr std::string_view kCommandsText =
    "/help              this list\n"
    "/clear             forget the conversation; a system text stays\n"
    "/set system TEXT   tell the model TEXT first, from the next turn on\n"
    "/bye               end the chat (also /exit, /quit, Ctrl-D)\n"
    "//TEXT             send /TEXT to the model\n"
    "\"\"\"                begin a turn of several lines; \"\"\" ends it\n";

class Chat {
 public:
  Chat(const Options& options, const server::ServedModel* model) : options_(options), model_(model) {
    if (!options.system.empty()) set_system(checked_text(options.system, "--system"));
  }

  void set_system(const std::string& text) {
    if (!messages_.empty() && messages_[0].at("role") == "system") messages_.erase(messages_.begin());
    messages_.insert(messages_.begin(), message("system", text));
  }
  void clear() {
    const bool keeps_first = !messages_.empty() && messages_[0].at("role") == "system";
    messages_.resize(keeps_first ? 1 : 0);
  }

  // What would be wrong with this first turn.
  std::optional<std::string> problem_of(const std::string& text) {
    messages_.push_back(message("user", checked_text(text, "--prompt")));
    const auto parsed = parse();
    messages_.pop_back();
    const auto* error = std::get_if<server::ApiError>(&parsed);
    return error ? std::optional(error->message) : std::nullopt;
  }

  // Answers to standard output. An error that the next turn may avoid is printed; the turn is taken back.
  bool turn(Engine& engine, const std::string& text) {
    messages_.push_back(message("user", text));
    if (!is_valid_utf8(text)) return give_up("expected UTF-8, found bytes that are not");
    auto parsed = parse();
    if (const auto* error = std::get_if<server::ApiError>(&parsed)) return give_up(error->message);
    AnswerText screen(terminal_width(STDOUT_FILENO, 0));
    const bool to_screen = isatty(STDOUT_FILENO) == 1;
    Result<Answer> answer =
        generate(engine, *model_, std::move(std::get<server::ApiRequest>(parsed)), [&](const std::string& piece) {
          fmt::print("{}", to_screen ? screen.push(piece) : piece);
          std::fflush(stdout);
        });
    fmt::print("\n");
    std::fflush(stdout);
    if (!answer && answer.error().code == ErrorCode::kDeviceLost) fail(answer.error());
    if (!answer) return give_up(answer.error().message);
    was_interrupted_ = answer->was_interrupted;
    messages_.push_back(message("assistant", answer->text));
    tell_cut(*answer);
    if (options_.verbose) fmt::print(stderr, "({})\n", speed_text(*answer));
    return true;
  }
  bool was_interrupted() const { return was_interrupted_; }  // the last answer

 private:
  static boost::json::object message(const char* role, const std::string& text) {
    return {{"role", role}, {"content", text}};
  }
  server::ApiResult<server::ApiRequest> parse() const {
    boost::json::object body;
    write_fields(options_.sampling, body);
    body["messages"] = messages_;
    put_adapter(*model_, &body);
    return server::parse_chat(body, *model_, std::random_device{}());
  }
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

// What a line asks for.
enum class Outcome { kFine, kFailed, kEnd };

// A line that begins with one slash never reaches the model.
Outcome obey(Chat& chat, std::string_view line) {
  const auto trimmed = [](std::string_view text) {
    const size_t begin = std::min(text.find_first_not_of(" \t\n"), text.size());
    return text.substr(begin, text.find_last_not_of(" \t\n") + 1 - begin);
  };
  const std::string_view whole = trimmed(line);
  const std::string_view name = whole.substr(0, whole.find_first_of(" \t\n"));
  const std::string_view rest = trimmed(whole.substr(name.size()));
  constexpr std::string_view kSystem = "system ";
  if (rest.empty() && (name == "/bye" || name == "/exit" || name == "/quit")) return Outcome::kEnd;
  if (rest.empty() && (name == "/help" || name == "/?")) {
    fmt::print(stderr, "{}", kCommandsText);
    return Outcome::kFine;
  }
  if (rest.empty() && name == "/clear") {
    chat.clear();
    fmt::print(stderr, "The conversation is forgotten.\n");
    return Outcome::kFine;
  }
  if (name == "/set" && rest.starts_with(kSystem) && is_valid_utf8(rest)) {
    chat.set_system(std::string(trimmed(rest.substr(kSystem.size()))));
    fmt::print(stderr, "The system text is set.\n");
    return Outcome::kFine;
  }
  AnswerText screen(0);  // what steers a terminal stays out of it
  fmt::print(stderr, "error: no such command: {}; nothing was sent to the model. Commands:\n{}",
             screen.push(replace_invalid_utf8(whole.substr(0, 60))), kCommandsText);
  return Outcome::kFailed;
}

Outcome on_line(Chat& chat, Engine& engine, std::string line) {
  if (line.find_first_not_of(" \t\n\r") == std::string::npos) return Outcome::kFine;  // no turn
  if (line.starts_with("//"))
    line.erase(0, 1);
  else if (line.starts_with("/"))
    return obey(chat, line);
  return chat.turn(engine, line) ? Outcome::kFine : Outcome::kFailed;
}

// The next line of a pipe; none at its end.
std::optional<std::string> read_line(bool is_terminal) {
  // A terminal's driver cuts lines there and says nothing.
  constexpr size_t kDriverLineMax = 4095;
  std::string line;
  for (int byte; (byte = std::getc(stdin)) != '\n'; line += static_cast<char>(byte)) {
    if (byte == EOF && line.empty()) return std::nullopt;
    if (byte == EOF) break;
    if (line.size() >= LineEditor::kTurnBytesMax)
      fail(kFailed, fmt::format("turn: expected lines of at most {} bytes, found more", LineEditor::kTurnBytesMax));
  }
  if (is_terminal && line.size() >= kDriverLineMax) {
    fmt::print(stderr,
               "error: turn: expected less than {} bytes of a terminal without escape sequences (TERM), "
               "found a line that is cut there; nothing was sent to the model\n",
               kDriverLineMax);
    return "";
  }
  return line;
}

void talk(Chat& chat, Engine& engine, Terminal* terminal) {
  const bool prompts = !terminal && isatty(STDIN_FILENO) == 1;
  if (terminal || prompts)
    fmt::print(stderr, "Ctrl-C stops an answer; /bye or Ctrl-D ends the chat; /help tells more.\n");
  if (interrupted()) throw Exit{kInterrupted};  // while weights were loaded
  bool all_fine = true;
  for (;;) {
    if (prompts) fmt::print(stderr, "> ");
    std::optional<std::string> line = terminal ? terminal->read_turn() : read_line(prompts);
    if (!line) break;
    const Outcome outcome = on_line(chat, engine, std::move(*line));
    if (outcome == Outcome::kEnd) break;
    all_fine &= outcome == Outcome::kFine;
  }
  if (terminal ? terminal->was_interrupted() : interrupted()) throw Exit{kInterrupted};
  if (!terminal && !prompts && !all_fine) throw Exit{kFailed};
}

void chat(const Options& options) {
  catch_interrupts();
  std::optional<Terminal> terminal;
  if (!options.has_prompt && has_terminal()) terminal.emplace();  // keys typed while weights load are for the chat
  OpenModel open = open_model(options.model);
  if (!open.served.chat_template) fail(kBadModel, open.served.no_chat_reason + "; llmrt complete needs none");
  Chat session(options, &open.served);
  // What is wrong with the options is told before weights are loaded.
  if (const auto problem = session.problem_of(options.has_prompt ? options.prompt : "hello")) fail(kUsage, *problem);
  const SteadyClock clock;
  const std::unique_ptr<Engine> engine = open_engine(open, options.engine, &clock);
  if (!options.has_prompt) return talk(session, *engine, terminal ? &*terminal : nullptr);
  if (!session.turn(*engine, options.prompt)) throw Exit{kFailed};
  if (session.was_interrupted()) throw Exit{kInterrupted};
}

}  // namespace

void add_chat(CLI::App& app) {
  CLI::App* command = app.add_subcommand("chat", "Talk to a model in the terminal");
  const auto options = std::make_shared<Options>();
  add_model_options(*command, options->model);
  command->add_option("--system", options->system, "tell the model this text first")->type_name("TEXT");
  const CLI::Option* prompt =
      command->add_option("--prompt", options->prompt, "answer this one turn, then end")->type_name("TEXT");
  command->add_flag("-v,--verbose", options->verbose, "print the speed of each answer");
  add_sampling_options(*command, options->sampling, "what the context leaves");
  options->engine.config.sequences_max = 1;  // unless asked for: pools and row state are sized by it
  add_engine_options(*command, options->engine);
  add_adapter_option(*command, options->engine);
  move_rare_options(*command);
  command->footer(
      "In a terminal, Enter sends a turn; a paste of many lines is one turn; \"\"\" begins a turn of several lines, "
      "and "
      "\"\"\" ends it. A line that begins with / is a command and never reaches the model; /help lists them. Ctrl-C "
      "stops "
      "an answer, or clears the prompt.\n"
      "From a pipe, each line is a turn or a command; empty lines are skipped, and the exit code is 1 when a turn "
      "failed.\n"
      "The model sees all turns. A conversation that outgrows the context is an error that names both lengths; nothing "
      "is cut. Answers go to standard output, everything else to standard error.");
  command->callback([options, prompt] {
    options->has_prompt = prompt->count() > 0;
    chat(*options);
  });
}

}  // namespace llmrt::cli
