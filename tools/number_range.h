// What an option of a command line may be.
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <string>

namespace llmrt {

// As CLI::Range, for which nan lies in every range.
template <typename Number>
CLI::Validator number_range(Number least, Number most) {
  const CLI::Range range(least, most);
  CLI::Validator checked = range;
  checked.operation([range](std::string& text) {
    double number = 0;
    if (CLI::detail::lexical_cast(text, number) && std::isnan(number)) return "expected a number, found " + text;
    return range(text);
  });
  return checked;
}

}  // namespace llmrt
