#include "core/grammar/json_schema.h"

#include <algorithm>

#include "core/grammar/schema/schema_rules.h"

namespace llmrt {
namespace {

// Anywhere: a reference may lead to any part. The nesting is that of a schema, which is bounded.
bool mentions_unique(const boost::json::value& value) {
  if (const auto* list = value.if_array()) return std::ranges::any_of(*list, mentions_unique);
  const auto* members = value.if_object();
  if (members == nullptr) return false;
  const boost::json::value* unique = members->if_contains("uniqueItems");
  if (unique != nullptr && unique->is_bool() && unique->get_bool()) return true;
  return std::ranges::any_of(*members, [](const auto& member) { return mentions_unique(member.value()); });
}

}  // namespace

Result<SymbolId> add_json_schema(GrammarBuilder* builder, const boost::json::value& schema,
                                 const SchemaOptions& options, SchemaNotes* notes) {
  if (!schema.is_object() && !schema.is_bool()) {
    return make_error(ErrorCode::kInvalidArgument, "invalid schema: expected an object or a boolean");
  }
  Result<SchemaDocument> document = SchemaDocument::read(schema, options.limits);
  if (!document) return document.error();
  ShapeReader reader(builder, *std::move(document), options, notes);
  Result<SymbolId> symbol = SchemaRules(builder, &reader, options, mentions_unique(schema)).write(reader.root());
  if (symbol && builder->regexes().failed()) {
    return make_error(ErrorCode::kGrammarTooComplex,
                      "schema too complex: its regular expressions need too many states");
  }
  if (symbol && !builder->status()) return builder->status().error();
  if (!symbol || !builder->has_marks()) return symbol;
  return builder->sequence({builder->mark(static_cast<uint8_t>(PlaceMark::kValue)), *symbol});
}

namespace {

// Neither can be refused: what fails is in the builder's status.
SymbolId add_known(GrammarBuilder* builder, const boost::json::value& schema, const SchemaOptions& options) {
  Result<SymbolId> symbol = add_json_schema(builder, schema, options, nullptr);
  if (symbol) return *symbol;
  builder->fail(symbol.error());
  return GrammarBuilder::kNothing;
}

}  // namespace

SymbolId add_any_json(GrammarBuilder* builder, const SchemaOptions& options) {
  return add_known(builder, true, options);
}

SymbolId add_any_json_object(GrammarBuilder* builder, const SchemaOptions& options) {
  return add_known(builder, {{"type", "object"}}, options);
}

}  // namespace llmrt
