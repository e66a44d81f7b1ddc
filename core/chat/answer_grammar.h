// The grammar of answers that follows from a chat format: thoughts, free text or content, calls. What it derives, the
// parser (answer_parser.h) reads as exactly that: tolerances widen the parser only.
//
// Marks that are tokens in the vocabulary are written as tokens, never as text; every token of the format is excluded
// from text. Where marks are text, free text is what holds none of them. End tokens are not written, but where the end
// of a call is one: the engine allows them where the grammar accepts.
#pragma once

#include <boost/json.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/chat/prompt_state.h"
#include "core/chat/resolved_format.h"
#include "core/grammar/grammar_builder.h"

namespace llmrt {

struct ToolGrammar {
  std::string name;
  boost::json::value parameters = nullptr;  // schema of the arguments
  bool strict = false;                      // the schema holds; else any arguments of the format's kind
  std::optional<SymbolId> args = {};        // JSON formats only: a grammar of the arguments, in place of all that
  // Rules of the text of "input", the one argument, in place of what its schema says of it.
  struct Input {
    SymbolId text;     // without special tokens
    SymbolId in_json;  // the same, spelled for a JSON string
  };
  std::optional<Input> input = {};
};

// How values are written; JSON Schema's compiler, or less in tests.
struct ValueGrammars {
  std::function<Result<SymbolId>(GrammarBuilder*, const boost::json::value& schema)> schema = {};
  std::function<SymbolId(GrammarBuilder*)> any_object = {};
  std::function<SymbolId(GrammarBuilder*)> any_value = {};
  std::function<void(const ToolGrammar&)> begin_tool = {};  // what follows is of this one; may be null
};
struct SchemaOptions;
struct SchemaNotes;
// `notes` may be null, and must live as long as the answer's grammar is made.
ValueGrammars json_schema_values(const SchemaOptions& options, SchemaNotes* notes);

struct AnswerSpec {
  enum class Choice : uint8_t {
    kNone,      // no calls; their tokens are in no text
    kAuto,      // text, content or calls
    kRequired,  // at least one call
    kNamed,     // one call, of `named`
  };
  std::vector<ToolGrammar> tools = {};
  Choice choice = Choice::kAuto;
  std::string named = {};
  bool parallel = true;
  std::optional<SymbolId> content = {};  // in place of free text (response_format)
  AnswerStart start = AnswerStart::kText;
  bool may_think = true;  // where the prompt has opened no thought, the model may
  ValueGrammars values = {};
};

// Errors: kInvalidArgument (a tool's name cannot be written in the format, choice without its tool), kUnsupportedSchema
// (with tool, JSON pointer, keyword), and the builder's own.
Result<SymbolId> answer_grammar(GrammarBuilder* builder, const ResolvedFormat& format, const AnswerSpec& spec);

}  // namespace llmrt
