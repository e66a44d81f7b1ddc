#include "tools/llmrt/hints.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <numeric>

#include "tools/llmrt/program.h"

namespace llmrt::cli {
namespace {

struct ForeignCommand {
  std::string_view names;  // separated by spaces
  std::string_view text;
};
constexpr ForeignCommand kForeignCommands[] = {
    {"run", "llmrt chat MODEL talks to a model"},
    {"pull download push cp rm create", "llmrt keeps no store of models: download a GGUF file, then llmrt chat FILE"},
    {"ls models", "llmrt list shows the models in a folder; llmrt chat FILE talks to one"},
    {"status", "llmrt ps shows what running servers have loaded"},
    {"bench benchmark", "llmrt-bench is a program of its own: llmrt-bench --help"},
    {"server start api", "llmrt serve MODEL serves a model over HTTP"},
    {"generate completion", "llmrt complete MODEL TEXT continues a text"},
    {"show info", "llmrt inspect FILE shows what is in a model file"},
    {"quantize convert", "llmrt reads GGUF files as they are: llama.cpp has tools that make and shrink them"},
};

struct ForeignOption {
  std::string_view names;
  std::string_view ours;  // empty: none
  std::string_view text;  // where ours is empty
};
constexpr std::string_view kLeaveOut = "leave it out";
constexpr ForeignOption kForeignOptions[] = {
    {"-ngl --gpu-layers --n-gpu-layers -sm --split-mode", "", "all layers run on the device: leave it out"},
    {"-n --predict --n-predict --num-predict", "--max-tokens", ""},
    {"-p", "--prompt", ""},
    {"-sys --system-prompt", "--system", ""},
    {"-f", "--file", ""},
    {"-dev --main-gpu -mg --gpu", "--device", ""},
    {"--max-model-len --max-seq-len --num-ctx --context-length", "--context", ""},
    {"--temp", "--temperature", ""},
    {"--repeat-penalty --repeat_penalty", "--repetition-penalty", ""},
    {"-s", "--seed", ""},
    {"-r --reverse-prompt", "--stop", ""},
    {"-np --parallel --max-num-seqs --max-running-requests", "--sequences", ""},
    {"-b --batch-size --max-num-batched-tokens", "--step-tokens", ""},
    {"-ub --ubatch-size --chunked-prefill-size", "--chunk-tokens", ""},
    {"-ctk -ctv --cache-type-k --cache-type-v --kv-cache-dtype", "--kv-dtype", ""},
    {"-a --alias --served-model-name", "--name", ""},
    {"--gpu-memory-utilization --mem-fraction-static", "--memory-utilization", ""},
    {"--enable-prefix-caching --no-enable-prefix-caching --disable-radix-cache --cache-reuse", "--prefix-cache", ""},
    {"-hf -hfr --hf-repo -hff --hf-file -mu --model-url --model-path", "",
     "llmrt reads files of this machine: download the GGUF file and give its path as MODEL"},
    {"-t --threads -tb --threads-batch", "", "the device computes, not threads of this program: leave it out"},
    {"-fa --flash-attn --jinja --mmap --no-mmap --mlock --numa --no-warmup -cb --cont-batching", "", kLeaveOut},
    {"--dtype --quantization --load-format", "", "the model's file says how its weights are encoded: leave it out"},
    {"-i -if --interactive -cnv --conversation", "", "llmrt chat MODEL talks to a model"},
    {"-tp --tensor-parallel-size --tp --tensor-split", "", "one engine runs on one device: leave it out"},
    {"--api-key --api-keys", "", "a key on the command line is seen by all users: --api-key-file, or LLMRT_API_KEY"},
    {"--ssl-certfile --ssl-cert-file", "--tls-cert", ""},
    {"--ssl-keyfile --ssl-key-file", "--tls-key", ""},
    {"--uds", "--unix-socket", ""},
    {"-md --model-draft --speculative-model", "--draft-model", ""},
    {"--lora --mmproj --grammar --embedding --embeddings", "", "llmrt does not have this yet"},
};

template <typename Table>
const auto* find_foreign(const Table& table, std::string_view name) {
  const auto found = std::ranges::find_if(table, [&](const auto& entry) {
    const std::string padded = fmt::format(" {} ", entry.names);
    return !name.empty() && padded.find(fmt::format(" {} ", name)) != std::string::npos;
  });
  return found == std::end(table) ? nullptr : &*found;
}

// Typing errors between the two: a letter more, less, another one, or two exchanged.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1), above, two_above;
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    two_above = std::exchange(above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], two_above[j - 2] + 1);
    }
  }
  return row.back();
}

