#include "tools/llmrt/help.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "tools/llmrt/program.h"
#include "tools/llmrt/screen_text.h"
#include "tools/number_range.h"

namespace llmrt::cli {
namespace {

constexpr size_t kTextColumn = 32;
constexpr std::string_view kRareGroup = "Engine, rarely needed";

// "  name   text", the text wrapped in its own column.
std::string two_columns(const std::string& name, const std::string& text, size_t width) {
  std::string out = "  " + name;
  if (text.empty()) return out + "\n";
  if (out.size() + 2 > kTextColumn)
    out += "\n" + std::string(kTextColumn, ' ');
  else
    out.resize(kTextColumn, ' ');
  return out + wrapped(text, width, kTextColumn) + "\n";
}

// Without the ranges that validators add.
std::string type_of(const CLI::Option* option) {
  const std::string type = option->get_type_size() != 0 ? option->get_type_name() : "";
  return type.substr(0, type.find(':'));
}

std::string range_of(const CLI::Option* option) {
  const std::string type = option->get_type_name();
  const size_t colon = type.find(':');
  return option->get_type_size() != 0 && colon != std::string::npos ? type.substr(colon + 1) : "";
}

std::vector<const CLI::App*> commands_of(const CLI::App* app) {
  std::vector<const CLI::App*> commands = app->get_subcommands([](const CLI::App*) { return true; });
  std::erase_if(commands, [](const CLI::App* command) { return command->get_name().empty(); });
  return commands;
}

}  // namespace

size_t help_width() {
  size_t width = 0;
  const char* columns = std::getenv("COLUMNS");
  if (!columns || !read_number(columns, &width) || width == 0) width = terminal_width(STDOUT_FILENO, 100);
  return std::clamp<size_t>(width, 40, 120);
}

std::string help_paragraphs(std::string_view text, size_t width) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = std::min(text.find('\n', pos), text.size());
    const std::string_view line = text.substr(pos, end - pos);
    out += line.starts_with(' ') ? std::string(line) : wrapped(line, width, 0);
    out += '\n';
    pos = end + 1;
  }
  return out;
}

std::string HelpFormatter::option_text(const CLI::Option* option, size_t width) const {
  std::string name;
  if (option->nonpositional())
    for (const char letter : option->get_name(false, true))
      name += letter == ',' ? std::string(", ") : std::string(1, letter);
  const std::string type = type_of(option);
  if (option->get_positional())
    name = name.empty() ? type : fmt::format("{} (or {} {})", type, name, type);
  else if (!type.empty())
    name += " " + type;
  std::vector<std::string> remarks;
  if (const std::string range = range_of(option); !range.empty()) remarks.push_back(range);
  if (const std::string text = option->get_default_str(); !text.empty() && option->get_type_size() != 0)
    remarks.push_back("default " + text);
  std::vector<std::string> others;
  for (const CLI::Option* other : option->get_excludes()) others.push_back(other->get_name());
  if (!others.empty() && others.size() <= 3 && option->get_group() == "Options")
    remarks.push_back(fmt::format("not with {}", fmt::join(others, " or ")));
  std::string text = option->get_description();
  if (!remarks.empty()) text += fmt::format("{}({})", text.empty() ? "" : " ", fmt::join(remarks, "; "));
  return two_columns(name, text, width);
}

std::string HelpFormatter::make_usage(const CLI::App* app, std::string name) const {
  std::string usage = "Usage: " + (name.empty() ? app->get_display_name() : name) + " [OPTIONS]";
  for (const CLI::Option* option : app->get_options([](const CLI::Option* o) { return o->get_positional(); }))
    usage += option->get_required() ? " " + type_of(option) : " [" + type_of(option) + "]";
  if (!commands_of(app).empty()) usage += " COMMAND";
  return usage;
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  const size_t width = help_width();
  const bool shows_all = mode != CLI::AppFormatMode::Normal;
  if (name.empty()) name = app->get_name();
  std::string out =
      help_paragraphs(app->get_description(), width) + "\n" + wrapped(make_usage(app, name), width, 0) + "\n";
  const auto arguments = app->get_options([](const CLI::Option* o) { return o->get_positional(); });
  if (!arguments.empty()) out += "\nArguments:\n";
  for (const CLI::Option* option : arguments) out += option_text(option, width);

  size_t num_hidden = 0;
  for (const std::string& group : app->get_groups()) {
    std::string lines;
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_group() != group || option->get_positional() || group.empty()) continue;
      if (option == app->get_help_all_ptr()) continue;
      const bool is_hidden = group == kRareGroup && !shows_all;
      num_hidden += is_hidden;
      if (!is_hidden) lines += option_text(option, width);
    }
    if (!lines.empty()) out += "\n" + group + ":\n" + lines;
  }
  const auto commands = commands_of(app);
  if (!commands.empty() && !shows_all) out += "\nCommands:\n";
  for (const CLI::App* command : commands)
    out += shows_all ? "\n\n" + make_help(command, name + " " + command->get_name(), mode)
                     : two_columns(command->get_name(), command->get_description(), width);
  if (num_hidden > 0)
    out += "\n" +
           wrapped(fmt::format("{} --help-all shows {} more options of the engine.", name, num_hidden), width, 0) +
           "\n";
  if (const std::string footer = app->get_footer(); !footer.empty()) out += "\n" + help_paragraphs(footer, width);
  return out;
}

void move_rare_options(CLI::App& command) {
  for (CLI::Option* option : command.get_options([](const CLI::Option* o) { return o->get_group() == "Engine"; })) {
    const std::string name = option->get_name();
    const bool is_common = name == "--device" || name == "--context" || name == "--kv-dtype";
    option->group(is_common ? "Engine" : std::string(kRareGroup));
  }
}

}  // namespace llmrt::cli
