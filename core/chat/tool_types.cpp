#include "core/chat/tool_types.h"

#include "core/chat/literal_reader.h"
#include "core/grammar/json_spelling.h"

namespace llmrt {
namespace {

namespace json = boost::json;

constexpr int kStepsMax = 16;  // of references and nested alternatives

uint8_t type_named(std::string_view name) {
  if (name == "string") return ValueTypes::kString;
  if (name == "integer") return ValueTypes::kInteger;
  if (name == "number") return ValueTypes::kNumber | ValueTypes::kInteger;
  if (name == "boolean") return ValueTypes::kBoolean;
  if (name == "null") return ValueTypes::kNull;
  if (name == "object") return ValueTypes::kObject;
  if (name == "array") return ValueTypes::kArray;
  return 0;
}

uint8_t type_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::string:
      return ValueTypes::kString;
    case json::kind::bool_:
      return ValueTypes::kBoolean;
    case json::kind::null:
      return ValueTypes::kNull;
    case json::kind::object:
      return ValueTypes::kObject;
    case json::kind::array:
      return ValueTypes::kArray;
    case json::kind::double_:
      return ValueTypes::kNumber;
    default:
      return ValueTypes::kInteger;
  }
}

const json::value* referred(const json::value& root, std::string_view reference) {
  if (!reference.starts_with('#')) return nullptr;
  boost::system::error_code error;
  return root.find_pointer(reference.substr(1), error);
}

// 0: not known.
uint8_t types_of(const json::value& root, const json::value& schema, int* steps) {
  if (!schema.is_object() || ++*steps > kStepsMax) return 0;
  const json::object& object = schema.get_object();
  uint8_t bits = 0;
  if (const auto* type = object.if_contains("type")) {
    if (type->is_string()) return type_named(type->get_string());
    if (type->is_array()) {
      for (const auto& item : type->get_array()) {
        if (item.is_string()) bits |= type_named(item.get_string());
      }
      return bits;
    }
  }
  if (const auto* value = object.if_contains("const")) return type_of(*value);
  if (const auto* values = object.if_contains("enum"); values && values->is_array()) {
    for (const auto& value : values->get_array()) bits |= type_of(value);
    return bits;
  }
  if (const auto* reference = object.if_contains("$ref"); reference && reference->is_string()) {
    const json::value* target = referred(root, reference->get_string());
    return target ? types_of(root, *target, steps) : 0;
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const auto* list = object.if_contains(key);
    if (!list || !list->is_array()) continue;
    for (const auto& item : list->get_array()) bits |= types_of(root, item, steps);
  }
  if (bits == 0 && (object.contains("properties") || object.contains("additionalProperties")))
    return ValueTypes::kObject;
  if (bits == 0 && object.contains("items")) return ValueTypes::kArray;
  return bits;
}

// The JSON that a text stands for, and its type; empty: it is no literal.
std::string literal(std::string_view text, uint8_t* type) {
  if (text.empty() || text[0] == '"' || text[0] == '\'') return {};
  if (text[0] != '{' && text[0] != '[') {
    std::string scalar = json_scalar(text);
    if (scalar.empty()) return {};
    *type = scalar[0] == 't' || scalar[0] == 'f'               ? ValueTypes::kBoolean
            : scalar[0] == 'n'                                 ? ValueTypes::kNull
            : scalar.find_first_of(".eE") == std::string::npos ? ValueTypes::kInteger
                                                               : ValueTypes::kNumber;
    return scalar;
  }
  *type = text[0] == '{' ? ValueTypes::kObject : ValueTypes::kArray;
  LiteralReader reader;
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto step = reader.push(text[i], &out);
    if (step == LiteralReader::Step::kMore) continue;
    const bool is_whole = step == LiteralReader::Step::kDone && i + 1 == text.size() && !reader.is_odd();
    return is_whole ? out : std::string();
  }
  return {};
}

}  // namespace

ValueTypes ToolTypes::of(std::string_view parameter) const {
  if (!has_parameters) return {ValueTypes::kAll};
  const auto it = parameters.find(parameter);
  return it == parameters.end() ? ValueTypes{} : it->second;
}

ToolTypes tool_types(std::string name, const json::value& schema) {
  ToolTypes tool{.name = std::move(name)};
  if (!schema.is_object()) return tool;
  const auto* properties = schema.get_object().if_contains("properties");
  if (!properties || !properties->is_object()) return tool;
  tool.has_parameters = true;
  for (const auto& [key, value] : properties->get_object()) {
    int steps = 0;
    const uint8_t bits = types_of(schema, value, &steps);
    tool.parameters.emplace(key, ValueTypes{bits == 0 ? ValueTypes::kString : bits});
  }
  return tool;
}

std::string json_value_of(std::string_view text, ValueTypes types, bool* is_odd) {
  std::string_view trimmed = text;
  while (!trimmed.empty() && is_json_space(static_cast<uint8_t>(trimmed.front()))) trimmed.remove_prefix(1);
  while (!trimmed.empty() && is_json_space(static_cast<uint8_t>(trimmed.back()))) trimmed.remove_suffix(1);
  if (!types.only_string()) {
    uint8_t type = 0;
    std::string value = literal(trimmed, &type);
    if (type == ValueTypes::kNumber && types.has(ValueTypes::kInteger)) type = ValueTypes::kInteger;  // 3.0
    if (!value.empty() && types.has(type)) return value;
    if (!types.has(ValueTypes::kString)) *is_odd = true;
  }
  return json_string_text(text);
}

}  // namespace llmrt
