// Sets of characters by name, as regular expressions use them. Pure; any thread.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace llmrt {

using CodePointRanges = std::vector<std::pair<char32_t, char32_t>>;

// d, w (ASCII) and s (ECMA-262's white space and line ends).
CodePointRanges named_class(char name);
// A general category of Unicode by its short or long name ("Lu", "Uppercase_Letter", "L", "Letter"), also behind
// "gc=" or "General_Category="; a script behind "sc=" or "Script=" ("Latn", "Latin"); "Any" and "ASCII"; nothing for
// other names.
std::optional<CodePointRanges> unicode_property(std::string_view name);

}  // namespace llmrt
