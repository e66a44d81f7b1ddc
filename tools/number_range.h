// What an option of a command line may be. Errors say what was expected and what was found.
#pragma once

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace llmrt {

// Decimal, the whole text.
template <typename Number>
bool read_number(std::string_view text, Number* number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

template <typename Number>
CLI::Validator number_validator(Number least, Number most, const std::string& expected,
                                const std::string& description) {
  const auto check = [=](std::string& text) -> std::string {
    Number number = 0;
    const bool is_fine = read_number(text, &number) && number >= least && number <= most;  // nan lies in no range
    if (!is_fine) return fmt::format("expected {}, found {}", expected, text.empty() ? "nothing" : text);
    if constexpr (std::is_integral_v<Number>) text = fmt::to_string(number);  // 010 is ten for CLI11, too
    return {};
  };
  return CLI::Validator(check, description);
}

// A number from `least` to `most`.
template <typename Number>
CLI::Validator number_range(Number least, Number most) {
  std::string range;
  if constexpr (std::is_integral_v<Number>)
    range = fmt::format("{} to {}", least, most);
  else
    range = fmt::format("{:g} to {:g}", least, most);
  return number_validator(least, most, range, range);
}

// Any number that the type holds.
template <typename Number>
CLI::Validator any_number() {
  constexpr Number kLeast = std::numeric_limits<Number>::lowest(), kMost = std::numeric_limits<Number>::max();
  if constexpr (std::is_integral_v<Number>)
    return number_validator(kLeast, kMost, fmt::format("a whole number from {} to {}", kLeast, kMost), "");
  else
    return number_validator(kLeast, kMost, "a number", "");
}

// One of these texts. Its names belong into the option's description.
inline CLI::Validator one_of(std::vector<std::string> names) {
  const auto check = [names = std::move(names)](std::string& text) -> std::string {
    std::string list;
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == text) return {};
      list += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
    }
    return fmt::format("expected {}, found {}", list, text.empty() ? "nothing" : text);
  };
  return CLI::Validator(check, "");
}

}  // namespace llmrt
