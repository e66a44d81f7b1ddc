// Objects: listed properties in their order, each with a comma before it unless it is the first, then the unlisted
// ones. What follows a property is one rule for all that come before, so the rules grow with the number of properties.
// Keys that are not listed differ from each other by PlaceMark::kDistinct.
#include <algorithm>

#include "core/grammar/json_spelling.h"
#include "core/grammar/schema/languages.h"
#include "core/grammar/schema/schema_rules.h"

namespace llmrt {

Result<SchemaRules::Body> SchemaRules::object_body(const ObjectShape& original) {
  ObjectShape object = original;
  const auto num_required =
      static_cast<uint32_t>(std::ranges::count_if(object.properties, &ObjectShape::Property::is_required));
  if (object.min > num_required || !object.some.empty()) {
    Status status = list_scarce_names(&object);
    if (!status && object.some.empty()) {
      status = reader_.refuse_or_drop(object.size_place, status.error().message);
      object.min = num_required;
    }
    if (!status) return status.error();
  }
  std::vector<Pair> pairs;
  for (const auto& property : object.properties) {
    if (property.value == ValueTable::kNone) {
      if (property.is_required) return Body{};
      continue;
    }
    Result<SymbolId> value = symbol_of(property.value);
    if (!value) return value.error();
    pairs.push_back({&property, pool_.concat(pool_.literal(json_string_text(property.name)), colon_), *value,
                     property.is_required});
  }
  Result<OpenPairs> open = open_pairs(object);
  if (!open) return open.error();
  const bool min_holds = object.min <= num_required;
  const bool max_holds = object.max == kNoBound || (!open->is_there() && object.max >= pairs.size());
  const bool is_plain = min_holds && max_holds && object.some.empty();
  Result<Body> body = is_plain ? plain(pairs, open->any()) : counted(object, pairs, *open);
  if (body) body->marks = open->marks;
  return body;
}

// Where unlisted properties must be there their names must not run out: few names are listed, endless ones may stay.
Status SchemaRules::list_scarce_names(ObjectShape* object) {
  const auto& algebra = reader_.algebra();
  std::vector<ObjectShape::Property> found;
  for (const auto& each : object->classes) {
    if (each.value == ValueTable::kNone || reader_.is_known_empty(each.value)) continue;
    std::vector<RegexId> parts = {each.names};  // that are needed apart from each other
    for (const auto& some : object->some) {
      std::vector<RegexId> split;
      for (const RegexId part : parts) {
        split.push_back(pool_.both(part, some.names));
        split.push_back(pool_.except(part, some.names));
      }
      parts = std::move(split);
    }
    for (const RegexId part : parts) {
      const RegexId names = algebra.unlisted(*object, part);
      if (algebra.has_no_text(names) || count_texts(&pool_, names, kAmple) == kAmple) continue;
      const auto texts = list_texts(&pool_, names, kListedNamesMax);
      if (!texts) {
        return refuse_shape(fmt::format(
            "properties of names that are not listed must be there: expected at most {} names, or endlessly many",
            kListedNamesMax));
      }
      for (const std::string& text : *texts) found.push_back({text, each.value, false, true});
    }
  }
  object->properties.insert(object->properties.end(), found.begin(), found.end());
  return {};
}

// Keys that are not listed, with their values. Nothing where all are listed.
Result<SchemaRules::OpenPairs> SchemaRules::open_pairs(const ObjectShape& object) {
  OpenPairs out;
  if (object.some.size() > kSomeMax) {
    return refuse_shape(fmt::format("more than {} properties of names that are not listed must be there", kSomeMax));
  }
  const SymbolId colon = builder_.terminal(colon_);
  for (uint32_t set = 0; set < 1u << object.some.size(); ++set) {
    std::vector<SymbolId> parts;
    for (const auto& each : object.classes) {
      RegexId names = each.names;
      ValueId value = each.value;
      for (size_t i = 0; i < object.some.size(); ++i) {
        if ((set >> i & 1) == 0) continue;
        names = pool_.both(names, object.some[i].names);
        value = reader_.values().both(value, object.some[i].value);
      }
      names = reader_.algebra().unlisted(object, names);
      if (value == ValueTable::kNone || reader_.algebra().has_no_text(names)) continue;
      if (set != 0 && reader_.is_known_empty(value)) continue;
      Result<SymbolId> symbol = symbol_of(value);
      if (!symbol) return symbol.error();
      const RegexId key = string_regex(names);
      const bool is_tight = !never_stuck(key);
      out.marks |= static_cast<uint8_t>(PlaceMark::kTracked);
      if (is_tight) out.marks |= static_cast<uint8_t>(PlaceMark::kTight);
      parts.push_back(builder_.sequence({distinct(builder_.terminal(key), is_tight), colon, *symbol}));
    }
    out.by_some.push_back(rule(builder_.choice(parts)));
  }
  return out;
}

SymbolId SchemaRules::pair(RegexId key, SymbolId value, bool with_comma) {
  return builder_.sequence({builder_.terminal(with_comma ? after_comma(key) : key), value});
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
    const SymbolId one = pair(pairs[i].key, pairs[i].value, true);
    parts.push_back(pairs[i].is_required ? one : builder_.optional(one));
  }
  parts.push_back(open_rest);
  const SymbolId rest = first_required == 0 ? builder_.sequence(parts) : rule(builder_.sequence(parts));
  // tail: everything from a property on, behind a comma; begins: the ways to begin with a property.
  SymbolId tail = rest;
  std::vector<SymbolId> begins;
  if (has_required) {
    begins.push_back(builder_.sequence({pair(pairs[first_required].key, pairs[first_required].value, false), rest}));
    tail = rule(builder_.sequence({pair(pairs[first_required].key, pairs[first_required].value, true), rest}));
  } else if (has_open) {
    begins.push_back(open_tail(open, 0, 0, kNoBound));
  }
  for (size_t i = first_required; i-- > 0;) {
    begins.push_back(builder_.sequence({pair(pairs[i].key, pairs[i].value, false), tail}));
    if (i > 0) tail = rule(builder_.sequence({builder_.optional(pair(pairs[i].key, pairs[i].value, true)), tail}));
  }
  return {builder_.choice(begins), !has_required};
}

}  // namespace llmrt
