// And, or and not of objects.
#include <algorithm>
#include <unordered_map>

#include "core/grammar/schema/algebra.h"

namespace llmrt {
namespace {

std::unordered_map<std::string_view, const ObjectShape::Property*> by_name(const ObjectShape& object) {
  std::unordered_map<std::string_view, const ObjectShape::Property*> out;
  for (const auto& property : object.properties) out.emplace(property.name, &property);
  return out;
}

}  // namespace

bool ObjectShape::is_any() const {
  return std::ranges::all_of(properties, [](const auto& p) { return p.value == ValueTable::kAny && !p.is_required; }) &&
         std::ranges::all_of(classes, [](const auto& c) { return c.value == ValueTable::kAny; }) && min == 0 &&
         max == kNoBound && some.empty();
}

bool ShapeAlgebra::is_empty(const ObjectShape& object) const {
  if (object.min > object.max) return true;
  uint32_t num_required = 0;
  for (const auto& property : object.properties) {
    if (!property.is_required) continue;
    ++num_required;
    if (is_empty_(property.value)) return true;
  }
  return num_required > object.max || (object.max == 0 && !object.some.empty()) ||
         std::ranges::any_of(object.some, [&](const auto& some) { return !may_have(object, some); });
}

RegexId ShapeAlgebra::unlisted(const ObjectShape& object, RegexId names) const {
  std::vector<RegexId> listed;
  for (const auto& property : object.properties) {
    if (pool_.matches(names, property.name)) listed.push_back(pool_.literal(property.name));
  }
  return listed.empty() ? names : pool_.except(names, pool_.either(listed));
}

bool ShapeAlgebra::may_have(const ObjectShape& object, const ObjectShape::Some& some) const {
  for (const auto& property : object.properties) {
    if (pool_.matches(some.names, property.name) && !is_empty_(values_.both(property.value, some.value))) return true;
  }
  return std::ranges::any_of(object.classes, [&](const auto& each) {
    return !is_empty_(values_.both(each.value, some.value)) &&
           !has_no_text(unlisted(object, pool_.both(each.names, some.names)));
  });
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
  const size_t num_properties = a.properties.size() + b.properties.size();
  if (Status status = work_.spend(1 + (1 + a.some.size() + b.some.size()) * num_properties); !status) {
    return status.error();
  }
  ObjectShape out;
  out.min = std::max(a.min, b.min);
  out.max = std::min(a.max, b.max);
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
  out.some = a.some;
  for (const auto& some : b.some) {
    if (std::ranges::find(out.some, some) == out.some.end()) out.some.push_back(some);
  }
  settle(&out);
  if (out.some.size() > kSomeMax)
    return refuse_shape("too many properties, of names that are not listed, must be there");
  if (out.min > out.max) return std::optional<ObjectShape>();
  return std::optional(std::move(out));
}

void ShapeAlgebra::settle(ObjectShape* object) const {
  std::erase_if(object->some, [&](const ObjectShape::Some& some) {
    ObjectShape::Property* only = nullptr;
    uint32_t num_ways = 0;
    for (auto& property : object->properties) {
      if (!pool_.matches(some.names, property.name)) continue;
      if (property.is_required && values_.has_nodes_of(property.value, some.value)) return true;
      if (is_empty_(values_.both(property.value, some.value))) continue;
      only = &property;
      ++num_ways;
    }
    const bool may_be_unlisted = std::ranges::any_of(object->classes, [&](const auto& each) {
      return !is_empty_(values_.both(each.value, some.value)) &&
             !has_no_text(unlisted(*object, pool_.both(each.names, some.names)));
    });
    if (num_ways != 1 || may_be_unlisted) return false;
    only->is_required = true;
    only->value = values_.both(only->value, some.value);
    return true;
  });
}

bool ShapeAlgebra::is_within(const ObjectShape& a, const ObjectShape& b) const {
  if (a.min < b.min || a.max > b.max) return false;
  const auto has = [](const auto& list, const auto& each) { return std::ranges::find(list, each) != list.end(); };
  if (!std::ranges::all_of(b.some, [&](const auto& some) { return has(a.some, some); })) return false;
  if (a.properties.size() != b.properties.size() || a.classes.size() != b.classes.size()) return false;
  for (size_t i = 0; i < a.properties.size(); ++i) {
    const auto& x = a.properties[i];
    const auto& y = b.properties[i];
    const bool is_inside = x.name == y.name && x.is_evaluated == y.is_evaluated && (x.is_required || !y.is_required);
    if (!is_inside || !values_.has_nodes_of(x.value, y.value)) return false;
  }
  for (size_t i = 0; i < a.classes.size(); ++i) {
    const auto& x = a.classes[i];
    const auto& y = b.classes[i];
    if (x.names != y.names || x.is_evaluated != y.is_evaluated || !values_.has_nodes_of(x.value, y.value)) return false;
  }
  return true;
}

Result<std::vector<ObjectShape>> ShapeAlgebra::complement(const ObjectShape& object, const SchemaPlace& from) {
  std::vector<ObjectShape> out;
  const auto with = [&](const std::string& name, ValueId value, bool is_required) {
    ObjectShape other = any_.objects[0];
    other.properties.push_back({name, value, is_required, false});
    out.push_back(std::move(other));
  };
  for (const auto& each : object.classes) {
    if (each.value == ValueTable::kAny) continue;
    const RegexId names = unlisted(object, each.names);
    if (has_no_text(names)) continue;
    out.push_back(any_.objects[0]);
    out.back().some.push_back({names, values_.complement(each.value, from)});
  }
  for (const auto& some : object.some) {
    out.push_back(any_.objects[0]);
    out.back().classes = {{some.names, values_.complement(some.value, from), false},
                          {pool_.except(any_.strings, some.names), ValueTable::kAny, false}};
    if (Status status = tidy(&out.back().classes); !status) return status.error();
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

bool ShapeAlgebra::are_disjoint(const ObjectShape& a, const ObjectShape& b) {
  if (std::max(a.min, b.min) > std::min(a.max, b.max)) return true;
  const auto meet = [&](const ObjectShape& x, const ObjectShape& y) {
    return std::ranges::any_of(x.properties, [&](const auto& property) {
      return property.is_required && is_empty_(values_.both(property.value, value_of(y, property.name)));
    });
  };
  const auto lacks = [&](const ObjectShape& x, const ObjectShape& y) {
    return std::ranges::any_of(x.some, [&](const auto& some) { return !may_have(y, some); });
  };
  return meet(a, b) || meet(b, a) || lacks(a, b) || lacks(b, a);
}

}  // namespace llmrt
