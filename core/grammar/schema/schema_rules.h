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
  SchemaRules(GrammarBuilder* builder, ShapeReader* reader, const SchemaOptions& options, SchemaNotes* notes);

  // The symbol derives one value of the set. All its rules are defined when write() has returned ok.
  Result<SymbolId> symbol_of(ValueId value);
  Result<SymbolId> write(ValueId value);
  SymbolId object(std::span<const SymbolId> bodies, bool may_be_empty);

 private:
  struct Pair {   // a listed property
    RegexId key;  // its text up to the value
    SymbolId value;
    bool is_required;
  };
  struct Body {  // what stands between brackets: at least one part, or nothing
    SymbolId filled = GrammarBuilder::kNothing;
    bool may_be_empty = false;
  };

  Result<SymbolId> body_of(const Shape& shape);
  RegexId scalars(const Shape& shape);
  // Strings as JSON, with quotes; `decoded` are their characters.
  RegexId string_regex(RegexId decoded);
  SymbolId bracketed(const char* open, const char* close, const Body& body);
  SymbolId rule(SymbolId body);
  RegexId after_comma(RegexId regex) { return pool_.concat(comma_, regex); }

  // --- object_rules.cpp ---
  Result<Body> object_body(const ObjectShape& object);
  Result<SymbolId> open_pair(const ObjectShape& object);
  Body plain(std::span<const Pair> pairs, SymbolId open);
  Result<Body> counted(std::span<const Pair> pairs, SymbolId open, uint32_t min, uint32_t max, PlaceId place);
  SymbolId pair(const Pair& pair, bool with_comma);
  SymbolId with_comma(SymbolId symbol) { return builder_.sequence({builder_.terminal(comma_), symbol}); }
  SymbolId open_tail(SymbolId open, uint32_t num_before, uint32_t min, uint32_t max);

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
  };
  struct ListedValues {
    std::vector<std::string> values;                                      // texts; equal numbers have one
    std::map<ValueId, std::vector<std::pair<std::string, uint32_t>>> of;  // text and index of each value of a set
  };
  Result<Body> array_body(const ArrayShape& array);
  Result<Body> plain_items(const ArrayShape& array);
  Result<Body> item_machine(const ArrayShape& array);
  Status simplify(ArrayShape* array);
  Status options_at(const ArrayShape& array, const ArrayState& state, ListedValues* listed,
                    std::vector<ItemOption>* out);
  Result<bool> list_values(ValueId value, ListedValues* listed);
  bool implies(ValueId item, ValueId contained);

  static constexpr uint32_t kStatesMax = 4096;  // of one object or array that counts
  static constexpr uint32_t kListedMax = 8;     // values of unique items

  GrammarBuilder& builder_;
  RegexPool& pool_;
  ShapeReader& reader_;
  const SchemaOptions& options_;
  SchemaNotes* notes_;
  ByteReplacer escaped_;
  RegexId spaces_, comma_, colon_;
  std::map<ValueId, SymbolId> symbols_;
  std::deque<ValueId> to_define_;
  std::set<SymbolId> noted_keys_;
};

}  // namespace llmrt
