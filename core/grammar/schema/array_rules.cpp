// Arrays: the first items each by its own, then a repetition; and a small automaton where items are counted (contains)
// or must differ (uniqueItems of a few listed values).
#include <algorithm>

#include "core/grammar/json_spelling.h"
#include "core/grammar/schema/languages.h"
#include "core/grammar/schema/schema_rules.h"

namespace llmrt {
namespace {

std::string without_fraction_zeros(const std::string& text) {
  if (text.find('.') == text.npos || text[0] == '"') return text;
  const size_t last = text.find_last_not_of('0');
  return text.substr(0, text[last] == '.' ? last : last + 1);
}

}  // namespace

Result<SchemaRules::Body> SchemaRules::array_body(const ArrayShape& original) {
  ArrayShape array = original;
  if (Status status = simplify(&array); !status) return status.error();
  if (array.min > array.max) return Body{};
  if (array.contains.empty() && array.unique == 0) return plain_items(array, false);
  if (array.unique == 0) return item_machine(array, false);
  ListedValues listed;
  Result<bool> is_listed = list_values(array.rest, &listed);
  for (size_t i = 0; i < array.prefix.size() && is_listed && *is_listed; ++i) {
    is_listed = list_values(array.prefix[i], &listed);
  }
  if (!is_listed) return is_listed.error();
  if (*is_listed) return item_machine(array, false);
  return array.contains.empty() ? distinct_items(array) : item_machine(array, true);
}

bool SchemaRules::implies(ValueId item, ValueId contained) {
  if (contained == ValueTable::kAny || reader_.values().has_nodes_of(item, contained)) return true;
  return reader_.is_known_empty(reader_.values().both(item, reader_.values().complement(contained, {})));
}

// What needs no automaton goes: bounds of `contains` that every item is in are bounds of the array.
Status SchemaRules::simplify(ArrayShape* array) {
  if (array->rest == ValueTable::kNone) {
    array->max = std::min(array->max, static_cast<uint32_t>(array->prefix.size()));
  }
  std::erase_if(array->contains, [&](const ArrayShape::Contains& contains) {
    bool all = array->max <= array->prefix.size() || implies(array->rest, contains.value);
    for (size_t i = 0; i < array->prefix.size() && all; ++i) all = implies(array->prefix[i], contains.value);
    if (all) {
      array->min = std::max(array->min, contains.min);
      array->max = std::min(array->max, contains.max);
    }
    return all;
  });
  if (array->max <= 1) array->unique = 0;
  const uint32_t limit = options_.limits.repetition_max;
  if (array->min > limit || (array->max != kNoBound && array->max > limit && array->max > array->prefix.size())) {
    if (Status status = reader_.refuse_or_drop(array->size_place, fmt::format("expected at most {}", limit)); !status) {
      return status;
    }
    array->max = kNoBound;
    array->min = std::min(array->min, limit);
  }
  return {};
}

// Items that must differ. The grammar marks them (PlaceMark::kDistinct), TextPosition compares them. Where items must
// be there, each has more values than there are items before it, so the next one is never out of reach.
Result<SchemaRules::Body> SchemaRules::distinct_items(const ArrayShape& array) {
  ArrayShape plain = array;
  plain.unique = 0;
  const uint32_t num_different = static_cast<uint32_t>(array.prefix.size());
  for (uint32_t i = 1; i < array.min; ++i) {
    const bool is_last = i >= num_different;  // the others are like it
    if (has_values(array.item(i), is_last ? array.min : i + 1)) {
      if (is_last) break;
      continue;
    }
    Status status = reader_.refuse_or_drop(
        array.unique,
        fmt::format("{} items that must differ: whether item {} has so many values is not known", array.min, i));
    if (!status) return status.error();
    return plain_items(plain, false);
  }
  Result<Body> body = plain_items(plain, true);
  if (!body) return body;
  body->marks = static_cast<uint8_t>(PlaceMark::kTracked);
  bool is_tight = array.max > array.prefix.size() && is_scarce(array.rest);
  for (const ValueId item : array.prefix) is_tight = is_tight || is_scarce(item);
  if (is_tight) body->marks |= static_cast<uint8_t>(PlaceMark::kTight);
  return body;
}

Result<SchemaRules::Body> SchemaRules::plain_items(const ArrayShape& array, bool are_distinct) {
  const auto item_symbol = [&](ValueId value) -> Result<SymbolId> {
    Result<SymbolId> item = symbol_of(value);
    if (!item || !are_distinct) return item;
    return distinct(*item, is_scarce(value));
  };
  const uint32_t num_single = static_cast<uint32_t>(std::max<size_t>(array.prefix.size(), 1));
  SymbolId tail = GrammarBuilder::kEmpty;
  if (array.max > num_single) {
    Result<SymbolId> rest = item_symbol(array.rest);
    if (!rest) return rest.error();
    tail = builder_.repeat(with_comma(*rest), array.min > num_single ? array.min - num_single : 0,
                           array.max == kNoBound ? kNoBound : array.max - num_single);
  }
  for (uint32_t i = std::min(num_single, array.max); i-- > 0;) {
    Result<SymbolId> item = item_symbol(array.item(i));
    if (!item) return item.error();
    tail = builder_.sequence({i > 0 ? with_comma(*item) : *item, tail});
    if (i > 0 && i >= array.min) tail = builder_.optional(tail);
    if (i % 32 == 31) tail = rule(tail);
  }
  return Body{array.max == 0 ? GrammarBuilder::kNothing : tail, array.min == 0};
}

// The values of a set as texts, numbered over the whole array. False: it has more than can be listed.
Result<bool> SchemaRules::list_values(ValueId value, ListedValues* listed) {
  if (listed->of.contains(value)) return true;
  Result<const Shape*> shape = reader_.shape_of(value);
  if (!shape) return shape.error();
  const auto is_there = [&](const auto& each) { return !reader_.algebra().is_empty(each); };
  if (std::ranges::any_of((*shape)->arrays, is_there) || std::ranges::any_of((*shape)->objects, is_there)) return false;
  const auto texts = list_texts(&pool_, scalars(**shape), kListedMax);
  if (!texts) return false;
  auto& own = listed->of[value];
  for (const std::string& text : *texts) {
    const std::string name = without_fraction_zeros(text);
    auto it = std::ranges::find(listed->values, name);
    if (it == listed->values.end()) it = listed->values.insert(it, name);
    own.emplace_back(text, static_cast<uint32_t>(it - listed->values.begin()));
  }
  return listed->values.size() <= kListedMax;
}

// Ways to write the item at the state's position, and where each leads.
Status SchemaRules::options_at(const ArrayShape& array, const ArrayState& state, ListedValues* listed, bool are_marked,
                               std::vector<ItemOption>* out) {
  struct Way {
    ValueId value;
    std::vector<uint32_t> counts;
  };
  ValueTable& values = reader_.values();
  std::vector<Way> ways = {{array.item(state.position), state.counts}};
  for (size_t c = 0; c < array.contains.size(); ++c) {
    const ArrayShape::Contains& contains = array.contains[c];
    std::vector<Way> split;
    for (const Way& way : ways) {
      const bool is_bounded = contains.max != kNoBound;
      if (!is_bounded && way.counts[c] >= contains.min) {
        split.push_back(way);
        continue;
      }
      Way with = way;
      with.value = values.both(way.value, contains.value);
      if (++with.counts[c] <= contains.max) split.push_back(std::move(with));
      Way without = way;
      if (is_bounded) without.value = values.both(way.value, values.complement(contains.value, {}));
      split.push_back(std::move(without));
    }
    ways = std::move(split);
  }
  const uint32_t position =
      std::min<uint32_t>(state.position + 1, std::max<uint32_t>({static_cast<uint32_t>(array.prefix.size()), array.min,
                                                                 array.max == kNoBound ? 1 : array.max}));
  for (const Way& way : ways) {
    if (reader_.is_known_empty(way.value)) continue;
    if (array.unique == 0) {
      Result<SymbolId> item = symbol_of(way.value);
      if (!item) return item.error();
      out->push_back({*item, {position, way.counts, 0}});
      continue;
    }
    if (are_marked) {
      // Whichever way is left open must never run out of values.
      if (!has_values(way.value, kAmple)) {
        return refuse_shape("beside contains: items that are not known to have endlessly many values");
      }
      Result<SymbolId> item = symbol_of(way.value);
      if (!item) return item.error();
      const bool is_tight = is_scarce(way.value);
      out->push_back({distinct(*item, is_tight), {position, way.counts, 0}, is_tight});
      continue;
    }
    Result<bool> is_listed = list_values(way.value, listed);
    if (!is_listed) return is_listed.error();
    if (!*is_listed) return refuse_shape(fmt::format("beside contains: expected at most {} listed values", kListedMax));
    for (const auto& [text, index] : listed->of[way.value]) {
      if (state.used >> index & 1) continue;
      out->push_back({builder_.literal(text), {position, way.counts, state.used | 1u << index}});
    }
  }
  return {};
}

// A rule for each state that can be reached.
Result<SchemaRules::Body> SchemaRules::item_machine(const ArrayShape& array, bool are_marked) {
  const PlaceId place = array.unique != 0 ? array.unique : array.contains[0].place;
  const auto give_up = [&](const Error& error) -> Result<Body> {
    if (error.code != ErrorCode::kUnsupportedSchema || error.message.starts_with("unsupported schema: ")) return error;
    if (Status status = reader_.refuse_or_drop(place, error.message); !status) return status.error();
    ArrayShape without = array;
    without.unique = 0;
    if (array.unique == 0) without.contains.clear();
    return array_body(without);
  };
  std::map<ArrayState, SymbolId> rules;
  std::deque<ArrayState> open;
  const auto rule_of = [&](const ArrayState& state) {
    const auto [it, is_new] = rules.try_emplace(state, GrammarBuilder::kNothing);
    if (is_new) {
      it->second = builder_.declare_rule();
      open.push_back(state);
    }
    return it->second;
  };
  ListedValues listed;
  const ArrayState first{0, std::vector<uint32_t>(array.contains.size(), 0), 0};
  const auto may_end = [&](const ArrayState& state) {
    for (size_t c = 0; c < array.contains.size(); ++c) {
      if (state.counts[c] < array.contains[c].min) return false;
    }
    return state.position >= array.min;
  };
  Body body{.filled = rule_of(first), .may_be_empty = may_end(first)};
  if (are_marked) body.marks = static_cast<uint8_t>(PlaceMark::kTracked);
  while (!open.empty()) {
    const ArrayState state = open.front();
    open.pop_front();
    if (rules.size() > kStatesMax) return give_up(refuse_shape("too many ways to count the items"));
    std::vector<ItemOption> options;
    if (state.position < array.max) {
      if (Status status = options_at(array, state, &listed, are_marked, &options); !status)
        return give_up(status.error());
    }
    std::vector<SymbolId> parts;
    for (const ItemOption& option : options) {
      if (option.is_scarce) body.marks |= static_cast<uint8_t>(PlaceMark::kTight);
      const SymbolId item = state.position > 0 ? with_comma(option.item) : option.item;
      parts.push_back(builder_.sequence({item, rule_of(option.next)}));
    }
    if (state.position > 0 && may_end(state)) parts.push_back(GrammarBuilder::kEmpty);
    if (!builder_.status()) return builder_.status().error();
    builder_.define_rule(rules.at(state), builder_.choice(parts));
  }
  return body;
}

}  // namespace llmrt
