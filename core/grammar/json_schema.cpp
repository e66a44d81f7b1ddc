#include "core/grammar/json_schema.h"

#include "core/grammar/schema/schema_rules.h"

namespace llmrt {

Result<SymbolId> add_json_schema(GrammarBuilder* builder, const boost::json::value& schema,
                                 const SchemaOptions& options, SchemaNotes* notes) {
  if (!schema.is_object() && !schema.is_bool()) {
    return make_error(ErrorCode::kInvalidArgument, "invalid schema: expected an object or a boolean");
  }
  Result<SchemaDocument> document = SchemaDocument::read(schema, options.limits);
  if (!document) return document.error();
  ShapeReader reader(builder, *std::move(document), options, notes);
  Result<SymbolId> symbol = SchemaRules(builder, &reader, options, notes).write(reader.root());
  if (symbol && builder->regexes().failed()) {
    return make_error(ErrorCode::kGrammarTooComplex,
                      "schema too complex: its regular expressions need too many states");
  }
  if (symbol && !builder->status()) return builder->status().error();
  return symbol;
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
