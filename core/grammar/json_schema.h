// JSON Schema as rules of a grammar: every text that the rules derive is one JSON value that the schema accepts. Drafts
// 2020-12 (the default), 2019-09 and 7 (by $schema; 6 and 4 are read as 7). All keywords of a schema are one
// conjunction, whichever stand beside each other. What cannot be written exactly is refused by JSON pointer, keyword
// and reason; nothing is ignored silently.
//
// The texts are one spelling of each value: keys in a fixed order (properties, then required ones that are not listed,
// in the schema's order, then the rest), integers without a fraction, numbers without an exponent, each character in
// its shortest escape. That items, or keys that are not listed, of one container differ is not in the rules: they are
// marked (PlaceMark in grammar_builder.h), and TextPosition tells where a text may go on.
//
// The schema is parsed with boost::json::number_precision::precise: else its numbers are not what it says. It need not
// live longer than the call. One thread. Bounded by SchemaLimits and the builder's own limits.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/grammar/grammar_builder.h"

namespace llmrt {

struct SchemaLimits {
  size_t schema_bytes_max = 4 << 20;
  uint32_t depth_max = 64;  // nesting of the schema's JSON
  uint32_t properties_max = 512;
  uint32_t enum_max = 4096;
  uint32_t repetition_max = 1024;   // of items and unlisted properties; lengths of strings are counters up to 2^31 - 1
  uint32_t alternatives_max = 512;  // shapes of arrays, and of objects, that one value may have
  uint32_t work_max = 4'000'000;    // merged properties, items and classes of names
};

struct SchemaOptions {
  // Where JSON allows white space, but for the text's ends. kDefault: nothing, one space, or one newline and up to 64
  // blanks or tabs. kOneSpace: nothing or a
  // space, as most models write arguments. kAny: any amount.
  enum class Spaces : uint8_t { kDefault, kCompact, kOneSpace, kAny };
  Spaces spaces = Spaces::kDefault;
  bool lenient = false;        // what would be refused is dropped, and noted
  bool coerce_one_of = false;  // oneOf that cannot be written exactly is read as anyOf
  SchemaLimits limits = {};
};

struct SchemaNotes {
  std::vector<std::string> ignored;  // keywords that no draft knows, and what `lenient` dropped: "/pointer: keyword"
};

// Adds the rules; the symbol derives one value. Errors: kUnsupportedSchema; kInvalidArgument where the schema itself
// breaks its draft; kGrammarTooComplex beyond the limits, and the builder's own.
Result<SymbolId> add_json_schema(GrammarBuilder* builder, const boost::json::value& schema,
                                 const SchemaOptions& options, SchemaNotes* notes);

// Any JSON value, of any depth; any JSON object.
SymbolId add_any_json(GrammarBuilder* builder, const SchemaOptions& options);
SymbolId add_any_json_object(GrammarBuilder* builder, const SchemaOptions& options);

}  // namespace llmrt
