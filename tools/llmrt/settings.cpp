#include "tools/llmrt/settings.h"

#include <boost/json.hpp>

#include <algorithm>
#include <cctype>
#include <optional>

#include "core/weights/metadata.h"
#include "tools/llmrt/hints.h"
#include "tools/llmrt/program.h"
#include "tools/llmrt/screen_text.h"
#include "tools/llmrt/toml_text.h"
#include "tools/number_range.h"

namespace llmrt::cli {
namespace {

namespace json = boost::json;
constexpr std::string_view kNoSettings[] = {"help", "help-all", "config", "print-config", "version"};
constexpr const char* kHidden = "(set)";

std::string key_of(const CLI::Option& option) {
  return option.get_lnames().empty() ? "" : option.get_lnames().front();
}

std::vector<const CLI::Option*> settings_of(const CLI::App& command) {
  return command.get_options([](const CLI::Option* option) {
    const std::string key = key_of(*option);
    return !key.empty() && std::ranges::count(kNoSettings, key) == 0;
  });
}

// "server" of the group "Server"; empty: in none.
std::string table_of(const CLI::Option& option) {
  std::string group = option.get_group();
  if (group == "Options") return "";
  group.resize(std::min(group.find_first_of(", "), group.size()));
  std::ranges::transform(group, group.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return group;
}

std::vector<std::string> tables_of(const CLI::App& command) {
  std::vector<std::string> tables = {""};  // what is in none comes first, as TOML wants it
  for (const CLI::Option* option : settings_of(command))
    if (std::ranges::count(tables, table_of(*option)) == 0) tables.push_back(table_of(*option));
  return tables;
}

bool is_flag(const CLI::Option& option) {
  return option.get_type_size() == 0 || option.get_items_expected_max() == 0;
}
bool is_list(const CLI::Option& option) {
  return !is_flag(option) &&
         (option.get_items_expected_max() > 1 || option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll);
}
// A secret itself, not a file that holds one.
bool is_secret(const CLI::Option& option) {
  return key_of(option).find("key") != std::string::npos && !option.get_type_name().starts_with("FILE");
}

struct Setting {
  std::string key;
  bool is_given = false, is_flag = false, is_list = false, is_secret = false;
  std::vector<std::string> values;  // given, or by default; none: no default
  std::string type;                 // "N"
};
Setting setting_of(const CLI::Option& option) {
  Setting setting;
  setting.key = key_of(option);
  setting.is_given = option.count() > 0;
  setting.type = option.get_type_name().substr(0, option.get_type_name().find(':'));
  setting.is_flag = is_flag(option);
  setting.is_list = is_list(option);
  setting.is_secret = is_secret(option);
  if (setting.is_given && setting.is_secret)
    setting.values = {kHidden};
  else if (setting.is_given)
    setting.values = option.results();
  else if (setting.is_flag)
    setting.values = {"false"};
  else if (const std::string text = option.get_default_str(); !text.empty())
    setting.values = {text};
  return setting;
}

bool is_number(const std::string& text) {
  double number = 0;
  const bool has_digit = text.find_first_of("0123456789") != std::string::npos;
  return has_digit && !text.starts_with('+') && text.find_first_of("xXpP") == std::string::npos &&
         read_number(text, &number);
}

std::string toml_value(const Setting& setting) {
  const auto one = [&](const std::string& text) {
    return setting.is_flag ? text : is_number(text) ? text : toml_string(text);
  };
  if (!setting.is_list && setting.values.empty()) return setting.type;  // in a comment
  if (!setting.is_list) return one(setting.values.front());
  std::vector<std::string> values;
  for (const std::string& value : setting.values) values.push_back(toml_string(value));
  return fmt::format("[{}]", fmt::join(values, ", "));
}

json::value json_value(const Setting& setting) {
  const auto one = [&](const std::string& text) -> json::value {
    if (setting.is_flag) return text == "true";
    int64_t whole = 0;
    double number = 0;
    if (read_number(text, &whole)) return whole;
    if (is_number(text) && read_number(text, &number)) return number;
    return json::value(text);
  };
  if (setting.values.empty()) return nullptr;
  if (!setting.is_list) return one(setting.values.front());
  return json::array(setting.values.begin(), setting.values.end());
}

[[noreturn]] void refuse(const std::string& path, size_t line, const std::string& problem) {
  fail(kUsage, fmt::format("{}:{}: {}", path, line, problem));
}

CLI::Option* option_of(CLI::App& command, const std::string& path, const TomlEntry& entry) {
  const std::vector<std::string> tables = tables_of(command);
  for (const std::string& table : entry.table)
    if (table != command.get_name() && (table.empty() || std::ranges::count(tables, table) == 0))
      refuse(path, entry.line,
             fmt::format("[{}]: expected a table of {}, found another one", printable(table),
                         fmt::join(tables.begin() + 1, tables.end(), ", ")));
  std::vector<std::string> keys;
  for (const CLI::Option* option : settings_of(command)) {
    for (const std::string& name : option->get_lnames()) {
      if (name == entry.key) return command.get_option("--" + name);
      keys.push_back(name);
    }
  }
  const std::string near = nearest(entry.key, keys);
  refuse(path, entry.line,
         fmt::format("{}: there is no such setting{}", printable(entry.key),
                     near.empty() ? fmt::format("; llmrt {} --help lists them", command.get_name())
                                  : fmt::format(", did you mean {}?", near)));
}

void apply_entry(CLI::App& command, const std::string& path, const TomlEntry& entry) {
  CLI::Option* option = option_of(command, path, entry);
  if (option->count() > 0) return;  // the command line says else
  const std::string& key = entry.key;
  if (entry.is_array && !is_list(*option))
    refuse(path, entry.line, fmt::format("{}: expected one value, found an array", key));
  const bool is_bool = !entry.values.empty() && entry.values.front().kind == TomlValue::Kind::kBool;
  if (is_flag(*option) != is_bool)
    refuse(path, entry.line,
           fmt::format("{}: expected {}, found {}", key, is_flag(*option) ? "true or false" : "a value",
                       is_bool ? "true or false" : "another value"));
  if (is_bool && entry.values.front().text == "false") return;
  std::vector<std::string> values;
  for (const TomlValue& value : entry.values) values.push_back(value.text);
  if (values.empty()) return;
  try {
    option->add_result(values);
    option->run_callback();
  } catch (const CLI::ParseError& error) {
    std::string text = plain_error(command, error);
    if (const std::string name = "--" + key + ": "; text.starts_with(name)) text.erase(0, name.size());
    refuse(path, entry.line, fmt::format("{}: {}", key, text));
  }
  for (const CLI::Option* other : option->get_excludes())
    if (other->count() > 0)
      refuse(path, entry.line, fmt::format("{}: expected it or {}, found both", key, key_of(*other)));
}

}  // namespace

void add_settings_options(CLI::App& command, std::string* config_path, bool* prints) {
  command
      .add_option("--config", *config_path,
                  "read options from this TOML file, where the command line does not give them (--print-config writes "
                  "one)")
      ->type_name("FILE");
  command.add_flag("--print-config", *prints, "print all options in the form that --config reads, and end");
}

void apply_settings(CLI::App& command, const std::string& path) {
  if (path.empty()) return;
  const Result<std::vector<TomlEntry>> entries = parse_toml(read_text(path));
  if (!entries) fail(kUsage, fmt::format("{}: {}", path, entries.error().message));
  for (const TomlEntry& entry : *entries) apply_entry(command, path, entry);
  for (const TomlEntry& entry : *entries) {
    CLI::Option* option = option_of(command, path, entry);
    for (const CLI::Option* other : option->get_needs())
      if (option->count() > 0 && other->count() == 0)
        refuse(path, entry.line, fmt::format("{}: expected {} with it, found nothing", entry.key, key_of(*other)));
  }
}

std::string settings_toml(const CLI::App& command) {
  std::string out = fmt::format("# Settings of llmrt {}. Lines with a # are defaults.\n", command.get_name());
  for (const std::string& table : tables_of(command)) {
    if (!table.empty()) out += fmt::format("\n[{}]\n", table);
    for (const CLI::Option* option : settings_of(command)) {
      if (table_of(*option) != table) continue;
      constexpr size_t kWidth = 100;
      const std::string text = wrapped(option->get_description(), kWidth, 0);
      out += "\n";
      for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        out += fmt::format("# {}\n", text.substr(at, end - at));
        at = end + 1;
      }
      const Setting setting = setting_of(*option);
      const bool is_shown = setting.is_given && !setting.is_secret;
      out += fmt::format("{}{} = {}\n", is_shown ? "" : "# ", setting.key, toml_value(setting));
    }
  }
  return out;
}

std::string settings_json(const CLI::App& command) {
  json::object out;
  for (const CLI::Option* option : settings_of(command)) {
    const Setting setting = setting_of(*option);
    const std::string table = table_of(*option);
    if (table.empty())
      out[setting.key] = json_value(setting);
    else
      out.emplace(table, json::object()).first->value().as_object()[setting.key] = json_value(setting);
  }
  return json::serialize(out);
}

std::vector<std::string> settings_lines(const CLI::App& command) {
  std::vector<std::string> lines;
  for (const std::string& table : tables_of(command)) {
    std::vector<std::string> texts;
    for (const CLI::Option* option : settings_of(command)) {
      const Setting setting = setting_of(*option);
      if (table_of(*option) != table || setting.values.empty()) continue;
      if (!(setting.is_flag && !setting.is_given))
        texts.push_back(fmt::format("{} {}{}", setting.key,
                                    printable(fmt::format("{}", fmt::join(setting.values, " "))),
                                    setting.is_given ? "*" : ""));
    }
    if (!texts.empty())
      lines.push_back(fmt::format("settings, {}: {}", table.empty() ? "models" : table, fmt::join(texts, ", ")));
  }
  return lines;
}

}  // namespace llmrt::cli
