// Seeded JSON schemas as clients send them, each another one: records of 20 fields and more, and functions to call. And
// a rough look at whether a value fits a schema, for reports.
#pragma once

#include <boost/json.hpp>

#include <span>
#include <string>
#include <string_view>

#include "tools/llmrt_bench/serving/workload.h"

namespace llmrt::bench {

// The words that field names are made of.
std::span<const char* const> schema_words();

// An object of 20 to 27 fields, those of its inner objects counted too: strings with a bound of length (and in one of
// 16 schemas an optional one without, at the end), patterns, formats, enums, integers and numbers with ranges,
// booleans, nullable values, arrays and objects. Seven of eight fields are required, other keys are forbidden.
boost::json::object make_schema(Draws* draws);

// {"type": "function", "function": {name, description, parameters}} with 4 to 8 arguments.
boost::json::object make_tool(std::string_view name, Draws* draws);

// The type, the required keys, no forbidden keys, and the same inside of properties and items. Formats, patterns,
// enums, ranges and lengths are not looked at; nor is what nests deeper than 32.
bool fits_roughly(const boost::json::value& value, const boost::json::value& schema);

}  // namespace llmrt::bench
