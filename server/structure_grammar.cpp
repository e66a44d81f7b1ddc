// The grammar of an answer that follows from its structure, and what the client is told of it.
#include <algorithm>

#include "core/base/sha256.h"
#include "core/grammar/spelled_rules.h"
#include "core/text/tokenizer.h"
#include "server/structure.h"

namespace llmrt::server {
namespace {

constexpr size_t kNoteBytesMax = 200;

// Whether the model opens thoughts by itself: its template or its vocabulary knows their mark. Another one that may
// write the mark instead of content would, as it is the only text that is free.
bool may_think(const ServedModel& model) {
  const std::string& open = model.chat_format->format->thought.open;
  if (open.empty() || model.chat_format->has_token(open)) return true;
  return model.tokenizer->vocabulary().chat_template.find(open) != std::string::npos;
}

class StructureRules {
 public:
  StructureRules(GrammarBuilder* builder, const AnswerStructure& structure, const ServedModel& model)
      : builder_(*builder),
        structure_(structure),
        model_(model),
        names_{[this](std::string_view text) { return model_.tokenizer->find_special(text); },
               static_cast<uint32_t>(model.tokenizer->vocab_size())} {}

  // The answer of a chat, or the content alone.
  Status write(bool chat) {
    std::optional<SymbolId> content;
    if (structure_.content) {
      Result<SymbolId> symbol = add_source(&builder_, *structure_.content, names_, &notes_);
      if (!symbol.ok()) return symbol.error();
      content = *symbol;
    }
    take_notes();
    if (!chat || !model_.chat_format) {
      builder_.set_start(*content);
      return builder_.status();
    }
    Result<AnswerSpec> spec = spec_of(content);
    if (!spec.ok()) return spec.error();
    Result<SymbolId> answer = answer_grammar(&builder_, *model_.chat_format, *spec);
    if (!answer.ok()) return answer.error();
    take_notes();
    builder_.set_start(*answer);
    return builder_.status();
  }

 private:
  Result<AnswerSpec> spec_of(std::optional<SymbolId> content) {
    AnswerSpec spec;
    spec.content = content;
    spec.start = structure_.start;
    spec.parallel = structure_.parallel;
    spec.may_think = may_think(model_);
    spec.choice = structure_.choice;
    if (spec.choice == AnswerSpec::Choice::kNamed) spec.named = structure_.allowed[0];
    // What must be called is called as its schema says, strict or not.
    const bool must_call = spec.choice == AnswerSpec::Choice::kRequired || spec.choice == AnswerSpec::Choice::kNamed;
    for (const Tool& tool : structure_.tools) {
      if (!structure_.may_call(tool.name) || spec.choice == AnswerSpec::Choice::kNone) continue;
      spec.tools.push_back({tool.name, tool.parameters, tool.is_strict || must_call});
      if (!tool.input) continue;
      auto input = input_of(*tool.input);
      if (!input.ok()) return make_error(input.error().code, "tool {}: format: {}", tool.name, input.error().message);
      spec.tools.back().input = *input;
    }
    spec.values = json_schema_values({.spaces = SchemaOptions::Spaces::kOneSpace}, &notes_);
    spec.values.begin_tool = [this](const ToolGrammar& tool) {
      take_notes();
      tool_ = tool.name;
    };
    return spec;
  }

  Result<ToolGrammar::Input> input_of(const GrammarSource& source) {
    Result<SymbolId> text = add_source(&builder_, source, names_, &notes_);
    if (!text.ok()) return text.error();
    Result<SymbolId> in_json = json_spelled(&builder_, *text);
    if (!in_json.ok()) return in_json.error();
    return ToolGrammar::Input{*text, *in_json};
  }

  void take_notes() {
    for (std::string& text : notes_.ignored) builder_.note({tool_, std::move(text)});
    notes_.ignored.clear();
  }

  GrammarBuilder& builder_;
  const AnswerStructure& structure_;
  const ServedModel& model_;
  const GrammarNames names_;
  SchemaNotes notes_;
  std::string tool_;  // that notes are of
};

}  // namespace

GrammarJob grammar_job(std::shared_ptr<const AnswerStructure> structure, const ServedModel& model, bool chat,
                       std::string salt) {
  GrammarJob job;
  job.key = to_hex(Sha256().add_text(chat ? "chat" : "text").add_text(structure->key()).finish());
  job.salt = std::move(salt);
  job.build = [structure = std::move(structure), &model, chat](GrammarBuilder* builder) {
    return StructureRules(builder, *structure, model).write(chat);
  };
  return job;
}

ApiError structure_error(const AnswerStructure& structure, const Error& error) {
  ApiError out = to_api_error(error);
  const bool is_busy = error.code == ErrorCode::kOverloaded || error.code == ErrorCode::kCancelled;
  if (is_busy) return out;
  out.param = structure.content ? structure.content_field : "tools";
  out.message = fmt::format("{}: {}", out.param, out.message);
  return out;
}

std::vector<Warning> structure_warnings(const AnswerStructure& structure, const TokenConstraint& constraint) {
  std::vector<Warning> warnings;
  for (const ConstraintNote& note : constraint.notes()) {
    std::string param = structure.content_field;
    if (!note.tool.empty()) {
      const auto tool = std::ranges::find(structure.tools, note.tool, &Tool::name);
      param = fmt::format("tools[{}].function.parameters", tool - structure.tools.begin());
    }
    size_t end = std::min(note.text.size(), kNoteBytesMax);
    while (end > 0 && end < note.text.size() && (static_cast<unsigned char>(note.text[end]) & 0xC0) == 0x80) --end;
    warnings.push_back({std::move(param), fmt::format("{}: no draft of JSON Schema has this keyword: it has no effect",
                                                      std::string_view(note.text).substr(0, end))});
  }
  return warnings;
}

}  // namespace llmrt::server
