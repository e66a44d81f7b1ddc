// The rules of a text as rules of the same text inside a JSON string, between its quotes. One thread, that of the
// builder.
#pragma once

#include "core/base/status.h"
#include "core/grammar/grammar_builder.h"

namespace llmrt {

// Each terminal is replaced by its spelling (json_spelling.h), which is exact: a text is spelled byte by byte. Rules
// are copied, recursion with them. kUnsupportedSchema: a single special token is part of it, and no JSON string holds
// one.
Result<SymbolId> json_spelled(GrammarBuilder* builder, SymbolId symbol);

}  // namespace llmrt
