// Objects: listed properties in their order, each with a comma before it unless it is the first, then the unlisted
// ones. What follows a property is one rule for all that come before, so the rules grow with the number of properties.
#include <algorithm>

#include "core/grammar/json_spelling.h"
#include "core/grammar/schema/schema_rules.h"

namespace llmrt {

Result<SchemaRules::Body> SchemaRules::object_body(const ObjectShape& object) {
  std::vector<Pair> pairs;
  uint32_t num_required = 0;
  for (const auto& property : object.properties) {
    if (property.is_required) ++num_required;
    if (property.value == ValueTable::kNone) {
      if (property.is_required) return Body{};
      continue;
    }
    Result<SymbolId> value = symbol_of(property.value);
    if (!value) return value.error();
    pairs.push_back(
        {pool_.concat(pool_.literal(json_string_text(property.name)), colon_), *value, property.is_required});
  }
  Result<SymbolId> open = open_pair(object);
  if (!open) return open.error();
  const bool has_open = *open != GrammarBuilder::kNothing;
  const bool min_holds = object.min <= num_required;
  const bool max_holds = object.max == kNoBound || (!has_open && object.max >= pairs.size());
  if (min_holds && max_holds) return plain(pairs, *open);
  // An unlisted key may be written twice and counts once.
  if (has_open && object.min > num_required + 1) {
    if (Status status = reader_.refuse_or_drop(
            object.size_place, "more properties than the required ones and one other, where names are open");
        !status) {
      return status.error();
    }
    return plain(pairs, *open);
  }
  return counted(pairs, *open, object.min, object.max, object.size_place);
}

// A key that is not listed, with its value. Nothing where all are listed.
Result<SymbolId> SchemaRules::open_pair(const ObjectShape& object) {
  std::vector<SymbolId> parts;
  for (const auto& each : object.classes) {
    if (each.value == ValueTable::kNone) continue;
    std::vector<RegexId> listed;
    for (const auto& property : object.properties) {
      if (pool_.matches(each.names, property.name)) listed.push_back(pool_.literal(property.name));
    }
    const RegexId names = pool_.except(each.names, pool_.either(listed));
    if (reader_.algebra().has_no_text(names)) continue;
    Result<SymbolId> value = symbol_of(each.value);
    if (!value) return value;
    const SymbolId key = builder_.terminal(string_regex(names));
    if (notes_ != nullptr && noted_keys_.insert(key).second) notes_->open_keys.push_back(key);
    parts.push_back(builder_.sequence({key, builder_.terminal(colon_), *value}));
  }
  return rule(builder_.choice(parts));
}

SymbolId SchemaRules::pair(const Pair& each, bool with_comma) {
  return builder_.sequence({builder_.terminal(with_comma ? after_comma(each.key) : each.key), each.value});
}

// Unlisted pairs behind `num_before` others, so that there are min to max in all.
SymbolId SchemaRules::open_tail(SymbolId open, uint32_t num_before, uint32_t min, uint32_t max) {
  const uint32_t least = min > num_before ? min - num_before : 0;
  const uint32_t most = max == kNoBound ? kNoBound : max - num_before;
  if (num_before > 0) return builder_.repeat(with_comma(open), least, most);
  const uint32_t more = most == kNoBound ? kNoBound : most - 1;
  return builder_.sequence({open, builder_.repeat(with_comma(open), least > 0 ? least - 1 : 0, more)});
}

SchemaRules::Body SchemaRules::plain(std::span<const Pair> pairs, SymbolId open) {
  const size_t first_required = static_cast<size_t>(std::ranges::find_if(pairs, &Pair::is_required) - pairs.begin());
  const bool has_required = first_required < pairs.size();
  const bool has_open = open != GrammarBuilder::kNothing;
  const SymbolId open_rest = has_open ? open_tail(open, 1, 0, kNoBound) : GrammarBuilder::kEmpty;
  // Behind the first required property, or behind all.
  std::vector<SymbolId> parts;
  for (size_t i = first_required + 1; i < pairs.size(); ++i) {
    const SymbolId one = pair(pairs[i], true);
    parts.push_back(pairs[i].is_required ? one : builder_.optional(one));
  }
  parts.push_back(open_rest);
  const SymbolId rest = first_required == 0 ? builder_.sequence(parts) : rule(builder_.sequence(parts));
  // tail: everything from a property on, behind a comma; begins: the ways to begin with a property.
  SymbolId tail = rest;
  std::vector<SymbolId> begins;
  if (has_required) {
    begins.push_back(builder_.sequence({pair(pairs[first_required], false), rest}));
    tail = rule(builder_.sequence({pair(pairs[first_required], true), rest}));
  } else if (has_open) {
    begins.push_back(open_tail(open, 0, 0, kNoBound));
  }
  for (size_t i = first_required; i-- > 0;) {
    begins.push_back(builder_.sequence({pair(pairs[i], false), tail}));
    if (i > 0) tail = rule(builder_.sequence({builder_.optional(pair(pairs[i], true)), tail}));
  }
  return {builder_.choice(begins), !has_required};
}

// One rule for each property that is next and each number of properties before it.
Result<SchemaRules::Body> SchemaRules::counted(std::span<const Pair> pairs, SymbolId open, uint32_t min, uint32_t max,
                                               PlaceId place) {
  const bool has_open = open != GrammarBuilder::kNothing;
  const uint32_t num_pairs = static_cast<uint32_t>(pairs.size());
  const uint32_t counts = std::min(num_pairs, max) + 1;
  const uint32_t unrolled = has_open && max != kNoBound ? max : 0;
  if (uint64_t{counts} * (num_pairs + 1) > kStatesMax || unrolled > options_.limits.repetition_max ||
      uint64_t{counts} * unrolled > 16 * kStatesMax) {
    if (Status status = reader_.refuse_or_drop(place, "too many ways to count the properties"); !status) {
      return status.error();
    }
    return plain(pairs, open);
  }
  Body body;
  body.may_be_empty = min == 0 && std::ranges::none_of(pairs, &Pair::is_required);
  std::vector<SymbolId> next(counts, GrammarBuilder::kNothing);  // behind all pairs, by the number that is there
  for (uint32_t count = 0; count < counts; ++count) {
    if (has_open && count < max) {
      next[count] = open_tail(open, count, min, max);
    } else if (count >= min && count > 0) {
      next[count] = GrammarBuilder::kEmpty;
    }
  }
  for (uint32_t i = num_pairs; i-- > 0;) {
    std::vector<SymbolId> here(counts, GrammarBuilder::kNothing);
    for (uint32_t count = 0; count < counts && count <= i; ++count) {
      const SymbolId with = count + 1 < counts ? builder_.sequence({pair(pairs[i], count > 0), next[count + 1]})
                                               : GrammarBuilder::kNothing;
      here[count] = rule(builder_.choice({with, pairs[i].is_required ? GrammarBuilder::kNothing : next[count]}));
    }
    next = std::move(here);
  }
  body.filled = next[0];
  return body;
}

}  // namespace llmrt
