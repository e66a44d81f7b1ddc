// A JSON text from outside as a tree of its own strings: every text is hostile until it is read. Bounded in bytes,
// depth and values, so in memory; a name that occurs twice in an object is refused, not one of the two taken. Objects
// are lists in the text's order, so no name can be chosen to collide in a hash table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/status.h"

namespace llmrt {

struct JsonMember;

class JsonTree {
 public:
  using Items = std::vector<JsonTree>;
  using Members = std::vector<JsonMember>;

  std::variant<std::monostate, bool, int64_t, double, std::string, Items, Members> value;

  bool is_null() const { return std::holds_alternative<std::monostate>(value); }
  const bool* boolean() const { return std::get_if<bool>(&value); }
  const int64_t* integer() const { return std::get_if<int64_t>(&value); }
  const std::string* string() const { return std::get_if<std::string>(&value); }
  const Items* items() const { return std::get_if<Items>(&value); }
  const Members* members() const { return std::get_if<Members>(&value); }
  // An integer too.
  bool number(double* out) const;

  // The member of an object. Null for another value, for a name that is not there, and for a member that is null. Takes
  // linear time.
  const JsonTree* find(std::string_view name) const;
  // Short, for messages: "3", "\"text\"", "an object of 5 members".
  std::string describe() const;
};

struct JsonMember {
  std::string name;
  JsonTree value;
};

struct JsonBounds {
  size_t bytes = 4u << 20;
  size_t values = 1u << 18;
  size_t depth = 24;
  bool may_be_infinite = false;  // numbers: Infinity and NaN, as Python writes them
};

// `what` names the text in messages. Error: corrupt_file.
Result<JsonTree> parse_json_tree(std::string_view text, std::string_view what, const JsonBounds& bounds = {});

}  // namespace llmrt
