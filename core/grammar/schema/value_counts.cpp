// How many values a set has at least, and whether one of them can run out: for items that must differ.
#include <algorithm>
#include <bit>

#include "core/grammar/schema/languages.h"
#include "core/grammar/schema/schema_rules.h"

namespace llmrt {

// True where some beginning of a value leaves few ways to go on, so that they may all have been there.
bool SchemaRules::is_scarce(ValueId value) {
  Result<const Shape*> shape = reader_.shape_of(value);
  if (!shape || !(*shape)->arrays.empty() || !(*shape)->objects.empty() || (*shape)->literals != 0) return true;
  return !never_stuck(scalars(**shape));
}

bool SchemaRules::never_stuck(RegexId texts) {
  const auto [it, is_new] = never_stuck_.try_emplace(texts, false);
  if (is_new) it->second = is_never_stuck(&pool_, texts);
  return it->second;
}

bool SchemaRules::has_values(ValueId value, uint32_t least, uint32_t depth) {
  if (least == 0) return true;
  if (depth > kCountDepthMax) return false;
  Result<const Shape*> shape = reader_.shape_of(value);
  if (!shape) return false;
  uint64_t found = static_cast<uint64_t>(std::popcount((*shape)->literals));
  for (const RegexId regex : {(*shape)->strings, numbers_of(**shape)}) {
    if (found < least) found += count_texts(&pool_, regex, least);
  }
  if (found >= least) return true;
  return std::ranges::any_of((*shape)->arrays, [&](const auto& each) { return has_arrays(each, least, depth + 1); }) ||
         std::ranges::any_of((*shape)->objects, [&](const auto& each) { return has_objects(each, least, depth + 1); });
}

bool SchemaRules::has_arrays(const ArrayShape& array, uint32_t least, uint32_t depth) {
  if (!array.contains.empty() || array.min > array.max) return false;
  // Arrays of every length.
  const uint32_t each = array.unique == 0 ? 1 : kAmple;
  const auto has_item = [&](ValueId item) { return has_values(item, each, depth); };
  if (array.max == kNoBound && has_item(array.rest) && std::ranges::all_of(array.prefix, has_item)) return true;
  // The first item alone is free.
  if (array.unique != 0 && array.min > 1) return false;
  if (array.max == 0 || !has_values(array.item(0), least, depth)) return false;
  for (uint32_t i = 1; i < array.min; ++i) {
    if (!has_values(array.item(i), 1, depth)) return false;
    if (i > array.prefix.size()) break;
  }
  return true;
}

bool SchemaRules::has_objects(const ObjectShape& object, uint32_t least, uint32_t depth) {
  uint32_t num_required = 0;
  for (const auto& property : object.properties) {
    if (!property.is_required) continue;
    ++num_required;
    if (!has_values(property.value, 1, depth)) return false;
  }
  const bool has_endless_names = std::ranges::any_of(object.classes, [&](const auto& each) {
    const RegexId names = reader_.algebra().unlisted(object, each.names);
    return has_values(each.value, 1, depth) && count_texts(&pool_, names, kAmple) == kAmple;
  });
  if (has_endless_names && object.some.empty() && object.max > std::max(num_required, object.min)) return true;
  return std::ranges::any_of(object.properties, [&](const auto& property) {
    const uint32_t num_there = num_required + (property.is_required ? 0 : 1);
    const bool is_enough = std::ranges::all_of(object.some, [&](const auto& some) {
      return pool_.matches(some.names, property.name) && reader_.values().has_nodes_of(property.value, some.value);
    });
    return is_enough && num_there >= object.min && num_there <= object.max && has_values(property.value, least, depth);
  });
}

}  // namespace llmrt
