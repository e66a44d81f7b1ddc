#include "core/grammar/schema/algebra.h"

#include <algorithm>
#include <unordered_map>

#include "core/grammar/numbers.h"

namespace llmrt {
namespace {

const ObjectShape kAnyObject{
    .properties = {}, .classes = {{.names = RegexPool::kNothing, .value = ValueTable::kAny, .is_evaluated = false}}};

uint32_t least(uint32_t a, uint32_t b) {
  return std::min(a, b);
}

std::unordered_map<std::string_view, const ObjectShape::Property*> by_name(const ObjectShape& object) {
  std::unordered_map<std::string_view, const ObjectShape::Property*> out;
  for (const auto& property : object.properties) out.emplace(property.name, &property);
  return out;
}

}  // namespace

Error refuse_shape(std::string_view reason) {
  return Error{ErrorCode::kUnsupportedSchema, std::string(reason)};
}

bool ArrayShape::is_any() const {
  return std::ranges::all_of(prefix, [](ValueId v) { return v == ValueTable::kAny; }) && rest == ValueTable::kAny &&
         min == 0 && max == kNoBound && contains.empty() && unique == 0;
}

bool ObjectShape::is_any() const {
  return std::ranges::all_of(properties, [](const auto& p) { return p.value == ValueTable::kAny && !p.is_required; }) &&
         std::ranges::all_of(classes, [](const auto& c) { return c.value == ValueTable::kAny; }) && min == 0 &&
         max == kNoBound;
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

bool ShapeAlgebra::is_empty(const ObjectShape& object) const {
  if (object.min > object.max) return true;
  uint32_t num_required = 0;
  for (const auto& property : object.properties) {
    if (!property.is_required) continue;
    ++num_required;
    if (is_empty_(property.value)) return true;
  }
  return num_required > object.max;
}

std::optional<ArrayShape> ShapeAlgebra::both(const ArrayShape& a, const ArrayShape& b) {
  ArrayShape out;
  for (size_t i = 0; i < std::max(a.prefix.size(), b.prefix.size()); ++i) {
    out.prefix.push_back(values_.both(a.item(i), b.item(i)));
  }
  out.rest = values_.both(a.rest, b.rest);
  out.min = std::max(a.min, b.min);
  out.max = least(a.max, b.max);
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
  if (out.min > out.max) return std::nullopt;
  return out;
}

ValueId ShapeAlgebra::value_of(const ObjectShape& object, std::string_view name) const {
  for (const auto& property : object.properties) {
    if (property.name == name) return property.value;
  }
  for (const auto& each : object.classes) {
    if (pool_.matches(each.names, name)) return each.value;
  }
  return ValueTable::kNone;
}

Status ShapeAlgebra::tidy(std::vector<ObjectShape::Class>* classes) {
  std::vector<ObjectShape::Class> out;
  for (const auto& each : *classes) {
    if (has_no_text(each.names)) continue;
    const auto same = std::ranges::find_if(
        out, [&](const auto& o) { return o.value == each.value && o.is_evaluated == each.is_evaluated; });
    if (same == out.end()) {
      out.push_back(each);
    } else {
      same->names = pool_.either(same->names, each.names);
    }
  }
  *classes = std::move(out);
  if (classes->size() > kClassesMax) return refuse_shape("the patterns overlap in too many ways");
  return work_.spend(classes->size());
}

Result<std::optional<ObjectShape>> ShapeAlgebra::both(const ObjectShape& a, const ObjectShape& b) {
  if (Status status = work_.spend(1 + a.properties.size() + b.properties.size()); !status) return status.error();
  ObjectShape out;
  out.min = std::max(a.min, b.min);
  out.max = least(a.max, b.max);
  out.size_place = a.size_place != 0 ? a.size_place : b.size_place;
  const auto class_of = [&](const ObjectShape& object, std::string_view name) -> const ObjectShape::Class* {
    const auto it = std::ranges::find_if(object.classes, [&](const auto& c) { return pool_.matches(c.names, name); });
    return it == object.classes.end() ? nullptr : &*it;
  };
  const auto merge = [&](const ObjectShape::Property& own, const ObjectShape::Property* other,
                         const ObjectShape& rest) {
    ObjectShape::Property merged = own;
    if (other != nullptr) {
      merged.is_required |= other->is_required;
      merged.is_evaluated |= other->is_evaluated;
      merged.value = values_.both(own.value, other->value);
    } else if (const auto* found = class_of(rest, own.name)) {
      merged.is_evaluated |= found->is_evaluated;
      merged.value = values_.both(own.value, found->value);
    } else {
      merged.value = ValueTable::kNone;
    }
    out.properties.push_back(std::move(merged));
  };
  const auto of_a = by_name(a), of_b = by_name(b);
  for (const auto& property : a.properties) {
    const auto it = of_b.find(property.name);
    merge(property, it == of_b.end() ? nullptr : it->second, b);
  }
  for (const auto& property : b.properties) {
    if (!of_a.contains(property.name)) merge(property, nullptr, a);
  }
  for (const auto& x : a.classes) {
    for (const auto& y : b.classes) {
      out.classes.push_back(
          {pool_.both(x.names, y.names), values_.both(x.value, y.value), x.is_evaluated || y.is_evaluated});
    }
  }
  if (out.properties.size() > limits_.properties_max) {
    return refuse_shape(fmt::format("more than {} properties in one object", limits_.properties_max));
  }
  if (Status status = tidy(&out.classes); !status) return status.error();
  if (out.min > out.max) return std::optional<ObjectShape>();
  return std::optional(std::move(out));
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
  const bool is_array_union = a.arrays.size() + b.arrays.size() > 2;
  for (const auto& x : a.arrays) {
    for (const auto& y : b.arrays) {
      std::optional<ArrayShape> merged = both(x, y);
      if (!merged || (is_array_union && is_empty(*merged))) continue;
      if (Status status = add(&out.arrays, *std::move(merged)); !status) return status.error();
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
  for (const auto& array : b.arrays) {
    if (Status status = add(&a.arrays, array); !status) return status.error();
  }
  for (const auto& object : b.objects) {
    if (Status status = add(&a.objects, object); !status) return status.error();
  }
  return a;
}

Result<Shape> ShapeAlgebra::complement(const Shape& shape, const SchemaPlace& from) {
  Shape out;
  out.literals = Shape::kLiterals & ~shape.literals;
  const RegexId numbers = pool_.except(any_.numbers.values, shape.numbers.values);
  out.numbers = {numbers, numbers};
  out.strings = pool_.except(any_.strings, shape.strings);
  out.arrays = any_.arrays;
  out.objects = any_.objects;
  if (std::ranges::any_of(shape.arrays, &ArrayShape::is_any)) out.arrays.clear();
  if (std::ranges::any_of(shape.objects, &ObjectShape::is_any)) out.objects.clear();
  for (size_t i = 0; i < shape.arrays.size() && !out.arrays.empty(); ++i) {
    Shape factor = any_;
    Result<std::vector<ArrayShape>> arrays = complement(shape.arrays[i], from);
    if (!arrays) return arrays.error();
    factor.arrays = *std::move(arrays);
    Result<Shape> merged = both(out, factor);
    if (!merged) return merged;
    out = *std::move(merged);
  }
  for (size_t i = 0; i < shape.objects.size() && !out.objects.empty(); ++i) {
    Shape factor = any_;
    Result<std::vector<ObjectShape>> objects = complement(shape.objects[i], from);
    if (!objects) return objects.error();
    factor.objects = *std::move(objects);
    Result<Shape> merged = both(out, factor);
    if (!merged) return merged;
    out = *std::move(merged);
  }
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

Result<std::vector<ObjectShape>> ShapeAlgebra::complement(const ObjectShape& object, const SchemaPlace& from) {
  std::vector<ObjectShape> out;
  const auto with = [&](const std::string& name, ValueId value, bool is_required) {
    ObjectShape other = any_.objects[0];
    other.properties.push_back({name, value, is_required, false});
    out.push_back(std::move(other));
  };
  for (const auto& each : object.classes) {
    if (each.value != ValueTable::kAny) return refuse_shape("the complement of a schema of names that are not listed");
  }
  for (const auto& property : object.properties) {
    if (property.is_required) with(property.name, ValueTable::kNone, false);
    if (property.value != ValueTable::kAny) with(property.name, values_.complement(property.value, from), true);
  }
  if (object.min > 0) {
    out.push_back(any_.objects[0]);
    out.back().max = object.min - 1;
    out.back().size_place = object.size_place;
  }
  if (object.max != kNoBound) {
    out.push_back(any_.objects[0]);
    out.back().min = object.max + 1;
    out.back().size_place = object.size_place;
  }
  return out;
}

bool ShapeAlgebra::are_disjoint(const ArrayShape& a, const ArrayShape& b) {
  const std::optional<ArrayShape> merged = both(a, b);
  return !merged || is_empty(*merged);
}

bool ShapeAlgebra::are_disjoint(const ObjectShape& a, const ObjectShape& b) {
  if (std::max(a.min, b.min) > least(a.max, b.max)) return true;
  const auto meet = [&](const ObjectShape& x, const ObjectShape& y) {
    return std::ranges::any_of(x.properties, [&](const auto& property) {
      return property.is_required && is_empty_(values_.both(property.value, value_of(y, property.name)));
    });
  };
  return meet(a, b) || meet(b, a);
}

bool ShapeAlgebra::are_disjoint(const Shape& a, const Shape& b) {
  if ((a.literals & b.literals) != 0) return false;
  if (!has_no_text(pool_.both(a.numbers.values, b.numbers.values))) return false;
  if (!has_no_text(pool_.both(a.strings, b.strings))) return false;
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
