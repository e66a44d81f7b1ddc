// Pieces of the grammar of answers: marks, text without marks, one call of a tool.
#pragma once

#include <string>
#include <vector>

#include "core/chat/answer_grammar.h"

namespace llmrt {

class FormatSymbols {
 public:
  FormatSymbols(GrammarBuilder* builder, const ResolvedFormat& format) : b_(*builder), resolved_(format) {}

  // A mark as it must be written; kEmpty for an empty one.
  SymbolId mark(std::string_view text);
  // Text that holds none of these marks, as far as they are text; a terminal.
  RegexId without(const std::vector<std::string>& marks);
  // Text of `base` without a mark, then the mark.
  SymbolId text_then(RegexId base, std::string_view mark, const std::vector<std::string>& forbidden);
  SymbolId blanks(uint32_t max);
  GrammarBuilder& builder() { return b_; }
  const ResolvedFormat& resolved() const { return resolved_; }
  const ChatFormat& format() const { return *resolved_.format; }

 private:
  GrammarBuilder& b_;
  const ResolvedFormat& resolved_;
};

// A custom tool's input as JSON.
SymbolId json_string(GrammarBuilder* builder, const ToolGrammar::Input& input);

// One call of `tool` between its opening and its close, neither included: name, id, arguments.
Result<SymbolId> call_body(FormatSymbols* symbols, const ToolGrammar& tool, const ValueGrammars& values);

// Arguments between marks, as keywords or in Gemma's notation (notation_grammar.cpp).
Result<SymbolId> tagged_args(FormatSymbols* symbols, const ToolGrammar& tool, const ValueGrammars& values);
Result<SymbolId> pythonic_args(FormatSymbols* symbols, const ToolGrammar& tool, const ValueGrammars& values);
Result<SymbolId> gemma_args(FormatSymbols* symbols, const ToolGrammar& tool, const ValueGrammars& values);

}  // namespace llmrt
