// What a client wants the content of an answer to be, in one of the languages for it. A plain value.
#pragma once

#include <boost/json.hpp>

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/grammar/grammar_builder.h"
#include "core/grammar/grammar_names.h"
#include "core/grammar/json_schema.h"

namespace llmrt {

struct GrammarSource {
  enum class Dialect : uint8_t { kJsonObject, kJsonSchema, kRegex, kChoice, kGbnf, kLark };
  Dialect dialect = Dialect::kJsonObject;
  boost::json::value schema = {};         // kJsonSchema
  std::string text = {};                  // kRegex (the whole answer), kGbnf, kLark
  std::vector<std::string> choices = {};  // kChoice
  SchemaOptions::Spaces spaces = SchemaOptions::Spaces::kDefault;

  // Everything that the language depends on.
  std::string key() const;
};

// "::=" stands in every GBNF rule, and in no Lark grammar outside of literals.
GrammarSource::Dialect grammar_dialect(std::string_view text);

Result<SymbolId> add_source(GrammarBuilder* builder, const GrammarSource& source, const GrammarNames& names,
                            SchemaNotes* notes);

}  // namespace llmrt
