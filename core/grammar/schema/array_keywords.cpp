// Items, their number, and what one of them must be.
#include <algorithm>

#include "core/grammar/schema/shape_reader.h"

namespace llmrt {

using boost::json::value;

Result<Shape> ShapeReader::arrays(ArrayShape array) {
  Shape out = algebra_.any();
  out.arrays.clear();
  if (array.min <= array.max) out.arrays.push_back(std::move(array));
  return out;
}

Result<Shape> ShapeReader::read_items(const Schema& schema) {
  const bool is_new = schema.draft == Draft::k2020;
  const value* items = schema.find("items");
  const value* list = is_new ? schema.find("prefixItems") : items != nullptr && items->is_array() ? items : nullptr;
  const value* rest = is_new || list == nullptr ? items : schema.find("additionalItems");
  const std::string_view list_keyword = is_new ? "prefixItems" : "items";
  const std::string_view rest_keyword = is_new || list == nullptr ? "items" : "additionalItems";
  if (is_new && items != nullptr && items->is_array()) {
    return schema.invalid("items",
                          "expected a schema; a list of schemas is prefixItems, or of draft 2019-09 and older");
  }
  ArrayShape array;
  if (list != nullptr) {
    if (!list->is_array()) return schema.invalid(list_keyword, "expected a list of schemas");
    if (list->get_array().size() > options_.limits.repetition_max) {
      return refuse_schema(schema.place.pointer, list_keyword,
                           fmt::format("expected at most {} schemas", options_.limits.repetition_max));
    }
    for (const value& item : list->get_array()) {
      Result<ValueId> read = value_at(schema, item, list_keyword, std::to_string(array.prefix.size()));
      if (!read) return read.error();
      array.prefix.push_back(*read);
    }
    array.num_evaluated = static_cast<uint32_t>(array.prefix.size());
  }
  if (rest != nullptr) {
    Result<ValueId> read = value_at(schema, *rest, rest_keyword);
    if (!read) return read.error();
    array.rest = *read;
    array.all_evaluated = true;
  }
  return arrays(std::move(array));
}

Result<Shape> ShapeReader::read_item_counts(const Schema& schema) {
  Result<std::optional<uint32_t>> min = count_at(schema, "minItems"), max = count_at(schema, "maxItems");
  if (!min) return min.error();
  if (!max) return max.error();
  ArrayShape array;
  array.min = min->value_or(0);
  array.max = max->value_or(kNoBound);
  array.size_place = place_of(schema, *max ? "maxItems" : "minItems");
  return arrays(std::move(array));
}

Result<Shape> ShapeReader::read_contains(const Schema& schema) {
  Result<ValueId> read = value_at(schema, *schema.find("contains"), "contains");
  if (!read) return read.error();
  ArrayShape::Contains contains{*read, 1, kNoBound, place_of(schema, "contains")};
  if (schema.draft >= Draft::k2019) {
    Result<std::optional<uint32_t>> min = count_at(schema, "minContains"), max = count_at(schema, "maxContains");
    if (!min) return min.error();
    if (!max) return max.error();
    contains.min = min->value_or(1);
    contains.max = max->value_or(kNoBound);
  }
  ArrayShape array;
  if (schema.draft >= Draft::k2020) array.evaluated.push_back(*read);
  if (contains.min > 0 || contains.max != kNoBound) array.contains.push_back(contains);
  return arrays(std::move(array));
}

Result<Shape> ShapeReader::read_unique(const Schema& schema) {
  const bool* is_unique = schema.find("uniqueItems")->if_bool();
  if (is_unique == nullptr) return schema.invalid("uniqueItems", "expected a boolean");
  ArrayShape array;
  if (*is_unique) array.unique = place_of(schema, "uniqueItems");
  return arrays(std::move(array));
}

// Items that no keyword has looked at are in its schema. An item that `contains` found counts as looked at.
Status ShapeReader::read_unevaluated_items(const Schema& schema, Shape* shape) {
  const value* found = schema.find("unevaluatedItems");
  if (found == nullptr) return {};
  Result<ValueId> read = value_at(schema, *found, "unevaluatedItems");
  if (!read) return read.error();
  for (ArrayShape& array : shape->arrays) {
    if (array.all_evaluated) continue;
    std::vector<ValueId> allowed = array.evaluated;
    allowed.push_back(*read);
    const ValueId other = values_.either(allowed, schema.place);
    while (array.prefix.size() < array.num_evaluated) array.prefix.push_back(array.rest);
    for (size_t i = array.num_evaluated; i < array.prefix.size(); ++i) {
      array.prefix[i] = values_.both(array.prefix[i], other);
    }
    array.rest = values_.both(array.rest, other);
    array.all_evaluated = true;
  }
  return {};
}

}  // namespace llmrt