std::vector<CLI::App*> commands_of(CLI::App& app) {
  return app.get_subcommands([](CLI::App*) { return true; });
}

std::vector<std::string> long_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string sentence(const std::string& what, const std::string& hint, const std::string& where_to_look) {
  const char* end = hint.ends_with('?') ? " " : "; ";
  return fmt::format("{}{}{}{}{}", what, hint.empty() ? "" : ": ", hint, end, where_to_look);
}

[[noreturn]] void refuse_command(CLI::App& app, const std::string& where, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
  const bool is_first = app.get_parent() == nullptr;
  std::string hint;
  std::error_code ignored;
  if (const ForeignCommand* foreign = is_first ? find_foreign(kForeignCommands, word) : nullptr)
    hint = foreign->text;
  else if (const std::string name = nearest(word, names); !name.empty())
    hint = fmt::format("did you mean {} {}?", where, name);
  else if (is_first &&
           (word.ends_with(".gguf") || word.starts_with("synthetic:") || std::filesystem::exists(word, ignored)))
    hint = fmt::format("a command comes first, as in llmrt chat {}", word);
  else
    hint = fmt::format("expected {}", fmt::join(names, ", "));
  fail(kUsage, sentence("unknown command: " + word, hint, where + " --help explains"));
}

[[noreturn]] void refuse_option(CLI::App& app, const CLI::App& command, const std::string& where,
                                const std::string& name) {
  std::string hint;
  const ForeignOption* foreign = find_foreign(kForeignOptions, name);
  const std::string ours(foreign ? foreign->ours : std::string_view(name));
  const auto others = commands_of(app);
  const auto other = std::ranges::find_if(others, [&](const CLI::App* candidate) {
    return !ours.empty() && candidate->get_option_no_throw(ours) != nullptr;
  });
  if (foreign && ours.empty())
    hint = foreign->text;
  else if (foreign && command.get_option_no_throw(ours))
    hint = fmt::format("llmrt calls it {}", ours);
  else if (const std::string near = foreign ? "" : nearest(name, long_names(command)); !near.empty())
    hint = fmt::format("did you mean {}?", near);
  else if (other != others.end() && command.get_parent() == nullptr)
    hint = fmt::format("a command comes first, as in llmrt {} {}",
                       app.get_subcommand("chat")->get_option_no_throw(ours) ? "chat" : (*other)->get_name(), ours);
  else if (other != others.end())
    hint = fmt::format("llmrt {} has {}", (*other)->get_name(), ours);
  fail(kUsage, sentence("unknown option: " + name, hint, where + " --help lists the options"));
}

bool takes_value(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  constexpr size_t kWordMax = 64;
  if (word.size() > kWordMax) return {};
  const size_t num_letters = word.size() - std::min(word.find_first_not_of('-'), word.size());
  size_t least = num_letters < 4 ? 2 : num_letters < 9 ? 3 : 4;  // what is no typing error any more
  std::string best;
  std::vector<std::string> longer;
  for (const std::string& name : known) {
    if (num_letters >= 3 && name.starts_with(word)) longer.push_back(name);
    if (const size_t typos = distance(word, name); typos < least) least = typos, best = name;
  }
  return best.empty() && longer.size() == 1 ? longer.front() : best;
}

