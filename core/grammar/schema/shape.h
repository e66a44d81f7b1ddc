// What is in a set of JSON values, type by type: languages for scalars, alternatives for arrays and objects, whose
// parts are sets of values again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/grammar/regex_pool.h"
#include "core/grammar/schema/values.h"

namespace llmrt {

inline constexpr uint32_t kNoBound = RegexPool::kUnbounded;
using PlaceId = uint32_t;  // of a keyword, for messages: ShapeReader::place; 0: none

// Numbers as texts. `values` has every spelling of each of its numbers (2, 2.0, 2.00), so it stands for a set of
// numbers under and, or, not; `texts` has those that may be written, at least the shortest of each.
struct NumberSet {
  RegexId values = RegexPool::kNothing, texts = RegexPool::kNothing;
  bool operator==(const NumberSet&) const = default;
};

struct ArrayShape {
  struct Contains {
    ValueId value;
    uint32_t min, max;  // how many items are in it
    PlaceId place;
    bool operator==(const Contains&) const = default;
  };
  std::vector<ValueId> prefix = {};  // the first items
  ValueId rest = ValueTable::kAny;   // every other
  uint32_t min = 0, max = kNoBound;  // items
  std::vector<Contains> contains = {};
  PlaceId unique = 0;      // no two items are equal, says this place
  PlaceId size_place = 0;  // of min and max
  // Which items a keyword has looked at already, for unevaluatedItems.
  uint32_t num_evaluated = 0;
  bool all_evaluated = false;
  std::vector<ValueId> evaluated = {};  // items that are in one of these
  bool operator==(const ArrayShape&) const = default;

  ValueId item(size_t index) const { return index < prefix.size() ? prefix[index] : rest; }
  bool is_any() const;  // every array
};

struct ObjectShape {
  struct Property {
    std::string name;
    ValueId value;  // kNone: must not be there
    bool is_required;
    bool is_evaluated;  // for unevaluatedProperties
    bool operator==(const Property&) const = default;
  };
  // Names that are not listed, in disjoint classes that together are all names; a listed name may be in one, too.
  struct Class {
    RegexId names;  // decoded characters
    ValueId value;
    bool is_evaluated;
    bool operator==(const Class&) const = default;
  };
  // At least one property of such a name has such a value.
  struct Some {
    RegexId names;  // decoded characters
    ValueId value;
    bool operator==(const Some&) const = default;
  };
  std::vector<Property> properties;  // in the order in which they are written
  std::vector<Class> classes;
  uint32_t min = 0, max = kNoBound;  // properties
  PlaceId size_place = 0;
  std::vector<Some> some = {};
  bool operator==(const ObjectShape&) const = default;

  bool is_any() const;
};

struct Shape {
  static constexpr uint8_t kNull = 1, kTrue = 2, kFalse = 4, kLiterals = 7;
  uint8_t literals = 0;
  NumberSet numbers;
  RegexId strings = RegexPool::kNothing;  // decoded characters
  bool strings_are_partial = false;       // more strings may be in it, which are not written
  std::vector<ArrayShape> arrays;         // a union
  std::vector<ObjectShape> objects;       // a union
  bool operator==(const Shape&) const = default;
};

}  // namespace llmrt
