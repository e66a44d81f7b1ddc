// What somebody may have meant who typed what this program has not: a typing error, or a name that llama.cpp, vLLM or
// ollama has for it.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace llmrt::cli {

// The one of `known` that `word` most likely is a typing error of, or the only one that begins with it; empty: none.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

// The arguments as `app` can parse them: `help` and `version` are --help and --version, and -m comes first, so that the
// other arguments keep their places. Ends the program (kUsage) where a command or an option is unknown.
std::vector<std::string> understood(CLI::App& app, std::vector<std::string> arguments);

// The error in the words of the others: "--port: expected 0 to 65535, found 80x".
std::string plain_error(const CLI::App& app, const CLI::ParseError& error);

// "llmrt chat", or "llmrt" where no command was given.
std::string command_of(const CLI::App& app);

}  // namespace llmrt::cli
