// Shapes as rules of a grammar: one rule for each set of values that holds arrays or objects, made when it is first
// asked for, one after the other and never one inside the other.
#pragma once

#include <deque>
#include <map>
#include <set>

#include "core/grammar/regex_replace.h"
#include "core/grammar/schema/shape_reader.h"

namespace llmrt {

class SchemaRules {
 public:
  // shortest_numbers: each number has one text. Needed where items must differ, which are compared by their texts.
  SchemaRules(GrammarBuilder* builder, ShapeReader* reader, const SchemaOptions& options, bool shortest_numbers);

  // The symbol derives one value of the set. All its rules are defined when write() has returned ok.
  Result<SymbolId> symbol_of(ValueId value);
  Result<SymbolId> write(ValueId value);
  SymbolId object(std::span<const SymbolId> bodies, bool may_be_empty);

 private:
  struct Pair {  // a listed property
    const ObjectShape::Property* property;
    RegexId key;  // its text up to the value
    SymbolId value;
    bool is_required;
  };
  struct Body {  // what stands between brackets: at least one part, or nothing
    SymbolId filled = GrammarBuilder::kNothing;
    bool may_be_empty = false;
    uint8_t marks = 0;  // of the place behind the bracket
  };

  Result<SymbolId> body_of(const Shape& shape);
  RegexId scalars(const Shape& shape);
  RegexId numbers_of(const Shape& shape);
  // Strings as JSON, with quotes; `decoded` are their characters.
  RegexId string_regex(RegexId decoded);
  SymbolId bracketed(const char* open, const char* close, const Body& body);
  SymbolId rule(SymbolId body);
  // An item or a key that must differ.
  SymbolId distinct(SymbolId part, bool is_tight);
  RegexId after_comma(RegexId regex) { return pool_.concat(comma_, regex); }

  // --- object_rules.cpp ---
  // Unlisted pairs, by which of the object's `some` each is known to be in (bits).
  struct OpenPairs {
    std::vector<SymbolId> by_some;  // kNothing where there is none
    uint8_t marks = 0;
    SymbolId any() const { return by_some[0]; }
    bool is_there() const { return any() != GrammarBuilder::kNothing; }
  };
  Result<Body> object_body(const ObjectShape& object);
  Status list_scarce_names(ObjectShape* object);
  Result<OpenPairs> open_pairs(const ObjectShape& object);
  Body plain(std::span<const Pair> pairs, SymbolId open);
  SymbolId pair(RegexId key, SymbolId value, bool with_comma);
  SymbolId with_comma(SymbolId symbol) { return builder_.sequence({builder_.terminal(comma_), symbol}); }
  SymbolId open_tail(SymbolId open, uint32_t num_before, uint32_t min, uint32_t max);

  // --- counted_objects.cpp ---
  struct Counts;
  Result<Body> counted(const ObjectShape& object, std::span<const Pair> pairs, const OpenPairs& open);
  Result<std::vector<SymbolId>> values_by_some(const ObjectShape& object, const Pair& pair);
  std::vector<SymbolId> counted_tails(const Counts& counts, const OpenPairs& open);

  // --- array_rules.cpp ---
  struct ArrayState {
    uint32_t position;
    std::vector<uint32_t> counts;  // of items that each `contains` has found
    uint32_t used;                 // bits of the listed values that are there
    auto operator<=>(const ArrayState&) const = default;
  };
  struct ItemOption {
    SymbolId item;
    ArrayState next;
    bool is_scarce = false;  // of a marked one
  };
  struct ListedValues {
    std::vector<std::string> values;                                      // texts; equal numbers have one
    std::map<ValueId, std::vector<std::pair<std::string, uint32_t>>> of;  // text and index of each value of a set
  };
  Result<Body> array_body(const ArrayShape& array);
  Result<Body> plain_items(const ArrayShape& array, bool are_distinct);
  Result<Body> distinct_items(const ArrayShape& array);
  Result<Body> item_machine(const ArrayShape& array, bool are_marked);
  Status simplify(ArrayShape* array);
  Status options_at(const ArrayShape& array, const ArrayState& state, ListedValues* listed, bool are_marked,
                    std::vector<ItemOption>* out);
  Result<bool> list_values(ValueId value, ListedValues* listed);
  bool implies(ValueId item, ValueId contained);

  // --- value_counts.cpp ---
  bool is_scarce(ValueId value);
  bool never_stuck(RegexId texts);
  // Whether it is known that so many values, or more, are in the set.
  bool has_values(ValueId value, uint32_t least, uint32_t depth = 0);
  bool has_arrays(const ArrayShape& array, uint32_t least, uint32_t depth);
  bool has_objects(const ObjectShape& object, uint32_t least, uint32_t depth);

  static constexpr uint32_t kStatesMax = 4096;  // of one object or array that counts
  static constexpr uint32_t kListedMax = 8;     // values of unique items
  static constexpr uint32_t kListedNamesMax = 16;
  static constexpr uint32_t kSomeMax = 4;
  static constexpr uint32_t kCountDepthMax = 4;

  GrammarBuilder& builder_;
  RegexPool& pool_;
  ShapeReader& reader_;
  const SchemaOptions& options_;
  RegexId number_texts_ = RegexPool::kNothing;  // that may be written; kNothing: all
  ByteReplacer escaped_;
  RegexId spaces_, comma_, colon_;
  std::map<ValueId, SymbolId> symbols_;
  std::deque<ValueId> to_define_;
  std::map<RegexId, bool> never_stuck_;
};

}  // namespace llmrt
