// Values to text: str(), repr() and the tojson filter, as Python writes them.
#pragma once

#include <optional>
#include <string>

#include "core/jinja/value.h"

namespace llmrt::jinja {

// str(): strings keep the origin of their bytes. Numbers, true, false and none count as template text (digits make no
// special token, and templates number them: '<|image_' ~ n ~ '|>'); what is made of containers counts as data.
Text to_text(const Value& value, Meter& meter);
std::string repr(const Value& value, Meter& meter);
std::string format_double(double value);  // the shortest that reads back, as repr(float)

struct JsonOptions {
  std::optional<std::string> indent;  // of one level; nullopt: everything on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
};
std::string to_json(const Value& value, const JsonOptions& options, Meter& meter);

}  // namespace llmrt::jinja