std::vector<std::string> understood(CLI::App& app, std::vector<std::string> arguments) {
  CLI::App* command = &app;
  std::string where = "llmrt";
  const auto command_named = [&](const std::string& name) {
    const auto commands = commands_of(*command);
    const auto found = std::ranges::find(commands, name, [](const CLI::App* each) { return each->get_name(); });
    return found == commands.end() ? nullptr : *found;
  };
  if (!arguments.empty() && arguments[0] == "version") arguments[0] = "--version";
  if (!arguments.empty() && arguments[0] == "help") {
    arguments.erase(arguments.begin());
    arguments.emplace_back("--help");
  }
  std::vector<std::string> model, others;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      others.insert(others.end(), arguments.begin() + static_cast<ptrdiff_t>(i), arguments.end());
      break;
    }
    const bool is_long = argument.starts_with("--");
    const bool is_short =
        !is_long && argument.size() > 1 && argument[0] == '-' && !(argument[1] >= '0' && argument[1] <= '9');
    if (!is_long && !is_short) {
      if (CLI::App* next = command_named(argument)) {
        command = next;
        where += " " + argument;
      } else if (!commands_of(*command).empty()) {
        refuse_command(*command, where, argument);
      }
      others.push_back(argument);
      continue;
    }
    const std::string name = argument.substr(0, is_long ? argument.find('=') : 2);
    const CLI::Option* option = command->get_option_no_throw(name);
    const bool is_foreign = is_short && argument.size() > 2 && find_foreign(kForeignOptions, argument);
    if (!option || is_foreign) refuse_option(app, *command, where, is_short && argument.size() > 2 ? argument : name);
    const bool has_value = takes_value(*option) && argument == name && i + 1 < arguments.size();
    std::vector<std::string>& list = option->get_positional() && command != &app ? model : others;
    list.push_back(argument);
    if (has_value) list.push_back(arguments[++i]);
  }
  if (!model.empty()) others.insert(others.begin() + (others.empty() ? 0 : 1), model.begin(), model.end());
  return others;
}

std::string plain_error(const CLI::App& app, const CLI::ParseError& error) {
  const auto commands = app.get_subcommands();
  const CLI::App& command = commands.empty() ? app : *commands.front();
  const std::string text = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error)) {
    const std::vector<std::string> extra = app.remaining(/*recurse=*/true);
    return fmt::format("unexpected argument: {}", extra.empty() ? "nothing" : extra.front());
  }
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    const std::string type = option->get_type_name().substr(0, option->get_type_name().find(':'));
    if (dynamic_cast<const CLI::RequiredError*>(&error) && text == name + " is required")
      return fmt::format("{}: expected {}, found nothing", type, option->get_description());
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) && text.find(name + ":") != std::string::npos)
      return fmt::format("{}: expected {}, found {}", name, type,
                         option->results().empty() ? "nothing" : "it more than once");
    if (dynamic_cast<const CLI::ConversionError*>(&error) && text.starts_with("Could not convert: " + name + " = "))
      return fmt::format("{}: expected {}, found {}", name, type, fmt::join(option->results(), " "));
    if (dynamic_cast<const CLI::ExcludesError*>(&error) && text.starts_with(name + " excludes "))
      return fmt::format("expected {} or {}, found both", name, text.substr(name.size() + 10));
    if (dynamic_cast<const CLI::RequiresError*>(&error) && text.starts_with(name + " requires "))
      return fmt::format("{}: expected {} with it, found nothing", name, text.substr(name.size() + 10));
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error)) {  // a command of it
    std::vector<std::string> names;
    for (const CLI::App* each : command.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(each->get_name());
    if (!names.empty()) return fmt::format("expected a command ({}), found nothing", fmt::join(names, ", "));
  }
  return text;
}

std::string command_of(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? "llmrt" : "llmrt " + commands.front()->get_name();
}

}  // namespace llmrt::cli
