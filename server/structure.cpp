#include "server/structure.h"

#include <algorithm>

#include "core/base/sha256.h"
#include "core/text/tokenizer.h"
#include "server/json_reader.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

constexpr size_t kToolNameBytesMax = 256;
constexpr size_t kTextBytesMax = 1u << 20;  // of a description
constexpr int kSchemaDepthMax = 64;

bool is_name(const json::value& value, std::string_view name) {
  return value.is_string() && value.get_string() == name;
}

// ---- content -------------------------------------------------------------------------------------------------------

class ContentReader {
 public:
  ContentReader(Fields& fields, AnswerStructure* structure) : fields_(fields), structure_(*structure) {}

  void read() {
    read_response_format();
    read_structured_outputs();
    if (const json::value* schema = fields_.any("guided_json")) set_schema("guided_json", *schema);
    if (auto text = fields_.string("guided_regex", kPatternBytes)) set_text("guided_regex", Dialect::kRegex, *text);
    if (const json::array* choices = fields_.array("guided_choice", kChoiceTextsMax))
      set_choices("guided_choice", *choices);
    if (auto text = fields_.string("guided_grammar", kGrammarTextBytesMax)) set_grammar("guided_grammar", *text);
    if (auto text = fields_.string("grammar", kGrammarTextBytesMax); text && !text->empty())
      set_grammar("grammar", *text);
    if (const json::value* schema = fields_.any("json_schema")) set_schema("json_schema", *schema);
  }

 private:
  using Dialect = GrammarSource::Dialect;
  static constexpr size_t kPatternBytes = 64u << 10;

  bool may_set(std::string_view field) {
    if (fields_.failed()) return false;
    if (!structure_.content) {
      structure_.content_field = field;
      structure_.content.emplace();
      return true;
    }
    fields_.fail(
        field, fmt::format("expected one description of the answer, found {} and {}", structure_.content_field, field));
    return false;
  }
  void set_text(std::string_view field, Dialect dialect, std::string text) {
    if (!may_set(field)) return;
    structure_.content->dialect = dialect;
    structure_.content->text = std::move(text);
  }
  void set_grammar(std::string_view field, std::string text) {
    const Dialect dialect = grammar_dialect(text);
    set_text(field, dialect, std::move(text));
  }
  void set_object(std::string_view field) {
    if (may_set(field)) structure_.content->dialect = Dialect::kJsonObject;
  }
  // A schema, or the text of one.
  void set_schema(std::string_view field, const json::value& schema) {
    if (!may_set(field)) return;
    structure_.content->dialect = Dialect::kJsonSchema;
    if (!schema.is_string()) {
      structure_.content->schema = schema;
    } else if (auto parsed = read_json(schema.get_string(), {kSchemaDepthMax, size_t{1} << 17})) {
      structure_.content->schema = std::move(*parsed);
    } else {
      return fields_.fail(field, "expected a JSON schema, found a string that is no JSON");
    }
    const json::value& read = structure_.content->schema;
    if (!read.is_object() && !read.is_bool()) {
      fields_.fail(field, fmt::format("expected a JSON schema (an object), found {}", describe(read)));
    }
  }
  void set_choices(std::string_view field, const json::array& choices) {
    if (!may_set(field)) return;
    structure_.content->dialect = Dialect::kChoice;
    for (const json::value& choice : choices) {
      if (!choice.is_string()) return fields_.fail(field, fmt::format("expected strings, found {}", describe(choice)));
      structure_.content->choices.emplace_back(choice.get_string());
    }
    if (choices.empty()) fields_.fail(field, "expected at least one choice, found none");
  }

