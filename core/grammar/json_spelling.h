// How JSON is written: each character of a string in its shortest form (quote, backslash, \b \f \n \r \t, other control
// characters as \u00xx in lower case; everything else as it is), numbers without an exponent. So a value other than a
// number has one spelling, but for the order of keys and white space. Pure functions.
#pragma once

#include <array>
#include <boost/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace llmrt {

// How each byte of a string is written.
const std::array<std::string, 256>& json_spellings();

// A string's text with its quotes; `decoded` is UTF-8.
std::string json_string_text(std::string_view decoded);

// A number in plain decimals without needless zeros ("-12.5"; minus zero is "0"). Nothing where the value was read from
// a text that a double cannot hold: 16 digits or more, beyond 2^53.
std::optional<std::string> json_number_text(const boost::json::value& number);

}  // namespace llmrt
