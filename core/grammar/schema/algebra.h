// And, or and not of shapes, exact or refused. Names of properties and scalars are languages, which are closed under
// all three; arrays and objects are unions of alternatives, and a conjunction of unions is the union of conjunctions.
#pragma once

#include <optional>

#include "core/base/status.h"
#include "core/grammar/json_schema.h"
#include "core/grammar/schema/shape.h"
#include "core/grammar/schema/work.h"

namespace llmrt {

class ShapeAlgebra {
 public:
  // Whether a set of values is known to be empty; it may say no for an empty one.
  using IsEmpty = std::function<bool(ValueId)>;
  ShapeAlgebra(RegexPool* pool, ValueTable* values, SchemaWork* work, const SchemaLimits& limits, IsEmpty is_empty);

  const Shape& any() const { return any_; }
  RegexId all_strings() const { return any_.strings; }
  RegexId all_numbers() const { return any_.numbers.values; }
  bool has_no_text(RegexId regex) const;
  bool may_hold_strings(const Shape& shape) const { return shape.strings_are_partial || !has_no_text(shape.strings); }
  // A class of names that is not known to be empty.
  bool may_hold(RegexId names) const { return !has_no_text(names); }

  // Errors: what is refused, without a place: the caller knows it.
  Result<Shape> both(const Shape& a, const Shape& b);
  Result<Shape> either(Shape a, const Shape& b);
  // Values of `shape` that are not in `other`.
  Result<Shape> without(const Shape& shape, const Shape& other, const SchemaPlace& from);
  Result<Shape> complement(const Shape& shape, const SchemaPlace& from) { return without(any_, shape, from); }
  bool are_disjoint(const Shape& a, const Shape& b);

  // Nothing where no array, no object is in both.
  Result<std::optional<ArrayShape>> both(const ArrayShape& a, const ArrayShape& b);
  Result<std::optional<ObjectShape>> both(const ObjectShape& a, const ObjectShape& b);
  // The value that the shape asks for under a name.
  ValueId value_of(const ObjectShape& object, std::string_view name) const;
  // Classes of equal values become one; empty ones go.
  Status tidy(std::vector<ObjectShape::Class>* classes);
  bool is_empty(const ArrayShape& array) const;
  bool is_empty(const ObjectShape& object) const;
  // Names of a class, or of `some`, that the object does not list.
  RegexId unlisted(const ObjectShape& object, RegexId names) const;

 private:
  Result<std::vector<ArrayShape>> complement(const ArrayShape& array, const SchemaPlace& from);
  Result<std::vector<ObjectShape>> complement(const ObjectShape& object, const SchemaPlace& from);
  // False where no object of the shape has such a property.
  bool may_have(const ObjectShape& object, const ObjectShape::Some& some) const;
  // `some` that one property alone can meet become what that property must be.
  void settle(ObjectShape* object) const;
  // Every object of `a` is one of `b`, and was looked at in the same way; false where that is not seen at once.
  bool is_within(const ObjectShape& a, const ObjectShape& b) const;
  bool is_within(const ArrayShape& a, const ArrayShape& b) const { return a == b; }
  // Adds it unless it is within another one; those within it go.
  template <typename Alternative>
  Status add_widest(std::vector<Alternative>* alternatives, Alternative alternative);
  template <typename Alternative>
  Result<std::vector<Alternative>> take_away(std::vector<Alternative> from, const std::vector<Alternative>& others,
                                             const SchemaPlace& place);
  bool are_disjoint(const ArrayShape& a, const ArrayShape& b);
  bool are_disjoint(const ObjectShape& a, const ObjectShape& b);
  template <typename Alternative>
  Status add(std::vector<Alternative>* alternatives, Alternative alternative);

  static constexpr uint32_t kFuel = 300;  // states that a test for emptiness looks at
  static constexpr uint32_t kClassesMax = 64;
  static constexpr size_t kSomeMax = 8;

  RegexPool& pool_;
  ValueTable& values_;
  SchemaWork& work_;
  const SchemaLimits& limits_;
  IsEmpty is_empty_;
  Shape any_;
};

// Refused, by a caller that knows where.
Error refuse_shape(std::string_view reason);

}  // namespace llmrt
