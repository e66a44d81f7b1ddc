#include "server/structure.h"

#include <algorithm>

#include "server/json_reader.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

constexpr int kSchemaDepthMax = 64;

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
    if (tool.input) key += tool.input->key();
  }
  return key;
}

void read_content_structure(Fields& fields, AnswerStructure* structure) {
  ContentReader(fields, structure).read();
}

}  // namespace llmrt::server
