// Objects whose properties are counted, or some of which must be there without being named: a small automaton over the
// number of properties so far and the set of demands (ObjectShape::some) that are not yet met.
#include <algorithm>

#include "core/grammar/schema/schema_rules.h"

namespace llmrt {

struct SchemaRules::Counts {
  uint32_t min, max;
  uint32_t num_counts;  // numbers that are told apart; the last one may stand for all from it on
  uint32_t num_sets;    // of demands, by their bits

  uint32_t next(uint32_t count) const { return max == kNoBound ? std::min(count + 1, num_counts - 1) : count + 1; }
  bool has(uint32_t count) const { return count < num_counts; }
  size_t index(uint32_t count, uint32_t set) const { return size_t{count} * num_sets + set; }
  size_t size() const { return size_t{num_counts} * num_sets; }
};

// One rule for each property that is next, each number of properties before it and each set of open demands.
Result<SchemaRules::Body> SchemaRules::counted(const ObjectShape& object, std::span<const Pair> pairs,
                                               const OpenPairs& open) {
  const auto num_pairs = static_cast<uint32_t>(pairs.size());
  Counts counts{object.min, object.max, 0, 1u << object.some.size()};
  // Beyond the least number only that it is reached is told.
  uint32_t last = object.max == kNoBound ? std::max(object.min, 1u) : object.max;
  if (!open.is_there() || object.some.empty()) last = std::min(last, num_pairs);
  counts.num_counts = last + 1;
  const uint32_t unrolled = !open.is_there() ? 0 : object.max == kNoBound ? object.min : object.max;
  if (unrolled > options_.limits.repetition_max || counts.size() * (uint64_t{num_pairs} + 1) > kStatesMax ||
      uint64_t{counts.num_counts} * unrolled > 16 * kStatesMax) {
    const PlaceId place = object.size_place;
    if (place == 0) return refuse_shape("too many ways to have the properties that must be there");
    if (Status status = reader_.refuse_or_drop(place, "too many ways to count the properties"); !status) {
      return status.error();
    }
    return plain(pairs, open.any());
  }
  Body body;
  body.may_be_empty = object.min == 0 && object.some.empty() && std::ranges::none_of(pairs, &Pair::is_required);
  std::vector<SymbolId> next = counted_tails(counts, open);
  for (uint32_t i = num_pairs; i-- > 0;) {
    const Pair& own = pairs[i];
    Result<std::vector<SymbolId>> values = values_by_some(object, own);
    if (!values) return values.error();
    std::vector<SymbolId> here(counts.size(), GrammarBuilder::kNothing);
    for (uint32_t count = 0; count < counts.num_counts && count <= i; ++count) {
      for (uint32_t set = 0; set < counts.num_sets; ++set) {
        std::vector<SymbolId> parts;
        for (uint32_t met = 0; met < counts.num_sets; ++met) {
          if ((met & ~set) != 0 || !counts.has(counts.next(count)) || (*values)[met] == GrammarBuilder::kNothing)
            continue;
          const SymbolId behind = next[counts.index(counts.next(count), set & ~met)];
          parts.push_back(builder_.sequence({pair(own.key, (*values)[met], count > 0), behind}));
        }
        if (!own.is_required) parts.push_back(next[counts.index(count, set)]);
        here[counts.index(count, set)] = rule(builder_.choice(parts));
      }
    }
    next = std::move(here);
  }
  body.filled = next[counts.index(0, counts.num_sets - 1)];
  return body;
}

// The pair's value where it meets these demands, for each set of them.
Result<std::vector<SymbolId>> SchemaRules::values_by_some(const ObjectShape& object, const Pair& own) {
  std::vector<SymbolId> out = {own.value};
  for (uint32_t met = 1; met < 1u << object.some.size(); ++met) {
    ValueId value = own.property->value;
    for (size_t i = 0; i < object.some.size(); ++i) {
      if ((met >> i & 1) == 0) continue;
      const auto& some = object.some[i];
      value = pool_.matches(some.names, own.property->name) ? reader_.values().both(value, some.value)
                                                            : ValueId{ValueTable::kNone};
    }
    if (reader_.is_known_empty(value)) {
      out.push_back(GrammarBuilder::kNothing);
      continue;
    }
    Result<SymbolId> symbol = symbol_of(value);
    if (!symbol) return symbol.error();
    out.push_back(*symbol);
  }
  return out;
}

// What may stand behind all listed pairs.
std::vector<SymbolId> SchemaRules::counted_tails(const Counts& counts, const OpenPairs& open) {
  std::vector<SymbolId> tails(counts.size(), GrammarBuilder::kNothing);
  for (uint32_t count = counts.num_counts; count-- > 0;) {
    for (uint32_t set = 0; set < counts.num_sets; ++set) {
      const bool may_go_on = open.is_there() && count < counts.max;
      SymbolId& tail = tails[counts.index(count, set)];
      if (set == 0) {
        if (may_go_on) {
          tail = rule(open_tail(open.any(), count, counts.min, counts.max));
        } else if (count >= counts.min && count > 0) {
          tail = GrammarBuilder::kEmpty;
        }
        continue;
      }
      if (!may_go_on) continue;
      const uint32_t after = counts.next(count);
      const SymbolId self = builder_.declare_rule();
      tail = self;
      std::vector<SymbolId> parts;
      for (uint32_t met = 0; met < counts.num_sets; ++met) {
        if ((met & ~set) != 0 || open.by_some[met] == GrammarBuilder::kNothing) continue;
        const SymbolId one = count > 0 ? with_comma(open.by_some[met]) : open.by_some[met];
        parts.push_back(builder_.sequence({one, tails[counts.index(after, set & ~met)]}));
      }
      builder_.define_rule(self, builder_.choice(parts));
    }
  }
  return tails;
}

}  // namespace llmrt
