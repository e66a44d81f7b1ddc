// The tools of /v1/responses: flat functions and custom tools, and namespaces of them, to the tools of a chat. What
// other services run themselves (web_search, image_generation, ...) is left out and named.
#include <algorithm>

#include "server/chat_messages.h"
#include "server/known_fields.h"
#include "server/responses_request.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

constexpr size_t kShortNameBytesMax = 256;
constexpr size_t kDescriptionBytesMax = 1u << 20;

class FlatToolsReader {
 public:
  FlatToolsReader(bool strict, ResponsesForm* form, std::vector<std::string>& ignored)
      : strict_(strict), form_(*form), ignored_(ignored) {}

  void read(Fields& outer, const json::value& value, const std::string& place) {
    if (!value.is_object()) return outer.fail(place, fmt::format("expected an object, found {}", describe(value)));
    Fields fields(value.get_object(), outer.full(place) + ".");
    const std::string type = fields.string("type", kShortNameBytesMax).value_or("");
    const bool is_inner = !name_space_.empty();
    if (type.empty()) {
      fields.fail("type", "expected the kind of tool, found nothing");
    } else if (type == "function" || type == "custom") {
      read_tool(fields, type);
    } else if (type == "namespace" && !is_inner) {
      read_namespace(fields);
    } else {
      return add_ignored(ignored_, (is_inner ? "tools.namespace." : "tools.") + type);
    }
    if (strict_) fields.refuse_unread();
    if (fields.error()) outer.fail(*fields.error());
  }
  json::array take() { return std::move(tools_); }

 private:
  // Its members, inside an object for its kind.
  void read_tool(Fields& fields, const std::string& type) {
    for (const char* known : {"allowed_callers", "defer_loading", "output_schema", "async"}) fields.any(known);
    json::object tool;
    const json::value* name = fields.any("name");
    if (name && name->is_string() && !name_space_.empty()) {
      const std::string flat = flat_name(name_space_, name->get_string());
      if (form_.namespaced.contains(flat))
        fields.fail("name", fmt::format("the tool '{}' is there twice", shown_name(flat)));
      form_.namespaced[flat] = {name_space_, std::string(name->get_string())};
      tool["name"] = flat;
    } else if (name) {
      tool["name"] = *name;
    }
    std::string description = fields.string("description", kDescriptionBytesMax).value_or("");
    if (!introduction_.empty()) description = std::exchange(introduction_, {}) + "\n\n" + description;
    if (!description.empty()) tool["description"] = std::move(description);
    const bool is_custom = type == "custom";
    for (const char* member : {"parameters", "strict", "format"}) {
      const bool is_read = is_custom == (std::string_view(member) == "format");
      if (const json::value* value = is_read ? fields.any(member) : nullptr) tool[member] = *value;
    }
    form_.paths.add_tool(place_of(fields));
    tools_.push_back({{"type", type}, {type, std::move(tool)}});
  }
  void read_namespace(Fields& fields) {
    name_space_ = fields.string("name", kShortNameBytesMax).value_or("");
    if (name_space_.empty()) fields.fail("name", "expected the namespace's name, found nothing");
    // The model is told what the tools have in common with the first of them.
    introduction_ = fields.string("description", kDescriptionBytesMax).value_or("");
    if (!introduction_.empty()) introduction_ = name_space_ + ": " + introduction_;
    const json::array* tools = fields.array("tools", kToolsMax);
    for (size_t i = 0; tools && i < tools->size() && !fields.failed(); ++i)
      read(fields, (*tools)[i], fmt::format("tools[{}]", i));
    name_space_.clear();
    introduction_.clear();
  }
  // "tools[3]" of fields whose names begin with "tools[3].".
  static std::string place_of(const Fields& fields) {
    std::string place = fields.full("");
    place.pop_back();
    return place;
  }

  const bool strict_;
  ResponsesForm& form_;
  std::vector<std::string>& ignored_;
  json::array tools_;
  std::string name_space_, introduction_;
};

// {type, name} of a tool that is served, as a chat has it; nothing for one that others run.
std::optional<json::object> chosen_tool(const json::object& choice) {
  const auto text = [&](const char* name) {
    const json::value* value = choice.if_contains(name);
    return value && value->is_string() ? std::string(value->get_string()) : std::string();
  };
  const std::string type = text("type");
  if (type != "function" && type != "custom") return std::nullopt;
  return json::object{{"type", type}, {type, {{"name", flat_name(text("namespace"), text("name"))}}}};
}

void translate_choice(Fields& fields, json::object* chat, std::vector<std::string>& ignored) {
  const json::value* choice = fields.any("tool_choice");
  if (!choice) return;
  const json::object* object = choice->if_object();
  if (!object) {
    (*chat)["tool_choice"] = *choice;
    return;
  }
  const json::value* type = object->if_contains("type");
  const std::string name = type && type->is_string() ? std::string(type->get_string()) : "";
  if (name != "allowed_tools") {
    auto chosen = chosen_tool(*object);
    if (chosen) {
      (*chat)["tool_choice"] = std::move(*chosen);
    } else {
      fields.fail(
          "tool_choice",
          fmt::format("not supported: expected a tool of type function or custom, found '{}'", shown_name(name)),
          "unsupported");
    }
    return;
  }
  json::array allowed;
  const json::value* tools = object->if_contains("tools");
  const json::array* list = tools ? tools->if_array() : nullptr;
  for (size_t i = 0; list && i < std::min(list->size(), kToolsMax + 1); ++i) {
    const json::object* tool = (*list)[i].if_object();
    if (!tool) return fields.fail("tool_choice", "tools: expected objects");
    if (auto chosen = chosen_tool(*tool))
      allowed.push_back(std::move(*chosen));
    else
      add_ignored(ignored, "tool_choice.tools");
  }
  json::object inner{{"tools", std::move(allowed)}};
  if (const json::value* mode = object->if_contains("mode")) inner["mode"] = *mode;
  (*chat)["tool_choice"] = {{"type", "allowed_tools"}, {"allowed_tools", std::move(inner)}};
}

}  // namespace

std::string flat_name(std::string_view name_space, std::string_view name) {
  return name_space.empty() ? std::string(name) : fmt::format("{}__{}", name_space, name);
}

void translate_tools(Fields& fields, bool strict, json::object* chat, ResponsesForm* form,
                     std::vector<std::string>& ignored) {
  FlatToolsReader reader(strict, form, ignored);
  const json::array* tools = fields.array("tools", kToolsMax);
  if (tools && count_values(*fields.any("tools"), kTemplateValuesMax) > kTemplateValuesMax) {  // before they are copied
    fields.fail("tools", fmt::format("expected at most {} values in it, found more", kTemplateValuesMax));
  } else if (tools) {
    for (size_t i = 0; i < tools->size() && !fields.failed(); ++i)
      reader.read(fields, (*tools)[i], fmt::format("tools[{}]", i));
    if (form->paths.num_tools() > kToolsMax)
      fields.fail("tools",
                  fmt::format("expected at most {} tools in all, found {}", kToolsMax, form->paths.num_tools()));
  }
  json::array flat = reader.take();
  if (!flat.empty()) (*chat)["tools"] = std::move(flat);
  translate_choice(fields, chat, ignored);
}

}  // namespace llmrt::server
