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
  // A class of names that is not known to be empty.
  bool may_hold(RegexId names) const { return !has_no_text(names); }

  // Errors: what is refused, without a place: the caller knows it.
  Result<Shape> both(const Shape& a, const Shape& b);
  Result<Shape> either(Shape a, const Shape& b);
  Result<Shape> complement(const Shape& shape, const SchemaPlace& from);
  bool are_disjoint(const Shape& a, const Shape& b);

  // Nothing where no array, no object is in both.
  std::optional<ArrayShape> both(const ArrayShape& a, const ArrayShape& b);
  Result<std::optional<ObjectShape>> both(const ObjectShape& a, const ObjectShape& b);
  // The value that the shape asks for under a name.
  ValueId value_of(const ObjectShape& object, std::string_view name) const;
  // Classes of equal values become one; empty ones go.
  Status tidy(std::vector<ObjectShape::Class>* classes);
  bool is_empty(const ArrayShape& array) const;
  bool is_empty(const ObjectShape& object) const;

 private:
  Result<std::vector<ArrayShape>> complement(const ArrayShape& array, const SchemaPlace& from);
  Result<std::vector<ObjectShape>> complement(const ObjectShape& object, const SchemaPlace& from);
  bool are_disjoint(const ArrayShape& a, const ArrayShape& b);
  bool are_disjoint(const ObjectShape& a, const ObjectShape& b);
  template <typename Alternative>
  Status add(std::vector<Alternative>* alternatives, Alternative alternative);

  static constexpr uint32_t kFuel = 300;  // states that a test for emptiness looks at
  static constexpr uint32_t kClassesMax = 64;

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
