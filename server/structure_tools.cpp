// tools, tool_choice and parallel_tool_calls.
#include <algorithm>

#include "server/json_reader.h"
#include "server/structure.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

constexpr size_t kToolNameBytesMax = 256;
constexpr size_t kTextBytesMax = 1u << 20;  // of a description

bool is_name(const json::value& value, std::string_view name) {
  return value.is_string() && value.get_string() == name;
}

// A custom tool is a function of one string to the model, which is told of the string's rules in a description.
json::object custom_parameters(Fields& custom, std::optional<GrammarSource>* rules) {
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
      } else if (syntax == "lark" && definition) {
        *rules = GrammarSource{.dialect = GrammarSource::Dialect::kLark, .text = *definition};
        input["description"] = "A text of this Lark grammar:\n" + *definition;
      } else if (!definition) {
        told.fail("definition", "expected a string, found nothing");
      } else {
        told.fail("syntax", fmt::format("not supported: expected lark or regex, found '{}'", shown_name(syntax)),
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
    tool->parameters = custom_parameters(inner, &tool->input);
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

}  // namespace

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

}  // namespace llmrt::server
