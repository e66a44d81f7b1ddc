// type, enum, const; lengths, patterns and formats of strings; bounds of numbers.
#include <algorithm>
#include <cmath>

#include "core/grammar/formats.h"
#include "core/grammar/json_spelling.h"
#include "core/grammar/numbers.h"
#include "core/grammar/regex_syntax.h"
#include "core/grammar/schema/numbers_in_schemas.h"
#include "core/grammar/schema/shape_reader.h"

namespace llmrt {
namespace {

using boost::json::value;
constexpr uint32_t kCountMax = INT32_MAX;  // lengths and counts beyond it are refused

}  // namespace

Result<Shape> ShapeReader::strings(RegexId regex) {
  Shape out = algebra_.any();
  out.strings = regex;
  return out;
}

Result<Shape> ShapeReader::numbers(RegexId regex) {
  Shape out = algebra_.any();
  out.numbers = {regex, regex};
  return out;
}

Result<Shape> ShapeReader::read_type(const Schema& schema) {
  const value& type = *schema.find("type");
  const auto add = [&](const value& name, Shape* out) -> Status {
    const auto* text = name.if_string();
    const Shape& any = algebra_.any();
    if (text == nullptr) return schema.invalid("type", "expected a type's name or a list of them");
    if (*text == "null") {
      out->literals |= Shape::kNull;
    } else if (*text == "boolean") {
      out->literals |= Shape::kTrue | Shape::kFalse;
    } else if (*text == "number") {
      out->numbers = any.numbers;
    } else if (*text == "integer") {
      if (out->numbers != any.numbers) out->numbers = integer_numbers(&pool_);
    } else if (*text == "string") {
      out->strings = any.strings;
    } else if (*text == "array") {
      out->arrays = any.arrays;
    } else if (*text == "object") {
      out->objects = any.objects;
    } else {
      return schema.invalid("type", "expected null, boolean, integer, number, string, array or object");
    }
    return {};
  };
  Shape out;
  if (const auto* list = type.if_array()) {
    if (list->empty()) return schema.invalid("type", "expected a type's name or a list of them");
    for (const value& name : *list) {
      if (Status status = add(name, &out); !status) return status.error();
    }
    return out;
  }
  if (Status status = add(type, &out); !status) return status.error();
  return out;
}

// One JSON value. Its parts are literals again, read when they are asked for.
Result<Shape> ShapeReader::literal(const SchemaPlace& place) {
  Shape out;
  const value& v = *place.value;
  if (v.is_null()) {
    out.literals = Shape::kNull;
  } else if (const bool* is_true = v.if_bool()) {
    out.literals = *is_true ? Shape::kTrue : Shape::kFalse;
  } else if (v.is_number()) {
    const std::optional<std::string> text = json_number_text(v);
    if (!text) return refuse_shape("a number of more digits than a double holds");
    out.numbers = one_number(&pool_, *text);
  } else if (const auto* text = v.if_string()) {
    out.strings = pool_.literal(*text);
  } else if (const auto* list = v.if_array()) {
    ArrayShape array{.rest = ValueTable::kNone};
    for (const value& item : *list) {
      array.prefix.push_back(values_.literal(document_.child(place, item, std::to_string(array.prefix.size()))));
    }
    array.min = array.max = static_cast<uint32_t>(list->size());
    if (Status status = work_.spend(list->size()); !status) return status.error();
    out.arrays.push_back(std::move(array));
  } else {
    ObjectShape object;
    object.classes.push_back({algebra_.all_strings(), ValueTable::kNone, false});
    for (const auto& member : v.get_object()) {
      const ValueId part = values_.literal(document_.child(place, member.value(), member.key()));
      object.properties.push_back({std::string(member.key()), part, true, false});
    }
    if (Status status = work_.spend(object.properties.size()); !status) return status.error();
    out.objects.push_back(std::move(object));
  }
  return out;
}

Result<Shape> ShapeReader::read_const(const Schema& schema) {
  return literal(document_.child(schema.place, *schema.find("const"), "const"));
}

Result<Shape> ShapeReader::read_enum(const Schema& schema) {
  const auto* list = schema.find("enum")->if_array();
  if (list == nullptr) return schema.invalid("enum", "expected a list of values");
  if (list->size() > options_.limits.enum_max) {
    return refuse_shape(fmt::format("expected at most {} values, found {}", options_.limits.enum_max, list->size()));
  }
  Shape out;
  std::vector<RegexId> texts, number_values, number_texts;
  for (size_t i = 0; i < list->size(); ++i) {
    Result<Shape> one = literal(document_.child(schema.place, (*list)[i], "enum", std::to_string(i)));
    if (!one) return one;
    out.literals |= one->literals;
    texts.push_back(one->strings);
    number_values.push_back(one->numbers.values);
    number_texts.push_back(one->numbers.texts);
    if (out.arrays.size() + out.objects.size() >= options_.limits.alternatives_max) {
      return refuse_shape(fmt::format("more than {} arrays and objects", options_.limits.alternatives_max));
    }
    for (auto& array : one->arrays) out.arrays.push_back(std::move(array));
    for (auto& object : one->objects) out.objects.push_back(std::move(object));
  }
  out.strings = pool_.either(texts);
  out.numbers = {pool_.either(number_values), pool_.either(number_texts)};
  return out;
}

// A count: 3 or 3.0.
Result<std::optional<uint32_t>> ShapeReader::count_at(const Schema& schema, std::string_view keyword) {
  const value* found = schema.find(keyword);
  if (found == nullptr) return std::optional<uint32_t>();
  double count = -1;
  if (found->is_number()) count = found->to_number<double>();
  if (!(count >= 0) || count != std::floor(count)) return schema.invalid(keyword, "expected a whole number from 0 on");
  if (count > kCountMax)
    return refuse_schema(schema.place.pointer, keyword, fmt::format("expected at most {}", kCountMax));
  return std::optional(static_cast<uint32_t>(count));
}

Result<Shape> ShapeReader::read_lengths(const Schema& schema) {
  Result<std::optional<uint32_t>> min = count_at(schema, "minLength"), max = count_at(schema, "maxLength");
  if (!min) return min.error();
  if (!max) return max.error();
  if (min->value_or(0) > max->value_or(kNoBound)) return strings(RegexPool::kNothing);
  return strings(pool_.repeat(pool_.any_code_point(), min->value_or(0), max->value_or(kNoBound)));
}

Result<Shape> ShapeReader::read_pattern(const Schema& schema) {
  const auto* pattern = schema.find("pattern")->if_string();
  if (pattern == nullptr) return schema.invalid("pattern", "expected a regular expression");
  Result<RegexId> regex = parse_regex(&pool_, *pattern, {.anchored = false});
  if (!regex) return refuse_schema(schema.place.pointer, "pattern", regex.error().message);
  return strings(*regex);
}

Result<Shape> ShapeReader::read_format(const Schema& schema) {
  const auto* name = schema.find("format")->if_string();
  if (name == nullptr) return schema.invalid("format", "expected a format's name");
  const FormatKind kind = format_kind(*name);
  if (kind == FormatKind::kUnknown) {  // an annotation, like a keyword that no draft knows
    note(schema.place.pointer, "format");
    return algebra_.any();
  }
  const std::optional<RegexId> regex = format_regex(&pool_, *name);
  if (!regex)
    return refuse_shape(fmt::format("a format that is not enforced: {}", std::string_view(*name).substr(0, 64)));
  Result<Shape> out = strings(*regex);
  out->strings_are_partial = kind == FormatKind::kPartial;
  return out;
}

// A number of the schema; nothing where the keyword is not there.
Result<std::optional<Decimal>> ShapeReader::number_at(const Schema& schema, std::string_view keyword) {
  const value* found = schema.find(keyword);
  if (found == nullptr) return std::optional<Decimal>();
  if (!found->is_number()) return schema.invalid(keyword, "expected a number");
  const std::optional<std::string> text = json_number_text(*found);
  std::optional<Decimal> number;
  if (text) number = Decimal::parse(*text);
  if (!number) return refuse_schema(schema.place.pointer, keyword, "a number of more digits than a double holds");
  return number;
}

Result<Shape> ShapeReader::read_bounds(const Schema& schema) {
  RegexId regex = algebra_.all_numbers();
  for (const bool is_lower : {true, false}) {
    const std::string_view inclusive = is_lower ? "minimum" : "maximum";
    const std::string_view exclusive = is_lower ? "exclusiveMinimum" : "exclusiveMaximum";
    bool bound_is_exclusive = false;
    const auto add = [&](const std::optional<Decimal>& bound, bool is_exclusive) {
      if (!bound) return;
      regex = pool_.both(regex, is_lower ? numbers_at_least(&pool_, *bound, is_exclusive)
                                         : numbers_at_most(&pool_, *bound, is_exclusive));
    };
    if (const value* found = schema.find(exclusive); found != nullptr && found->is_bool() && schema.is_old()) {
      if (schema.draft != Draft::k4) return refuse_schema(schema.place.pointer, exclusive, "a boolean, as in draft 4");
      bound_is_exclusive = found->get_bool();
    } else {
      Result<std::optional<Decimal>> bound = number_at(schema, exclusive);
      if (!bound) return bound.error();
      add(*bound, true);
    }
    Result<std::optional<Decimal>> bound = number_at(schema, inclusive);
    if (!bound) return bound.error();
    add(*bound, bound_is_exclusive);
  }
  return numbers(regex);
}

Result<Shape> ShapeReader::read_multiple(const Schema& schema) {
  Result<std::optional<Decimal>> divisor = number_at(schema, "multipleOf");
  if (!divisor) return divisor.error();
  if ((*divisor)->is_negative || (*divisor)->is_zero()) {
    return schema.invalid("multipleOf", "expected a number above 0");
  }
  Result<RegexId> regex = multiples_of(&pool_, **divisor);
  if (!regex) return refuse_schema(schema.place.pointer, "multipleOf", regex.error().message);
  return numbers(*regex);
}

}  // namespace llmrt
