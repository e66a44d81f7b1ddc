// Which JSON types the parameters of a tool may have, as far as a schema says so plainly; and text as a value of such a
// type. Formats that write values as bare text need it.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace llmrt {

struct ValueTypes {
  static constexpr uint8_t kString = 1, kInteger = 2, kNumber = 4, kBoolean = 8, kNull = 16, kObject = 32, kArray = 64;
  static constexpr uint8_t kAll = 127;
  uint8_t bits = kString;  // what a schema says nothing of is a string
  bool only_string() const { return bits == kString; }
  bool has(uint8_t type) const { return (bits & type) != 0; }
};

struct ToolTypes {
  std::string name;
  std::map<std::string, ValueTypes, std::less<>> parameters = {};
  bool has_parameters = false;  // false: any value is what its text says

  // A parameter that a schema does not name is a string.
  ValueTypes of(std::string_view parameter) const;
};

// `schema`: of the arguments object; null or anything but an object: no parameters are known. Local references are
// followed a few steps.
ToolTypes tool_types(std::string name, const boost::json::value& schema);

// `text` as compact JSON of one of the types. Where it fits none and a string is not one of them, it is a string all
// the same, and *is_odd is set.
std::string json_value_of(std::string_view text, ValueTypes types, bool* is_odd);

}  // namespace llmrt
