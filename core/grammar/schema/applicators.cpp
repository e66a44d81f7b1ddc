// Keywords that apply other schemas to the same value.
#include <algorithm>

#include "core/grammar/schema/shape_reader.h"

namespace llmrt {

using boost::json::value;

Result<Shape> ShapeReader::read_refused(const Schema& schema) {
  for (std::string_view keyword : {"$dynamicRef", "$recursiveRef", "$vocabulary"}) {
    if (schema.find(keyword)) return refuse_schema(schema.place.pointer, keyword, "not supported");
  }
  return algebra_.any();
}

Result<Shape> ShapeReader::read_ref(const Schema& schema) {
  const auto* reference = schema.find("$ref")->if_string();
  if (reference == nullptr) return schema.invalid("$ref", "expected a reference");
  Result<SchemaPlace> target = document_.resolve(schema.place, *reference);
  if (!target) return target.error();
  if (!target->value->is_bool() && !target->value->is_object()) {
    return invalid_schema(target->pointer, "", "expected a schema: an object or a boolean");
  }
  return read_value(values_.schema(*target), schema.mode);
}

Result<std::vector<ValueId>> ShapeReader::list_at(const Schema& schema, std::string_view keyword) {
  const auto* list = schema.find(keyword)->if_array();
  if (list == nullptr || list->empty()) return schema.invalid(keyword, "expected a list of schemas");
  std::vector<ValueId> out;
  for (const value& each : *list) {
    Result<ValueId> read = value_at(schema, each, keyword, std::to_string(out.size()));
    if (!read) return read.error();
    out.push_back(*read);
  }
  return out;
}

Result<Shape> ShapeReader::read_all_of(const Schema& schema) {
  Result<std::vector<ValueId>> list = list_at(schema, "allOf");
  if (!list) return list.error();
  Shape out = algebra_.any();
  for (ValueId each : *list) {
    Result<Shape> part = read_value(each, schema.mode);
    if (!part) return part;
    Result<Shape> merged = algebra_.both(out, *part);
    if (!merged) return merged;
    out = *std::move(merged);
  }
  return out;
}

// What a value passes, a keyword of it has looked at. So where that is tracked, a value in two parts of a union is
// there with what both have looked at.
Result<Shape> ShapeReader::read_any_of(const Schema& schema) {
  Result<std::vector<ValueId>> list = list_at(schema, "anyOf");
  if (!list) return list.error();
  Shape out;
  for (ValueId each : *list) {
    Result<Shape> part = read_value(each, schema.mode);
    if (!part) return part;
    if (schema.mode.tracked) {
      Result<Shape> common = algebra_.both(out, *part);
      if (!common) return common;
      common = algebra_.either(*std::move(common), *part);
      if (!common) return common;
      part = *std::move(common);
    }
    Result<Shape> merged = algebra_.either(std::move(out), *part);
    if (!merged) return merged;
    out = *std::move(merged);
    // Everything else is in it already.
    const bool is_all = !schema.mode.tracked && std::ranges::any_of(out.arrays, &ArrayShape::is_any);
    if (is_all) out.arrays = algebra_.any().arrays;
    if (!schema.mode.tracked && std::ranges::any_of(out.objects, &ObjectShape::is_any)) {
      out.objects = algebra_.any().objects;
    }
  }
  return out;
}

Result<Shape> ShapeReader::read_one_of(const Schema& schema) {
  Result<std::vector<ValueId>> list = list_at(schema, "oneOf");
  if (!list) return list.error();
  std::vector<Shape> parts;
  for (ValueId each : *list) {
    Result<Shape> part = read_value(each, schema.mode);
    if (!part) return part;
    parts.push_back(*std::move(part));
  }
  return exactly_one(parts, *list, schema.place);
}

// A union where the parts are proven disjoint; else each part without the others that it may meet.
Result<Shape> ShapeReader::exactly_one(const std::vector<Shape>& parts, const std::vector<ValueId>& list,
                                       const SchemaPlace& from) {
  Shape out;
  for (size_t i = 0; i < parts.size(); ++i) {
    Result<Shape> own = parts[i];
    for (size_t j = 0; j < parts.size() && own; ++j) {
      if (Status status = work_.spend(1); !status) return status.error();
      if (i == j || algebra_.are_disjoint(*own, parts[j])) continue;
      Result<Shape> other = read_value(list[j], {.tracked = false, .strict = true});
      own = other ? algebra_.without(*own, *other, from) : other.error();
      if (own || own.error().code != ErrorCode::kUnsupportedSchema) continue;
      if (!options_.coerce_one_of) {
        const std::string& why = own.error().message;  // a reason, or a refusal with a place of its own
        return refuse_shape(
            fmt::format("schemas {} and {} are not proven disjoint{}", std::min(i, j), std::max(i, j),
                        why.starts_with("unsupported") ? "" : ", and one cannot be taken from the other: " + why));
      }
      own = parts[i];
      break;
    }
    if (!own) return own;
    Result<Shape> merged = algebra_.either(std::move(out), *own);
    if (!merged) return merged;
    out = *std::move(merged);
  }
  return out;
}

Result<Shape> ShapeReader::read_not(const Schema& schema) {
  Result<ValueId> read = value_at(schema, *schema.find("not"), "not");
  if (!read) return read.error();
  Result<Shape> inner = read_value(*read, {.tracked = false, .strict = true});
  if (!inner) return inner;
  return algebra_.complement(*inner, schema.place);
}

Result<Shape> ShapeReader::read_if(const Schema& schema) {
  Result<ValueId> condition = value_at(schema, *schema.find("if"), "if");
  if (!condition) return condition.error();
  Result<Shape> passed = read_value(*condition, schema.mode);
  if (!passed) return passed;
  const value* then_schema = schema.find("then");
  const value* else_schema = schema.find("else");
  Result<Shape> failed = algebra_.any();
  if (then_schema != nullptr) {
    Result<ValueId> then_value = value_at(schema, *then_schema, "then");
    if (!then_value) return then_value.error();
    Result<Shape> then_shape = read_value(*then_value, schema.mode);
    if (!then_shape) return then_shape;
    passed = algebra_.both(*passed, *then_shape);
    if (!passed) return passed;
    // Without `then` a value that passes may count as failed, too: nothing is asked of it.
    Result<Shape> strict = read_value(*condition, {.tracked = false, .strict = true});
    if (!strict) return strict;
    failed = algebra_.complement(*strict, schema.place);
    if (!failed) return failed;
  }
  if (else_schema != nullptr) {
    Result<ValueId> else_value = value_at(schema, *else_schema, "else");
    if (!else_value) return else_value.error();
    Result<Shape> else_shape = read_value(*else_value, schema.mode);
    if (!else_shape) return else_shape;
    failed = algebra_.both(*failed, *else_shape);
    if (!failed) return failed;
  }
  return algebra_.either(*std::move(passed), *failed);
}

Shape ShapeReader::requiring(std::string_view name, ValueId v, bool is_required) {
  Shape out = algebra_.any();
  out.objects[0].properties.push_back({std::string(name), v, is_required, false});
  return out;
}

Result<Shape> ShapeReader::read_dependencies(const Schema& schema) {
  Shape out = algebra_.any();
  for (std::string_view keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const value* found = schema.find(keyword);
    if (found == nullptr || (schema.is_old() && keyword != "dependencies")) continue;
    const auto* members = found->if_object();
    if (members == nullptr) return schema.invalid(keyword, "expected an object");
    for (const auto& member : *members) {
      Result<Shape> merged = add_dependency(schema, keyword, member.key(), member.value(), out);
      if (!merged) return merged;
      out = *std::move(merged);
    }
  }
  return out;
}

// Either the property is not there, or it is and so is what depends on it.
Result<Shape> ShapeReader::add_dependency(const Schema& schema, std::string_view keyword, std::string_view name,
                                          const value& dependent, const Shape& so_far) {
  Shape present = requiring(name, ValueTable::kAny, true);
  if (dependent.is_array() && keyword != "dependentSchemas") {
    for (const value& each : dependent.get_array()) {
      const auto* text = each.if_string();
      if (text == nullptr) return schema.invalid(keyword, "expected lists of names");
      Result<Shape> merged = algebra_.both(present, requiring(*text, ValueTable::kAny, true));
      if (!merged) return merged;
      present = *std::move(merged);
    }
  } else if (keyword == "dependentRequired") {
    return schema.invalid(keyword, "expected lists of names");
  } else {
    Result<ValueId> read = value_at(schema, dependent, keyword, name);
    if (!read) return read.error();
    Result<Shape> part = read_value(*read, schema.mode);
    if (!part) return part;
    Result<Shape> merged = algebra_.both(present, *part);
    if (!merged) return merged;
    present = *std::move(merged);
  }
  // The keyword speaks of objects alone: the rest is in the other part.
  Shape objects_only;
  objects_only.objects = std::move(present.objects);
  Result<Shape> either = algebra_.either(requiring(name, ValueTable::kNone, false), objects_only);
  if (!either) return either;
  return algebra_.both(so_far, *either);
}

}  // namespace llmrt
