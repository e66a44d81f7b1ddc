// The program's help: wrapped at the terminal's width, rare options only under --help-all.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <string_view>

namespace llmrt::cli {

// The columns of the terminal, or COLUMNS; 100 without either; 40 to 120.
size_t help_width();

// Lines are paragraphs and wrapped, but for those that begin with a space.
std::string help_paragraphs(std::string_view text, size_t width);

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;

 private:
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string option_text(const CLI::Option* option, size_t width) const;
};

}  // namespace llmrt::cli
