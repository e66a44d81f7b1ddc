// GBNF, the grammars of llama.cpp: rules of literals, character classes, groups, repetitions and single tokens
// (<[1234]>, <token>). Refused by name: !<token>.
#pragma once

#include <string_view>

#include "core/base/status.h"
#include "core/grammar/grammar_builder.h"
#include "core/grammar/grammar_names.h"

namespace llmrt {

// The rule `root`. kInvalidArgument with line and column.
Result<SymbolId> add_gbnf(GrammarBuilder* builder, std::string_view text, const GrammarNames& names);

}  // namespace llmrt
