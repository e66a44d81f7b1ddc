// What an answer must look like, as the client asked for it: response_format and its other names, tools and
// tool_choice. Read field by field; what cannot be served is refused by name. The grammar follows from it.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/chat/answer_grammar.h"
#include "core/chat/prompt_state.h"
#include "core/grammar/grammar_compiler.h"
#include "core/grammar/grammar_source.h"
#include "server/fields.h"
#include "server/parse_context.h"
#include "server/served_model.h"

namespace llmrt::server {

inline constexpr size_t kToolsMax = 1024;
inline constexpr size_t kChoiceTextsMax = 4096;

struct Tool {
  std::string name;
  boost::json::value parameters = {};  // a schema of the arguments; null: any object
  bool is_strict = false;
  bool is_custom = false;                   // its one argument "input" is shown as bare text
  std::optional<GrammarSource> input = {};  // rules of that text, beside what `parameters` say of it
};

struct AnswerStructure {
  using Choice = AnswerSpec::Choice;

  std::optional<GrammarSource> content;
  std::string content_field;  // that asked for it, for errors
  std::vector<Tool> tools;
  Choice choice = Choice::kNone;
  std::vector<std::string> allowed;  // names that may be called; empty: all
  bool parallel = true;
  bool keeps_from_calls = false;                    // the model is told of tools, and must not call them
  AnswerStart start = AnswerStart::kText;           // of the rendered prompt
  std::optional<uint32_t> thought_tokens_max = {};  // no part of its grammar (server/thinking.h)

  bool is_custom(std::string_view tool) const;
  bool may_call(std::string_view tool) const;
  // Whether tokens are masked at all.
  bool is_constrained() const;
  // Everything that its grammar depends on, beside the model.
  std::string key() const;
};

// response_format, structured_outputs, guided_*, grammar, json_schema: at most one of them.
void read_content_structure(Fields& fields, AnswerStructure* structure);
// tools, tool_choice, parallel_tool_calls and their old names. `only_counting`: no answer follows.
void read_tools(Fields& fields, const ServedModel& model, bool only_counting, bool strict, AnswerStructure* structure,
                boost::json::array* for_template);

// The job for GrammarCompiler; not for an I/O thread where the schema is large. `model` lives as long as the job.
GrammarJob grammar_job(std::shared_ptr<const AnswerStructure> structure, const ServedModel& model, bool chat,
                       std::string salt);
// Something that was asked for and has no effect; the answer is served all the same.
struct Warning {
  std::string param, message;
};
// What the grammar's notes say to the client.
std::vector<Warning> structure_warnings(const AnswerStructure& structure, const TokenConstraint& constraint);
// A refusal of the compiler, as the field's.
ApiError structure_error(const AnswerStructure& structure, const Error& error);

}  // namespace llmrt::server
