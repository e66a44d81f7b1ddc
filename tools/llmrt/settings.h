// The options of a command as settings: read from a TOML file, written as one, as JSON, and as lines of a log. Every
// option is a key by its long name, --port is `port`. Secrets are never shown.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace llmrt::cli {

// Adds --config and --print-config to a command whose other options are there; call behind them.
void add_settings_options(CLI::App& command, std::string* config_path, bool* prints);

// Sets what the file says and the command line does not; to be called when the command line is parsed. A file that
// cannot be read, a key that is none, or a value that its option refuses ends the program (kUsage), naming file and
// line.
void apply_settings(CLI::App& command, const std::string& path);

// A file with all options: those that are set as they are, the others as comments with their defaults. apply_settings
// reads it back to the same.
std::string settings_toml(const CLI::App& command);
// {"server": {"port": 8000, ...}, ...}: what is in effect, null where an option has no default.
std::string settings_json(const CLI::App& command);
// A line for each group: "server: host 127.0.0.1, port 8000, ...".
std::vector<std::string> settings_lines(const CLI::App& command);

}  // namespace llmrt::cli
