// Schemas as shapes: what every keyword says of a value, as a conjunction. Only the keywords that stand at the value
// itself are read (with what they apply in place: $ref, allOf, anyOf and the like); those of properties and items
// become sets of values that are read when somebody asks. Shapes are kept: a schema is read once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/grammar/json_schema.h"
#include "core/grammar/numbers.h"
#include "core/grammar/schema/algebra.h"
#include "core/grammar/schema/document.h"

namespace llmrt {

class ShapeReader {
 public:
  // All must outlive it. Notes may be null.
  ShapeReader(GrammarBuilder* builder, SchemaDocument document, const SchemaOptions& options, SchemaNotes* notes);

  ValueTable& values() { return values_; }
  ShapeAlgebra& algebra() { return algebra_; }
  ValueId root() { return values_.schema(document_.root()); }

  // The shape stays where it is as long as this does.
  Result<const Shape*> shape_of(ValueId value);
  // Whether it is known that no value is in the set. Looks a few levels down.
  bool is_known_empty(ValueId value);

  // A keyword's place for messages, and the refusal of what it asks for.
  struct Place {
    std::string pointer, keyword;
  };
  Error refuse(PlaceId place, std::string_view reason) const;
  // Refused, or in lenient mode noted: then ok.
  Status refuse_or_drop(PlaceId place, std::string_view reason);
  // The same of a set of values, for what is no single keyword's fault.
  Status refuse_or_drop_in(ValueId value, std::string_view reason);

 private:
  // How a node is read: tracked shapes know which properties and items a keyword has looked at, and keep alternatives
  // apart that differ only in that; strict ones are read for a complement, where dropping a keyword would be wrong.
  struct Mode {
    bool tracked = false, strict = false;
    auto operator<=>(const Mode&) const = default;
  };
  struct Schema {  // what readers of keywords get
    const SchemaPlace& place;
    const boost::json::object& members;
    Mode mode;
    Draft draft;

    bool is_old() const { return draft == Draft::k7 || draft == Draft::k4; }
    const boost::json::value* find(std::string_view keyword) const { return members.if_contains(keyword); }
    Error invalid(std::string_view keyword, std::string_view reason) const {
      return invalid_schema(place.pointer, keyword, reason);
    }
  };
  using Part = Result<Shape>;
  using Reader = Part (ShapeReader::*)(const Schema&);
  struct KeywordGroup;
  static const std::vector<KeywordGroup>& keyword_groups();

  // --- shape_reader.cpp ---
  Result<Shape> read_value(ValueId value, Mode mode);
  Result<const Shape*> node_shape(NodeId id, Mode mode);
  Result<Shape> read_node(NodeId id, Mode mode);
  Result<Shape> without(Shape shape, NodeId id, Mode mode);
  Result<Shape> read_schema(const SchemaPlace& place, Mode mode);
  Status apply(const Schema& schema, std::string_view keyword, Mode mode, const std::function<Part()>& read,
               Shape* shape);
  void note_unknown(const Schema& schema);
  void note(std::string_view pointer, std::string_view keyword);
  PlaceId place_of(const Schema& schema, std::string_view keyword);
  Result<ValueId> value_at(const Schema& schema, const boost::json::value& value, std::string_view keyword,
                           std::string_view token = {});
  SchemaPlace target_of(const SchemaPlace& place) const;
  bool is_shape_empty(const Shape& shape);

  // --- scalar_keywords.cpp ---
  Part read_type(const Schema& schema);
  Part read_enum(const Schema& schema);
  Part read_const(const Schema& schema);
  Part read_lengths(const Schema& schema);
  Part read_pattern(const Schema& schema);
  Part read_format(const Schema& schema);
  Part read_bounds(const Schema& schema);
  Part read_multiple(const Schema& schema);
  Result<Shape> literal(const SchemaPlace& place);
  Part strings(RegexId regex);
  Part numbers(RegexId regex);
  Result<std::optional<Decimal>> number_at(const Schema& schema, std::string_view keyword);
  Result<std::optional<uint32_t>> count_at(const Schema& schema, std::string_view keyword);

  // --- array_keywords.cpp ---
  Part read_items(const Schema& schema);
  Part read_item_counts(const Schema& schema);
  Part read_contains(const Schema& schema);
  Part read_unique(const Schema& schema);
  Part arrays(ArrayShape array);
  Status read_unevaluated_items(const Schema& schema, Shape* shape);

  // --- object_keywords.cpp ---
  Part read_properties(const Schema& schema);
  Part read_names(const Schema& schema);
  Part read_required(const Schema& schema);
  Part read_property_counts(const Schema& schema);
  Part objects(ObjectShape object);
  Status add_pattern(const Schema& schema, std::string_view pattern, ValueId value, ObjectShape* object);
  Status read_unevaluated_properties(const Schema& schema, Shape* shape);

  // --- applicators.cpp ---
  Part read_ref(const Schema& schema);
  Part read_all_of(const Schema& schema);
  Part read_any_of(const Schema& schema);
  Part read_one_of(const Schema& schema);
  Part read_not(const Schema& schema);
  Part read_if(const Schema& schema);
  Part read_dependencies(const Schema& schema);
  Part read_refused(const Schema& schema);
  Result<std::vector<ValueId>> list_at(const Schema& schema, std::string_view keyword);
  Part add_dependency(const Schema& schema, std::string_view keyword, std::string_view name,
                      const boost::json::value& value, const Shape& so_far);
  Result<Shape> exactly_one(const std::vector<Shape>& parts, const std::vector<ValueId>& values,
                            const SchemaPlace& from);
  Shape requiring(std::string_view name, ValueId value, bool is_required);

  static constexpr uint32_t kNestingMax = 200;  // of keywords that apply in place, references included
  static constexpr uint32_t kHopsMax = 32;      // from reference to reference
  static constexpr uint32_t kEmptyDepth = 3;    // levels that is_known_empty looks down

  RegexPool& pool_;
  SchemaDocument document_;
  const SchemaOptions& options_;
  SchemaNotes* notes_;
  GrammarBuilder& builder_;
  SchemaWork work_;
  ValueTable values_;
  ShapeAlgebra algebra_;
  std::vector<Place> places_{1};
  std::map<ValueId, std::unique_ptr<Shape>> shapes_;
  std::map<std::pair<NodeId, Mode>, std::unique_ptr<Shape>> node_shapes_;
  std::set<std::pair<NodeId, Mode>> reading_;
  std::set<ValueId> known_empty_, known_filled_, testing_;
  std::set<std::string> noted_;
  uint32_t nesting_ = 0;
};

}  // namespace llmrt
