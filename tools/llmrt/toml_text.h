// The part of TOML 1.0 that settings need: comments, tables, bare, quoted and dotted keys, strings, numbers, booleans,
// and arrays of those. Dates, inline tables, arrays of tables and multi-line strings are errors. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace llmrt::cli {

struct TomlValue {
  enum class Kind { kString, kNumber, kBool };
  Kind kind;
  std::string text;  // of numbers: decimal, without underscores
};

struct TomlEntry {
  std::vector<std::string> table;  // of the last head, and what is dotted in front of the key
  std::string key;
  std::vector<TomlValue> values;
  bool is_array = false;
  size_t line = 0;  // counts from 1
};

// In the order of the text; no key comes twice. invalid_argument with the line ("line 3: expected ...").
Result<std::vector<TomlEntry>> parse_toml(std::string_view text);
// A string as TOML writes it, in quotes.
std::string toml_string(std::string_view text);

}  // namespace llmrt::cli
