#include "server/structure_source.h"

#include <array>

#include "core/chat/chat_format.h"
#include "server/json_reader.h"
#include "server/thinking.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

using Dialect = GrammarSource::Dialect;
constexpr std::array kDialects = {"json_object", "json_schema", "regex", "choice", "gbnf", "lark"};
constexpr std::array kSpaces = {"default", "compact", "one_space", "any"};
constexpr std::array kChoices = {"none", "auto", "required", "named"};
constexpr std::array kStarts = {"text", "thought", "after_thought", "header"};
constexpr size_t kSourceTextBytesMax = 1u << 20;

template <typename Enum, size_t kCount>
const char* name_of(const std::array<const char*, kCount>& names, Enum value) {
  return names[static_cast<size_t>(value)];
}

template <typename Enum, size_t kCount>
Enum read_name(Fields& fields, std::string_view field, const std::array<const char*, kCount>& names) {
  const std::string found = fields.string(field, 64).value_or("");
  const auto it = std::ranges::find(names, found);
  if (it == names.end())
    fields.fail(field, fmt::format("expected one of {}, found {}", fmt::join(names, ", "), shown_name(found)));
  return static_cast<Enum>(it == names.end() ? 0 : it - names.begin());
}

std::vector<std::string> read_texts(Fields& fields, std::string_view field, size_t count_max) {
  std::vector<std::string> texts;
  const json::array* found = fields.array(field, count_max);
  for (size_t i = 0; found && i < found->size(); ++i) {
    if (!(*found)[i].is_string()) fields.fail(field, "expected strings");
    if (!fields.failed()) texts.emplace_back((*found)[i].get_string());
  }
  return texts;
}

json::object content_json(const GrammarSource& content) {
  json::object out{{"dialect", name_of(kDialects, content.dialect)}, {"spaces", name_of(kSpaces, content.spaces)}};
  if (!content.schema.is_null()) out["schema"] = content.schema;
  if (!content.text.empty()) out["text"] = content.text;
  if (!content.choices.empty()) out["choices"] = json::value_from(content.choices);
  return out;
}

GrammarSource read_content(Fields& fields) {
  GrammarSource content;
  content.dialect = read_name<Dialect>(fields, "dialect", kDialects);
  content.spaces = read_name<SchemaOptions::Spaces>(fields, "spaces", kSpaces);
  if (const json::value* schema = fields.any("schema")) content.schema = *schema;
  content.text = fields.string("text", kSourceTextBytesMax).value_or("");
  content.choices = read_texts(fields, "choices", kChoiceTextsMax);
  return content;
}

void read_tool_list(Fields& fields, AnswerStructure* structure) {
  const json::array* tools = fields.array("tools", kToolsMax);
  for (size_t i = 0; tools && i < tools->size() && !fields.failed(); ++i) {
    if (!(*tools)[i].is_object()) return fields.fail("tools", "expected objects");
    Fields inner((*tools)[i].get_object(), fmt::format("tools[{}].", i));
    Tool tool{.name = inner.string("name", kSourceTextBytesMax).value_or("")};
    if (const json::value* parameters = inner.any("parameters")) tool.parameters = *parameters;
    tool.is_strict = inner.boolean("strict").value_or(false);
    tool.is_custom = inner.boolean("custom").value_or(false);
    if (const json::object* input = inner.object("input")) {
      Fields rules(*input, inner.full("input."));
      tool.input = read_content(rules);
      if (rules.error()) inner.fail(*rules.error());
    }
    if (inner.error()) return fields.fail(*inner.error());
    structure->tools.push_back(std::move(tool));
  }
}

AnswerStructure read_structure(Fields& fields) {
  AnswerStructure structure;
  if (const json::object* content = fields.object("content")) {
    Fields inner(*content, "content.");
    structure.content = read_content(inner);
    if (inner.error()) fields.fail(*inner.error());
  }
  read_tool_list(fields, &structure);
  structure.choice = read_name<AnswerStructure::Choice>(fields, "choice", kChoices);
  structure.start = read_name<AnswerStart>(fields, "start", kStarts);
  structure.allowed = read_texts(fields, "allowed", kToolsMax);
  structure.parallel = fields.boolean("parallel").value_or(true);
  structure.keeps_from_calls = fields.boolean("keeps_from_calls").value_or(false);
  if (const auto most = fields.integer("thought_tokens_max", 0, UINT32_MAX))
    structure.thought_tokens_max = static_cast<uint32_t>(*most);
  if (structure.choice == AnswerStructure::Choice::kNamed && structure.allowed.empty())
    fields.fail("allowed", "expected the tool that must be called");
  return structure;
}

Error wrong_source(const ApiError& error) {
  return make_error(ErrorCode::kInvalidArgument, "the grammar of the trace: {}: {}", error.param, error.message);
}

}  // namespace

std::string structure_source(const AnswerStructure& structure, const ServedModel& model, bool chat) {
  if (!structure.is_constrained() && !structure.thought_tokens_max) return {};
  json::array tools;
  for (const Tool& tool : structure.tools) {
    json::object one{{"name", tool.name}, {"strict", tool.is_strict}, {"custom", tool.is_custom}};
    if (!tool.parameters.is_null()) one["parameters"] = tool.parameters;
    if (tool.input) one["input"] = content_json(*tool.input);
    tools.push_back(std::move(one));
  }
  json::object out{{"chat_format", nullptr},
                   {"choice", name_of(kChoices, structure.choice)},
                   {"start", name_of(kStarts, structure.start)},
                   {"parallel", structure.parallel},
                   {"keeps_from_calls", structure.keeps_from_calls},
                   {"tools", std::move(tools)},
                   {"allowed", json::value_from(structure.allowed)}};
  if (chat && model.chat_format) out["chat_format"] = model.chat_format->format->name;
  if (structure.content) out["content"] = content_json(*structure.content);
  if (structure.thought_tokens_max) out["thought_tokens_max"] = *structure.thought_tokens_max;
  return json::serialize(out);
}

Result<std::shared_ptr<const TokenConstraint>> make_constraint(std::string_view source, const ServedModel& model) {
  size_t num_values = 0;
  Result<json::value> parsed = read_json(source, {}, &num_values);
  if (!parsed) return parsed.error();
  if (!parsed->is_object())
    return make_error(ErrorCode::kInvalidArgument, "the grammar of the trace: expected an object");
  Fields fields(parsed->get_object());
  auto structure = std::make_shared<AnswerStructure>(read_structure(fields));
  const auto format_name = fields.string("chat_format", 64);
  if (fields.error()) return wrong_source(*fields.error());
  ServedModel named = model;
  if (format_name) {
    Result<const ChatFormat*> format = find_chat_format(*format_name);
    if (!format) return format.error();
    named.chat_format =
        std::make_shared<const ResolvedFormat>(resolve_format(**format, marker_tokens(*named.tokenizer)));
  } else if (!structure->content) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the grammar of the trace: content: expected one without a chat format");
  }
  std::shared_ptr<const TokenConstraint> grammar;
  if (structure->is_constrained()) {
    auto compiled = named.grammars->compile(grammar_job(structure, named, format_name.has_value(), ""));
    if (!compiled) return compiled.error();
    grammar = *compiled;
  }
  return with_thought_budget(std::move(grammar), *structure, named);
}

}  // namespace llmrt::server