  void read_response_format() {
    const json::object* format = fields_.object("response_format");
    if (!format) return;
    Fields inner(*format, fields_.full("response_format") + ".");
    const std::string type = inner.string("type", 64).value_or("");
    if (type == "json_object") {
      const json::value* schema = inner.any("schema");  // as llama.cpp has it
      schema ? set_schema("response_format", *schema) : set_object("response_format");
    } else if (type == "json_schema") {
      const json::object* described = inner.object("json_schema");
      const json::value* schema = described ? described->if_contains("schema") : inner.any("schema");
      if (schema && !schema->is_null()) {
        set_schema("response_format", *schema);
      } else {
        inner.fail("json_schema", "expected an object with a schema, found nothing");
      }
    } else if (type != "text") {
      inner.fail("type", fmt::format("expected text, json_object or json_schema, found '{}'", shown_name(type)));
    }
    if (inner.error()) fields_.fail(*inner.error());
  }

  void read_structured_outputs() {
    const json::object* outputs = fields_.object("structured_outputs");
    if (!outputs) return;
    Fields inner(*outputs, fields_.full("structured_outputs") + ".");
    constexpr std::string_view kField = "structured_outputs";
    if (const json::value* schema = inner.any("json")) set_schema(kField, *schema);
    if (auto text = inner.string("regex", kPatternBytes)) set_text(kField, Dialect::kRegex, *text);
    if (const json::array* choices = inner.array("choice", kChoiceTextsMax)) set_choices(kField, *choices);
    if (auto text = inner.string("grammar", kGrammarTextBytesMax)) set_grammar(kField, *text);
    if (inner.boolean("json_object").value_or(false)) set_object(kField);
    inner.neutral(
        "structural_tag", [](const json::value&) { return false; }, "nothing; use tools");
    const bool is_compact = inner.boolean("disable_any_whitespace").value_or(false);
    if (structure_.content && is_compact) structure_.content->spaces = SchemaOptions::Spaces::kCompact;
    for (const char* name : {"whitespace_pattern", "disable_fallback", "disable_additional_properties"})
      inner.any(name);
    if (!inner.error() && !structure_.content) {
      inner.fail("json", "expected one of json, regex, choice, grammar and json_object, found none");
    }
    if (inner.error()) fields_.fail(*inner.error());
  }

  Fields& fields_;
  AnswerStructure& structure_;
};

// ---- tools ---------------------------------------------------------------------------------------------------------

// A custom tool is a function of one string to the model.
json::object custom_parameters(Fields& custom) {
  json::object input{{"type", "string"}};
  if (const json::object* format = custom.object("format")) {
    Fields inner(*format, custom.full("format") + ".");
    const std::string type = inner.string("type", 64).value_or("text");
    if (type == "grammar") {
      const json::object* grammar = inner.object("grammar");
      Fields told(grammar ? *grammar : *format, grammar ? inner.full("grammar") + "." : custom.full("format") + ".");
      const std::string syntax = told.string("syntax", 64).value_or("");
      const auto definition = told.string("definition", kGrammarTextBytesMax);
      if (syntax == "regex" && definition) {
        input["pattern"] = "^(?:" + *definition + ")$";
      } else {
        told.fail("syntax",
                  fmt::format("not supported: expected regex with a definition, found '{}': the input is written as a "
                              "JSON string, which other grammars do not describe",
                              shown_name(syntax)),
                  "unsupported");
      }
      if (told.error()) inner.fail(*told.error());
    } else if (type != "text") {
      inner.fail("type", fmt::format("expected text or grammar, found '{}'", shown_name(type)));
    }
    if (inner.error()) custom.fail(*inner.error());
  }
  return {{"type", "object"},
          {"properties", {{"input", std::move(input)}}},
          {"required", {"input"}},
          {"additionalProperties", false}};
}

class ToolsReader {
 public:
  ToolsReader(Fields& fields, bool strict) : fields_(fields), strict_(strict) {}

