// The subset of Lark's grammars that can be followed exactly: rules, terminals, literals (with the flag i), ranges,
// regular expressions, groups, options, repetitions, %ignore, %import of common terminals, %json {schema}, and single
// special tokens
// (<name>, <[id]>). Terminals are not tried longest first and priorities decide nothing: every way to read a text is
// followed. Refused by name: templates, %declare, %override, %extend, other imports, flags other than i of strings and
// s of expressions.
#pragma once

#include <boost/json.hpp>

#include <functional>
#include <string_view>

#include "core/base/status.h"
#include "core/grammar/grammar_builder.h"
#include "core/grammar/grammar_names.h"

namespace llmrt {

struct LarkOptions {
  const GrammarNames& names;
  // %json {...}: the symbol of a schema's values.
  std::function<Result<SymbolId>(GrammarBuilder*, const boost::json::value& schema)> add_json;
};

// The rule `start`. kInvalidArgument with line and column; kUnsupportedSchema for what is refused.
Result<SymbolId> add_lark(GrammarBuilder* builder, std::string_view text, const LarkOptions& options);

}  // namespace llmrt
