// Properties, their names and their number.
#include <algorithm>

#include "core/grammar/regex_syntax.h"
#include "core/grammar/schema/shape_reader.h"

namespace llmrt {

using boost::json::value;

Result<Shape> ShapeReader::objects(ObjectShape object) {
  Shape out = algebra_.any();
  if (Status status = algebra_.tidy(&object.classes); !status) return status.error();
  out.objects.clear();
  if (object.min <= object.max) out.objects.push_back(std::move(object));
  return out;
}

Result<Shape> ShapeReader::read_properties(const Schema& schema) {
  ObjectShape object;
  if (const value* found = schema.find("properties")) {
    const auto* properties = found->if_object();
    if (properties == nullptr) return schema.invalid("properties", "expected an object of schemas");
    if (properties->size() > options_.limits.properties_max) {
      return refuse_schema(
          schema.place.pointer, "properties",
          fmt::format("expected at most {}, found {}", options_.limits.properties_max, properties->size()));
    }
    for (const auto& member : *properties) {
      Result<ValueId> read = value_at(schema, member.value(), "properties", member.key());
      if (!read) return read.error();
      object.properties.push_back({std::string(member.key()), *read, false, true});
    }
  }
  // Classes whose names match no pattern so far are not evaluated.
  object.classes.push_back({algebra_.all_strings(), ValueTable::kAny, false});
  if (const value* found = schema.find("patternProperties")) {
    const auto* patterns = found->if_object();
    if (patterns == nullptr) return schema.invalid("patternProperties", "expected an object of schemas");
    for (const auto& member : *patterns) {
      Result<ValueId> read = value_at(schema, member.value(), "patternProperties", member.key());
      if (!read) return read.error();
      if (Status status = add_pattern(schema, member.key(), *read, &object); !status) return status.error();
    }
  }
  if (const value* found = schema.find("additionalProperties")) {
    Result<ValueId> read = value_at(schema, *found, "additionalProperties");
    if (!read) return read.error();
    for (auto& each : object.classes) {
      if (each.is_evaluated) continue;
      each.value = *read;
      each.is_evaluated = true;
    }
  }
  return objects(std::move(object));
}

// Splits every class into the names that match and the others.
Status ShapeReader::add_pattern(const Schema& schema, std::string_view pattern, ValueId v, ObjectShape* object) {
  Result<RegexId> regex = parse_regex(&pool_, pattern, {.anchored = false});
  if (!regex) {
    const std::string below = child_pointer(schema.place.pointer, "patternProperties");
    const Error error =
        make_error(ErrorCode::kUnsupportedSchema, "unsupported schema: {}: keyword \"patternProperties\": {}",
                   child_pointer(below, pattern), regex.error().message);
    if (!options_.lenient || schema.mode.strict) return error;
    note(below, pattern);
    return {};
  }
  for (auto& property : object->properties) {
    if (pool_.matches(*regex, property.name)) property.value = values_.both(property.value, v);
  }
  std::vector<ObjectShape::Class> classes;
  for (const auto& each : object->classes) {
    classes.push_back({pool_.both(each.names, *regex), values_.both(each.value, v), true});
    classes.push_back({pool_.except(each.names, *regex), each.value, each.is_evaluated});
  }
  if (Status status = algebra_.tidy(&classes); !status) {
    return status.error().code != ErrorCode::kUnsupportedSchema
               ? status
               : refuse_schema(schema.place.pointer, "patternProperties", status.error().message);
  }
  object->classes = std::move(classes);
  return {};
}

Result<Shape> ShapeReader::read_names(const Schema& schema) {
  Result<ValueId> read = value_at(schema, *schema.find("propertyNames"), "propertyNames");
  if (!read) return read.error();
  Result<Shape> names = read_value(*read, {.tracked = false, .strict = schema.mode.strict});
  if (!names) return names.error();
  if (names->strings_are_partial) {
    return refuse_schema(schema.place.pointer, "propertyNames", "a format that is not written in full");
  }
  ObjectShape object;
  object.classes.push_back({names->strings, ValueTable::kAny, false});
  object.classes.push_back({pool_.except(algebra_.all_strings(), names->strings), ValueTable::kNone, false});
  return objects(std::move(object));
}

Result<Shape> ShapeReader::read_required(const Schema& schema) {
  const value& found = *schema.find("required");
  if (found.is_bool() && schema.is_old()) {
    return refuse_schema(schema.place.pointer, "required", "a boolean, as in draft 3");
  }
  const auto* list = found.if_array();
  if (list == nullptr) return schema.invalid("required", "expected a list of names");
  if (list->size() > options_.limits.properties_max) {
    return refuse_schema(schema.place.pointer, "required",
                         fmt::format("expected at most {}", options_.limits.properties_max));
  }
  ObjectShape object = algebra_.any().objects[0];
  for (const value& name : *list) {
    const auto* text = name.if_string();
    if (text == nullptr) return schema.invalid("required", "expected a list of names");
    const bool is_there =
        std::ranges::any_of(object.properties, [&](const auto& property) { return property.name == *text; });
    if (!is_there) object.properties.push_back({std::string(*text), ValueTable::kAny, true, false});
  }
  return objects(std::move(object));
}

Result<Shape> ShapeReader::read_property_counts(const Schema& schema) {
  Result<std::optional<uint32_t>> min = count_at(schema, "minProperties"), max = count_at(schema, "maxProperties");
  if (!min) return min.error();
  if (!max) return max.error();
  ObjectShape object = algebra_.any().objects[0];
  object.min = min->value_or(0);
  object.max = max->value_or(kNoBound);
  object.size_place = place_of(schema, *min ? "minProperties" : "maxProperties");
  return objects(std::move(object));
}

// Properties that no keyword has looked at are in its schema.
Status ShapeReader::read_unevaluated_properties(const Schema& schema, Shape* shape) {
  const value* found = schema.find("unevaluatedProperties");
  if (found == nullptr) return {};
  Result<ValueId> read = value_at(schema, *found, "unevaluatedProperties");
  if (!read) return read.error();
  for (ObjectShape& object : shape->objects) {
    for (auto& property : object.properties) {
      if (!property.is_evaluated) property.value = values_.both(property.value, *read);
      property.is_evaluated = true;
    }
    for (auto& each : object.classes) {
      if (!each.is_evaluated) each.value = values_.both(each.value, *read);
      each.is_evaluated = true;
    }
    if (Status status = algebra_.tidy(&object.classes); !status) return status;
  }
  return {};
}

}  // namespace llmrt