  // {type, function {name, description, parameters}} in the client's own order; what else it holds is dropped.
  void read(const json::value& value, size_t index, AnswerStructure* structure, json::array* for_template) {
    const std::string place = fmt::format("tools[{}]", index);
    if (!value.is_object()) return fields_.fail(place, fmt::format("expected an object, found {}", describe(value)));
    Fields fields(value.get_object(), place + ".");
    const std::string type = fields.string("type", 64).value_or("");
    Tool tool;
    json::object told;
    if (type == "function") {
      told = read_function(fields, &tool);
    } else if (type == "custom") {
      told = read_custom(fields, &tool);
    } else {
      fields.fail("type", fmt::format("not supported: expected function or custom, found '{}'", shown_name(type)),
                  "unsupported");
    }
    const bool is_twice = std::ranges::any_of(structure->tools, [&](const Tool& t) { return t.name == tool.name; });
    if (is_twice) fields.fail("function", fmt::format("the tool '{}' is there twice", shown_name(tool.name)));
    if (strict_) fields.refuse_unread();
    if (fields.error()) return fields_.fail(*fields.error());
    structure->tools.push_back(std::move(tool));
    for_template->push_back({{"type", "function"}, {"function", std::move(told)}});
  }

 private:
  json::object read_function(Fields& fields, Tool* tool) {
    json::object told;
    const json::object* function = fields.object("function");
    if (!function) {
      fields.fail("function", "expected an object, found nothing");
      return told;
    }
    Fields inner(*function, fields.full("function") + ".");
    read_name(inner, tool);
    inner.string("description", kTextBytesMax);
    if (const json::object* parameters = inner.object("parameters")) tool->parameters = *parameters;
    tool->is_strict = inner.boolean("strict").value_or(false) || fields.boolean("strict").value_or(false);
    if (strict_) inner.refuse_unread();
    if (inner.error()) fields.fail(*inner.error());
    for (const auto& member : *function) {
      const bool is_told = member.key() == "name" || member.key() == "description" || member.key() == "parameters";
      if (is_told && !member.value().is_null()) told[member.key()] = member.value();
    }
    return told;
  }
  json::object read_custom(Fields& fields, Tool* tool) {
    const json::object* custom = fields.object("custom");
    if (!custom) {
      fields.fail("custom", "expected an object, found nothing");
      return {};
    }
    Fields inner(*custom, fields.full("custom") + ".");
    read_name(inner, tool);
    const std::string description = inner.string("description", kTextBytesMax).value_or("");
    tool->is_custom = tool->is_strict = true;
    tool->parameters = custom_parameters(inner);
    if (inner.error()) fields.fail(*inner.error());
    return {{"name", tool->name}, {"description", description}, {"parameters", tool->parameters}};
  }
  static void read_name(Fields& fields, Tool* tool) {
    tool->name = fields.string("name", kToolNameBytesMax).value_or("");
    const bool is_fine = !tool->name.empty() && std::ranges::all_of(tool->name, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
             c == '.' || c == ':' || c == '/';
    });
    if (!is_fine) {
      fields.fail("name", "expected letters, digits and _ - . : /, found " +
                              (tool->name.empty() ? std::string("nothing") : "'" + shown_name(tool->name) + "'"));
    }
  }

  Fields& fields_;
  bool strict_;
};

// {type, function {name}}, {type, custom {name}}, or flat {type, name}.
std::string named_tool(Fields& fields, const json::object& choice) {
  for (const char* kind : {"function", "custom"}) {
    const json::value* inner = choice.if_contains(kind);
    const json::object* object = inner ? inner->if_object() : nullptr;
    const json::value* name = object ? object->if_contains("name") : nullptr;
    if (name && name->is_string()) return std::string(name->get_string());
  }
  if (const json::value* name = choice.if_contains("name"); name && name->is_string())
    return std::string(name->get_string());
  fields.fail("tool_choice", "expected the name of a tool, found none");
  return {};
}

