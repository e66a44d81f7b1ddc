// How JSON is written: each character of a string in its shortest form (quote, backslash, \b \f \n \r \t, other control
// characters as \u00xx in lower case; everything else as it is), numbers without an exponent. So a value other than a
// number has one spelling (but for the order of keys and white space), and a language of decoded characters has one
// language of texts. Pure functions.
#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/grammar/regex_pool.h"

namespace llmrt {

// The escape of a byte, or empty where it is written as it is.
std::string_view json_escape(uint8_t byte);

// A string's text with its quotes; `decoded` is UTF-8.
std::string json_string_text(std::string_view decoded);

// The texts, with quotes, of the strings whose decoded characters are in `decoded`.
RegexId json_string_regex(RegexPool* pool, RegexId decoded);

// A number in plain decimals without needless zeros ("-12.5"; minus zero is "0"). Nothing where the value was read from
// a text that a double cannot hold: 16 digits or more, beyond 2^53.
std::optional<std::string> json_number_text(const boost::json::value& number);

}  // namespace llmrt
