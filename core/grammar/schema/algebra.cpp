#include "core/grammar/schema/algebra.h"

#include <algorithm>
#include <type_traits>

#include "core/grammar/numbers.h"

namespace llmrt {
namespace {

const ObjectShape kAnyObject{
    .properties = {}, .classes = {{.names = RegexPool::kNothing, .value = ValueTable::kAny, .is_evaluated = false}}};

}  // namespace

Error refuse_shape(std::string_view reason) {
  return Error{ErrorCode::kUnsupportedSchema, std::string(reason)};
}

bool ArrayShape::is_any() const {
  return std::ranges::all_of(prefix, [](ValueId v) { return v == ValueTable::kAny; }) && rest == ValueTable::kAny &&
         min == 0 && max == kNoBound && contains.empty() && unique == 0;
}

ShapeAlgebra::ShapeAlgebra(RegexPool* pool, ValueTable* values, SchemaWork* work, const SchemaLimits& limits,
                           IsEmpty is_empty)
    : pool_(*pool), values_(*values), work_(*work), limits_(limits), is_empty_(std::move(is_empty)) {
  any_.literals = Shape::kLiterals;
  const RegexId numbers = llmrt::all_numbers(&pool_);
  any_.numbers = {numbers, numbers};
  any_.strings = pool_.star(pool_.any_code_point());
  any_.arrays = {ArrayShape{}};
  any_.objects = {kAnyObject};
  any_.objects[0].classes[0].names = any_.strings;
}

bool ShapeAlgebra::has_no_text(RegexId regex) const {
  return regex == RegexPool::kNothing || pool_.has_text(regex, kFuel) == RegexPool::Answer::kNo;
}

bool ShapeAlgebra::is_empty(const ArrayShape& array) const {
  if (array.min > array.max) return true;
  for (size_t i = 0; i < array.prefix.size() && i < array.min; ++i) {
    if (is_empty_(array.prefix[i])) return true;
  }
  if (array.min > array.prefix.size() && is_empty_(array.rest)) return true;
  return std::ranges::any_of(array.contains, [&](const auto& c) {
    return c.min > c.max || c.min > array.max || (c.min > 0 && is_empty_(c.value));
  });
}

Result<std::optional<ArrayShape>> ShapeAlgebra::both(const ArrayShape& a, const ArrayShape& b) {
  ArrayShape out;
  for (size_t i = 0; i < std::max(a.prefix.size(), b.prefix.size()); ++i) {
    out.prefix.push_back(values_.both(a.item(i), b.item(i)));
  }
  out.rest = values_.both(a.rest, b.rest);
  out.min = std::max(a.min, b.min);
  out.max = std::min(a.max, b.max);
  out.contains = a.contains;
  for (const auto& contains : b.contains) {
    if (std::ranges::find(out.contains, contains) == out.contains.end()) out.contains.push_back(contains);
  }
  out.unique = a.unique != 0 ? a.unique : b.unique;
  out.size_place = a.size_place != 0 ? a.size_place : b.size_place;
  out.num_evaluated = std::max(a.num_evaluated, b.num_evaluated);
  out.all_evaluated = a.all_evaluated || b.all_evaluated;
  out.evaluated = a.evaluated;
  out.evaluated.insert(out.evaluated.end(), b.evaluated.begin(), b.evaluated.end());
  if (out.min > out.max) return std::optional<ArrayShape>();
  return std::optional(std::move(out));
}

template <typename Alternative>
Status ShapeAlgebra::add_widest(std::vector<Alternative>* alternatives, Alternative alternative) {
  if (Status status = work_.spend(1 + alternatives->size()); !status) return status;
  if (std::ranges::any_of(*alternatives, [&](const auto& each) { return is_within(alternative, each); })) return {};
  std::erase_if(*alternatives, [&](const auto& each) { return is_within(each, alternative); });
  return add(alternatives, std::move(alternative));
}

template <typename Alternative>
Status ShapeAlgebra::add(std::vector<Alternative>* alternatives, Alternative alternative) {
  if (std::ranges::find(*alternatives, alternative) != alternatives->end()) return {};
  if (alternatives->size() >= limits_.alternatives_max) {
    return refuse_shape(fmt::format("more than {} alternatives", limits_.alternatives_max));
  }
  alternatives->push_back(std::move(alternative));
  return work_.spend(1);
}

Result<Shape> ShapeAlgebra::both(const Shape& a, const Shape& b) {
  if (a == any_) return b;
  if (b == any_) return a;
  Shape out;
  out.literals = a.literals & b.literals;
  const auto meet = [&](RegexId x, RegexId y, RegexId all) { return x == all ? y : y == all ? x : pool_.both(x, y); };
  out.numbers = {meet(a.numbers.values, b.numbers.values, any_.numbers.values),
                 meet(a.numbers.texts, b.numbers.texts, any_.numbers.values)};
  out.strings = meet(a.strings, b.strings, any_.strings);
  out.strings_are_partial = (a.strings_are_partial && b.strings != RegexPool::kNothing) ||
                            (b.strings_are_partial && a.strings != RegexPool::kNothing);
  const bool is_array_union = a.arrays.size() + b.arrays.size() > 2;
  for (const auto& x : a.arrays) {
    for (const auto& y : b.arrays) {
      Result<std::optional<ArrayShape>> merged = both(x, y);
      if (!merged) return merged.error();
      if (!*merged || (is_array_union && is_empty(**merged))) continue;
      if (Status status = add(&out.arrays, **std::move(merged)); !status) return status.error();
    }
  }
  const bool is_object_union = a.objects.size() + b.objects.size() > 2;
  for (const auto& x : a.objects) {
    for (const auto& y : b.objects) {
      if (is_object_union && are_disjoint(x, y)) continue;
      Result<std::optional<ObjectShape>> merged = both(x, y);
      if (!merged) return merged.error();
      if (!*merged || (is_object_union && is_empty(**merged))) continue;
      if (Status status = add(&out.objects, **std::move(merged)); !status) return status.error();
    }
  }
  return out;
}

Result<Shape> ShapeAlgebra::either(Shape a, const Shape& b) {
  a.literals |= b.literals;
  a.numbers = {pool_.either(a.numbers.values, b.numbers.values), pool_.either(a.numbers.texts, b.numbers.texts)};
  a.strings = pool_.either(a.strings, b.strings);
  a.strings_are_partial |= b.strings_are_partial;
  for (const auto& array : b.arrays) {
    if (Status status = add(&a.arrays, array); !status) return status.error();
  }
  for (const auto& object : b.objects) {
    if (Status status = add(&a.objects, object); !status) return status.error();
  }
  return a;
}

// Each alternative without each of the others, one after the other: most pairs are disjoint.
template <typename Alternative>
Result<std::vector<Alternative>> ShapeAlgebra::take_away(std::vector<Alternative> from,
                                                         const std::vector<Alternative>& others,
                                                         const SchemaPlace& place) {
  for (const Alternative& other : others) {
    std::vector<Alternative> rest;
    for (Alternative& each : from) {
      if (Status status = work_.spend(1); !status) return status.error();
      if (are_disjoint(each, other)) {
        if (Status status = add_widest(&rest, std::move(each)); !status) return status.error();
        continue;
      }
      Alternative taken = other;
      if constexpr (std::is_same_v<Alternative, ArrayShape>) {
        if (each.unique != 0) taken.unique = 0;  // its items differ anyway
      }
      Result<std::vector<Alternative>> outside = complement(taken, place);
      if (!outside) return outside.error();
      for (const Alternative& part : *outside) {
        Result<std::optional<Alternative>> merged = both(each, part);
        if (!merged) return merged.error();
        if (!*merged || is_empty(**merged)) continue;
        if (Status status = add_widest(&rest, **std::move(merged)); !status) return status.error();
      }
    }
    from = std::move(rest);
  }
  return from;
}

Result<Shape> ShapeAlgebra::without(const Shape& shape, const Shape& other, const SchemaPlace& from) {
  Shape out;
  out.literals = shape.literals & ~other.literals;
  out.numbers = {pool_.except(shape.numbers.values, other.numbers.values),
                 pool_.except(shape.numbers.texts, other.numbers.values)};
  out.strings = pool_.except(shape.strings, other.strings);
  out.strings_are_partial = shape.strings_are_partial;
  if (other.strings_are_partial && may_hold_strings(shape)) {
    return refuse_shape("the complement of a format that is not written in full");
  }
  Result<std::vector<ArrayShape>> arrays = take_away(shape.arrays, other.arrays, from);
  if (!arrays) return arrays.error();
  out.arrays = *std::move(arrays);
  Result<std::vector<ObjectShape>> objects = take_away(shape.objects, other.objects, from);
  if (!objects) return objects.error();
  out.objects = *std::move(objects);
  return out;
}

Result<std::vector<ArrayShape>> ShapeAlgebra::complement(const ArrayShape& array, const SchemaPlace& from) {
  std::vector<ArrayShape> out;
  if (array.unique != 0) return refuse_shape("the complement of uniqueItems");
  if (array.min > 0) out.push_back({.max = array.min - 1});
  if (array.max != kNoBound) out.push_back({.min = array.max + 1});
  for (size_t i = 0; i < array.prefix.size(); ++i) {
    if (array.prefix[i] == ValueTable::kAny) continue;
    ArrayShape other{.prefix = std::vector<ValueId>(i, ValueTable::kAny), .min = static_cast<uint32_t>(i + 1)};
    other.prefix.push_back(values_.complement(array.prefix[i], from));
    out.push_back(std::move(other));
  }
  if (array.rest == ValueTable::kNone) {
    out.push_back({.min = static_cast<uint32_t>(array.prefix.size() + 1)});
  } else if (array.rest != ValueTable::kAny) {
    if (!array.prefix.empty()) return refuse_shape("the complement of items behind prefixItems");
    out.push_back({.contains = {{values_.complement(array.rest, from), 1, kNoBound, 0}}});
  }
  for (const auto& contains : array.contains) {
    if (contains.min > 0) out.push_back({.contains = {{contains.value, 0, contains.min - 1, contains.place}}});
    if (contains.max != kNoBound) {
      out.push_back({.contains = {{contains.value, contains.max + 1, kNoBound, contains.place}}});
    }
  }
  std::erase_if(out, [&](const ArrayShape& each) { return is_empty(each); });
  return out;
}

bool ShapeAlgebra::are_disjoint(const ArrayShape& a, const ArrayShape& b) {
  const Result<std::optional<ArrayShape>> merged = both(a, b);
  return merged.ok() && (!*merged || is_empty(**merged));
}

bool ShapeAlgebra::are_disjoint(const Shape& a, const Shape& b) {
  if ((a.literals & b.literals) != 0) return false;
  if (!has_no_text(pool_.both(a.numbers.values, b.numbers.values))) return false;
  if (!has_no_text(pool_.both(a.strings, b.strings))) return false;
  const bool is_partial = a.strings_are_partial || b.strings_are_partial;
  if (is_partial && may_hold_strings(a) && may_hold_strings(b)) return false;
  for (const auto& x : a.arrays) {
    for (const auto& y : b.arrays) {
      if (!are_disjoint(x, y)) return false;
    }
  }
  for (const auto& x : a.objects) {
    for (const auto& y : b.objects) {
      if (!are_disjoint(x, y)) return false;
    }
  }
  return true;
}

}  // namespace llmrt