void allow(Fields& fields, std::string name, AnswerStructure* structure) {
  if (fields.failed()) return;
  const bool is_there = std::ranges::any_of(structure->tools, [&](const Tool& tool) { return tool.name == name; });
  if (!is_there)
    return fields.fail("tool_choice", fmt::format("expected the name of a tool, found '{}'", shown_name(name)));
  structure->allowed.push_back(std::move(name));
}

void read_choice_object(Fields& fields, const json::object& choice, AnswerStructure* structure) {
  const json::value* type = choice.if_contains("type");
  if (!type || !is_name(*type, "allowed_tools")) {
    structure->choice = AnswerStructure::Choice::kNamed;
    return allow(fields, named_tool(fields, choice), structure);
  }
  const json::value* inner = choice.if_contains("allowed_tools");
  const json::object& allowed = inner && inner->is_object() ? inner->get_object() : choice;
  const json::value* mode = allowed.if_contains("mode");
  const bool is_required = mode && is_name(*mode, "required");
  if (mode && !is_required && !is_name(*mode, "auto"))
    return fields.fail("tool_choice", "mode: expected auto or required");
  structure->choice = is_required ? AnswerStructure::Choice::kRequired : AnswerStructure::Choice::kAuto;
  const json::value* tools = allowed.if_contains("tools");
  if (!tools || !tools->is_array() || tools->get_array().empty() || tools->get_array().size() > kToolsMax) {
    return fields.fail("tool_choice", "tools: expected a list of at least one tool");
  }
  for (const json::value& tool : tools->get_array()) {
    if (!tool.is_object()) return fields.fail("tool_choice", "tools: expected objects");
    allow(fields, named_tool(fields, tool.get_object()), structure);
  }
}

void read_choice(Fields& fields, AnswerStructure* structure) {
  using Choice = AnswerStructure::Choice;
  const json::value* choice = fields.any("tool_choice");
  const bool has_tools = !structure->tools.empty();
  structure->choice = has_tools ? Choice::kAuto : Choice::kNone;
  if (!choice) return;
  if (is_name(*choice, "none")) {
    structure->choice = Choice::kNone;
  } else if (is_name(*choice, "auto")) {
  } else if (!has_tools) {
    fields.fail("tool_choice", fmt::format("expected auto or none without tools, found {}", describe(*choice)));
  } else if (is_name(*choice, "required") || is_name(*choice, "any")) {
    structure->choice = Choice::kRequired;
  } else if (choice->is_object()) {
    read_choice_object(fields, choice->get_object(), structure);
  } else {
    fields.fail("tool_choice", fmt::format("expected auto, none, required or an object, found {}", describe(*choice)));
  }
}

// Whether the model opens thoughts by itself: its template or its vocabulary knows their mark. Another one that may
// write the mark instead of content would, as it is the only text that is free.
bool may_think(const ServedModel& model) {
  const std::string& open = model.chat_format->format->thought.open;
  if (open.empty() || model.chat_format->has_token(open)) return true;
  return model.tokenizer->vocabulary().chat_template.find(open) != std::string::npos;
}

}  // namespace

bool AnswerStructure::is_custom(std::string_view tool) const {
  const auto found = std::ranges::find(tools, tool, &Tool::name);
  return found != tools.end() && found->is_custom;
}

bool AnswerStructure::may_call(std::string_view tool) const {
  return allowed.empty() || std::ranges::find(allowed, tool) != allowed.end();
}

bool AnswerStructure::is_constrained() const {
  if (content || choice == Choice::kRequired || choice == Choice::kNamed) return true;
  if (choice == Choice::kNone) return keeps_from_calls;
  return !allowed.empty() || !parallel || std::ranges::any_of(tools, &Tool::is_strict);
}

std::string AnswerStructure::key() const {
  std::string key = fmt::format("{} {} {}|", static_cast<int>(choice), parallel, static_cast<int>(start));
  if (content) key += content->key();
  if (choice == Choice::kNone) return key;
  for (const Tool& tool : tools) {
    if (!may_call(tool.name)) continue;
    key += fmt::format("|{}:{} {} {}", tool.name.size(), tool.name, tool.is_strict, json::serialize(tool.parameters));
  }
  return key;
}

void read_content_structure(Fields& fields, AnswerStructure* structure) {
  ContentReader(fields, structure).read();
}

void read_tools(Fields& fields, const ServedModel& model, bool only_counting, bool strict, AnswerStructure* structure,
                json::array* for_template) {
  const json::array* tools = fields.array("tools", kToolsMax);
  ToolsReader reader(fields, strict);
  for (size_t i = 0; tools && i < tools->size() && !fields.failed(); ++i) {
    reader.read((*tools)[i], i, structure, for_template);
  }
  fields.neutral(
      "functions", [](const json::value& value) { return value.is_array() && value.get_array().empty(); },
      "[]; use tools");
  fields.neutral(
      "function_call", [](const json::value& value) { return is_name(value, "none") || is_name(value, "auto"); },
      "none or auto; use tool_choice");
  structure->parallel = fields.boolean("parallel_tool_calls").value_or(true);
  if (only_counting) {
    fields.any("tool_choice");
    return;
  }
  read_choice(fields, structure);
  const bool has_calls = model.chat_format && model.chat_format->format->has_calls();
  const bool may_call = structure->choice != AnswerStructure::Choice::kNone;
  structure->keeps_from_calls = !may_call && has_calls && !structure->tools.empty();
  if (fields.failed() || !may_call || structure->tools.empty()) return;
  if (!has_calls) {
    fields.fail("tools",
                fmt::format("this model's chat format ({}) has no calls: expected tool_choice \"none\", or a server "
                            "started with --chat-format",
                            model.chat_format ? model.chat_format->format->name : "unknown"),
                "unsupported");
  }
}

GrammarJob grammar_job(std::shared_ptr<const AnswerStructure> structure, const ServedModel& model, bool chat,
                       std::string salt) {
  GrammarJob job;
  job.key = to_hex(Sha256().add_text(chat ? "chat" : "text").add_text(structure->key()).finish());
  job.salt = std::move(salt);
  job.build = [structure = std::move(structure), &model, chat](GrammarBuilder* builder) -> Status {
    const Tokenizer& tokenizer = *model.tokenizer;
    const GrammarNames names{[&](std::string_view text) { return tokenizer.find_special(text); },
                             static_cast<uint32_t>(tokenizer.vocab_size())};
    SchemaNotes notes;
    std::optional<SymbolId> content;
    if (structure->content) {
      Result<SymbolId> symbol = add_source(builder, *structure->content, names, &notes);
      if (!symbol.ok()) return symbol.error();
      content = *symbol;
    }
    if (!chat || !model.chat_format) {
      builder->set_start(*content);
      return builder->status();
    }
    const SchemaOptions options{.spaces = SchemaOptions::Spaces::kOneSpace};
    AnswerSpec spec;
    spec.content = content;
    spec.start = structure->start;
    spec.parallel = structure->parallel;
    spec.may_think = may_think(model);
    spec.choice = structure->choice;
    if (spec.choice == AnswerSpec::Choice::kNamed) spec.named = structure->allowed[0];
    // What must be called is called as its schema says, strict or not.
    const bool must_call = spec.choice == AnswerSpec::Choice::kRequired || spec.choice == AnswerSpec::Choice::kNamed;
    for (const Tool& tool : structure->tools) {
      if (structure->may_call(tool.name))
        spec.tools.push_back({tool.name, tool.parameters, tool.is_strict || must_call});
    }
    spec.values = json_schema_values(options, &notes);
    Result<SymbolId> answer = answer_grammar(builder, *model.chat_format, spec);
    if (!answer.ok()) return answer.error();
    builder->set_start(*answer);
    return builder->status();
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

}  // namespace llmrt::server
