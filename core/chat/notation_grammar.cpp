// Arguments that are not one JSON object: bare text between marks, keywords, Gemma's notation. Each property is written
// by itself: strings as bare text under the limits of their schema, everything else as JSON of its schema. What a
// schema says of the object as a whole beyond its properties cannot hold here and is refused.
#include <algorithm>
#include <array>

#include "core/chat/call_grammar.h"
#include "core/chat/tool_types.h"
#include "core/grammar/formats.h"
#include "core/grammar/regex_syntax.h"

namespace llmrt {
namespace {

namespace json = boost::json;

// A letter or _, then at most 63 of these, of digits and of `others`.
RegexId bare_name(RegexPool* pool, std::string_view others) {
  ByteSet set;
  for (int c = 0; c < 256; ++c)
    set[static_cast<size_t>(c)] = c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  const RegexId first = pool->bytes(set);
  for (int c = '0'; c <= '9'; ++c) set.set(static_cast<size_t>(c));
  for (const char c : others) set.set(static_cast<uint8_t>(c));
  return pool->concat(first, pool->repeat(pool->bytes(set), 0, 63));
}

constexpr int kDepthMax = 32;
constexpr std::array<std::string_view, 12> kNotes = {"title",       "description", "default",  "examples",
                                                     "$comment",    "$schema",     "$id",      "$defs",
                                                     "definitions", "deprecated",  "readOnly", "strict"};

bool is_note(std::string_view key) {
  return std::ranges::count(kNotes, key) > 0;
}

Error refused(const ToolGrammar& tool, std::string_view pointer, std::string_view keyword) {
  return make_error(ErrorCode::kUnsupportedSchema,
                    "tool {}: {}: keyword {} cannot hold in the notation of this chat format", tool.name,
                    pointer.empty() ? "/" : pointer, keyword);
}

struct Property {
  std::string name;
  json::value schema;
  std::string pointer;
  bool required = false;
};

// A schema's own reference, followed inside the document.
const json::value* followed(const json::value& root, const json::value* schema) {
  for (int steps = 0; steps < 16 && schema && schema->is_object(); ++steps) {
    const auto* reference = schema->get_object().if_contains("$ref");
    if (!reference) return schema;
    if (!reference->is_string() || !std::string_view(reference->get_string()).starts_with('#')) return nullptr;
    boost::system::error_code error;
    schema = root.find_pointer(std::string_view(reference->get_string()).substr(1), error);
  }
  return schema && schema->is_object() && !schema->get_object().contains("$ref") ? schema : nullptr;
}

// The properties of an object schema that says nothing else. Others may always be left out: none is written.
Result<std::vector<Property>> properties_of(const ToolGrammar& tool, const json::value& schema,
                                            const std::string& pointer) {
  std::vector<Property> properties;
  if (schema.is_null()) return properties;
  const json::value* object = followed(tool.parameters, &schema);
  if (!object) return refused(tool, pointer, "$ref");
  const json::object& keywords = object->get_object();
  for (const auto& [key, value] : keywords) {
    const bool is_known = key == "properties" || key == "required" || key == "additionalProperties" || is_note(key) ||
                          (key == "type" && value.is_string() && value.get_string() == "object");
    if (!is_known) return refused(tool, pointer, key);
  }
  if (const auto* listed = keywords.if_contains("properties")) {
    if (!listed->is_object()) return refused(tool, pointer, "properties");
    for (const auto& [key, value] : listed->get_object()) {
      properties.push_back({std::string(key), value, pointer + "/properties/" + std::string(key)});
    }
  }
  if (const auto* required = keywords.if_contains("required")) {
    if (!required->is_array()) return refused(tool, pointer, "required");
    for (const auto& name : required->get_array()) {
      const auto it = std::ranges::find_if(
          properties, [&](const Property& p) { return name.is_string() && p.name == name.get_string(); });
      if (it == properties.end()) return refused(tool, pointer, "required (a property that is not listed)");
      it->required = true;
    }
  }
  return properties;
}

uint8_t types_of(const ToolGrammar& tool, const json::value& schema) {
  json::object wrapper;
  if (tool.parameters.is_object()) wrapper = tool.parameters.get_object();
  wrapper["properties"] = json::object{{"x", schema}};
  return tool_types("", wrapper).of("x").bits;
}

// A property's schema with the definitions that its references need.
json::value self_contained(const ToolGrammar& tool, const json::value& schema) {
  if (!schema.is_object() || !tool.parameters.is_object()) return schema;
  json::object result = schema.get_object();
  for (const char* key : {"$defs", "definitions"}) {
    const auto* definitions = tool.parameters.get_object().if_contains(key);
    if (definitions && !result.contains(key)) result[key] = *definitions;
  }
  return result;
}

class Notation {
 public:
  Notation(FormatSymbols* symbols, const ToolGrammar& tool, const ValueGrammars& values)
      : symbols_(*symbols), b_(symbols->builder()), tool_(tool), values_(values), args_(symbols->format().args) {}

  Result<SymbolId> tagged();
  Result<SymbolId> pythonic();
  Result<SymbolId> gemma();

 private:
  // A custom tool's input, and the mark behind it.
  Result<SymbolId> input_then(std::string_view newline, std::string_view mark);
  Result<RegexId> string_regex(const json::value& schema, const std::string& pointer);
  Result<SymbolId> json_value(const Property& property) {
    if (tool_.input) return json_string(&b_, *tool_.input);
    return values_.schema(&b_, self_contained(tool_, property.schema));
  }
  Result<SymbolId> tagged_property(const Property& property);
  SymbolId tagged_free();
  Result<SymbolId> gemma_value(const json::value& schema, const std::string& pointer, int depth);
  Result<SymbolId> gemma_object(const json::value& schema, const std::string& pointer, int depth);
  SymbolId gemma_any();
  // Members with commas between them; those that are not required may be left out.
  SymbolId members(const std::vector<Property>& properties, const std::vector<SymbolId>& parts, SymbolId comma);

  FormatSymbols& symbols_;
  GrammarBuilder& b_;
  const ToolGrammar& tool_;
  const ValueGrammars& values_;
  const ArgsMarks& args_;
};

Result<SymbolId> Notation::input_then(std::string_view newline, std::string_view mark) {
  if (!symbols_.resolved().has_token(mark)) {
    return make_error(ErrorCode::kUnsupported,
                      "tool {}: this chat format ({}) writes an input as text up to {}, which rules cannot keep out of "
                      "it: expected syntax regex, or a tool of type function",
                      tool_.name, symbols_.format().name, mark);
  }
  return b_.sequence({tool_.input->text, b_.literal(newline), symbols_.mark(mark)});
}

Result<RegexId> Notation::string_regex(const json::value& schema_or_reference, const std::string& pointer) {
  RegexPool& pool = b_.regexes();
  const json::value* schema = followed(tool_.parameters, &schema_or_reference);
  RegexId regex = pool.star(pool.any_code_point());
  if (!schema || !schema->is_object()) return regex;
  uint64_t min = 0, max = RegexPool::kUnbounded;
  for (const auto& [key, value] : schema->get_object()) {
    if (key == "type" || is_note(key)) continue;
    if (key == "minLength" || key == "maxLength") {
      if (!value.is_number() || value.to_number<double>() < 0) return refused(tool_, pointer, key);
      (key == "minLength" ? min : max) = std::min<uint64_t>(static_cast<uint64_t>(value.to_number<double>()), 1u << 31);
    } else if (key == "enum" || key == "const") {
      std::vector<RegexId> texts;
      const json::array one = key == "const"     ? json::array{value}
                              : value.is_array() ? value.get_array()
                                                 : json::array();
      for (const auto& item : one) {
        if (item.is_string()) texts.push_back(pool.literal(std::string_view(item.get_string())));
      }
      regex = pool.both(regex, pool.either(texts));
    } else if (key == "pattern" && value.is_string()) {
      const auto pattern = parse_regex(&pool, std::string_view(value.get_string()), {});
      if (!pattern) {
        return make_error(pattern.error().code, "tool {}: {}/pattern: {}", tool_.name, pointer,
                          pattern.error().message);
      }
      regex = pool.both(regex, *pattern);
    } else if (key == "format" && value.is_string()) {
      // A name that is not enforced is a note, as the draft has it.
      if (const auto format = format_regex(&pool, std::string_view(value.get_string())))
        regex = pool.both(regex, *format);
    } else {
      return refused(tool_, pointer, key);
    }
  }
  if (min > 0 || max != RegexPool::kUnbounded) {
    regex =
        pool.both(regex, pool.repeat(pool.any_code_point(), static_cast<uint32_t>(min), static_cast<uint32_t>(max)));
  }
  return regex;
}

Result<SymbolId> Notation::tagged_property(const Property& property) {
  const uint8_t types = types_of(tool_, property.schema);
  const bool is_string = types == ValueTypes::kString;
  if (!is_string && (types & ValueTypes::kString) != 0) {
    return refused(tool_, property.pointer, "type (a string or something else: bare text does not say which)");
  }
  const std::string newline = args_.newline_around_value ? "\n" : "";
  const std::string quote = symbols_.format().name_marks.quoted ? "\"" : "";
  std::string attributes;
  if (args_.typed) attributes = is_string ? " string=\"true\"" : " string=\"false\"";
  std::vector<SymbolId> parts = {symbols_.mark(args_.key_before),
                                 b_.literal(quote + property.name + quote + attributes),
                                 symbols_.mark(args_.key_after)};
  if (!args_.value_before.empty()) parts.push_back(b_.literal(args_.space));
  parts.push_back(symbols_.mark(args_.value_before));
  parts.push_back(b_.literal(newline));
  if (is_string && tool_.input) {
    const auto input = input_then(newline, args_.value_after);
    if (!input) return input;
    parts.push_back(*input);
  } else if (is_string) {
    const auto regex = string_regex(property.schema, property.pointer);
    if (!regex) return regex.error();
    RegexId text = *regex;
    if (args_.newline_around_value) text = b_.regexes().concat(text, b_.regexes().literal("\n"));
    parts.push_back(symbols_.text_then(text, args_.value_after, {}));
  } else {
    const auto value = json_value(property);
    if (!value) return value;
    parts.insert(parts.end(), {*value, b_.literal(newline), symbols_.mark(args_.value_after)});
  }
  parts.push_back(b_.literal(args_.space));
  return b_.sequence(parts);
}

// Any keys with any text.
SymbolId Notation::tagged_free() {
  RegexPool& pool = b_.regexes();
  const std::string quote = symbols_.format().name_marks.quoted ? "\"" : "";
  SymbolId attributes = GrammarBuilder::kEmpty;
  if (args_.typed) attributes = b_.choice({b_.literal(" string=\"true\""), b_.literal(" string=\"false\"")});
  RegexId text = pool.star(pool.any_code_point());
  if (args_.newline_around_value) {
    text = pool.concat(std::vector<RegexId>{pool.literal("\n"), text, pool.literal("\n")});
  }
  const SymbolId property = b_.sequence(
      {symbols_.mark(args_.key_before), b_.literal(quote), b_.terminal(bare_name(&pool, "-")), b_.literal(quote),
       attributes, symbols_.mark(args_.key_after),
       args_.value_before.empty() ? GrammarBuilder::kEmpty : b_.literal(args_.space), symbols_.mark(args_.value_before),
       symbols_.text_then(text, args_.value_after, {}), b_.literal(args_.space)});
  return b_.repeat(property, 0, GrammarBuilder::kUnbounded);
}

Result<SymbolId> Notation::tagged() {
  const NameMarks& name = symbols_.format().name_marks;
  const std::string quote = name.quoted ? "\"" : "";
  // Where the mark behind a name is a newline, it is the space before the first key.
  const bool ends_with_space = name.after == "\n";
  std::vector<SymbolId> parts = {symbols_.mark(name.before), b_.literal(quote + tool_.name + quote)};
  if (!ends_with_space) parts.push_back(symbols_.mark(name.after));
  parts.push_back(b_.literal(args_.space));
  if (!tool_.strict) {
    parts.push_back(tagged_free());
  } else {
    const auto properties = properties_of(tool_, tool_.parameters, "");
    if (!properties) return properties.error();
    for (const Property& property : *properties) {
      const bool is_plain = property.name.find_first_of("\"'<>= \t\r\n") == std::string::npos && !property.name.empty();
      if (!is_plain) return refused(tool_, property.pointer, "properties (a name that cannot stand in a mark)");
      const auto part = tagged_property(property);
      if (!part) return part;
      parts.push_back(property.required ? *part : b_.optional(*part));
    }
  }
  parts.push_back(symbols_.mark(args_.end));
  return b_.sequence(parts);
}

SymbolId Notation::members(const std::vector<Property>& properties, const std::vector<SymbolId>& parts,
                           SymbolId comma) {
  // From the end: what may follow behind a member that was written, or as the first.
  SymbolId behind = GrammarBuilder::kEmpty, first = GrammarBuilder::kEmpty;
  for (size_t i = parts.size(); i-- > 0;) {
    const SymbolId with_comma = b_.sequence({comma, parts[i], behind});
    const SymbolId as_first = b_.sequence({parts[i], behind});
    first = properties[i].required ? as_first : b_.choice({as_first, first});
    behind = properties[i].required ? with_comma : b_.choice({with_comma, behind});
  }
  return first;
}

Result<SymbolId> Notation::pythonic() {
  const SymbolId open = b_.literal(tool_.name + "("), close = b_.literal(")");
  const SymbolId comma = b_.literal(", ");
  if (!tool_.strict) {
    const SymbolId member =
        b_.sequence({b_.terminal(bare_name(&b_.regexes(), "")), b_.literal("="), values_.any_value(&b_)});
    return b_.sequence(
        {open,
         b_.optional(b_.sequence({member, b_.repeat(b_.sequence({comma, member}), 0, GrammarBuilder::kUnbounded)})),
         close});
  }
  const auto properties = properties_of(tool_, tool_.parameters, "");
  if (!properties) return properties.error();
  std::vector<SymbolId> parts;
  for (const Property& property : *properties) {
    const bool is_plain =
        property.name.find_first_of("\"'()[]{}=, \t\r\n") == std::string::npos && !property.name.empty();
    if (!is_plain) return refused(tool_, property.pointer, "properties (a name that is no keyword)");
    const auto value = json_value(property);
    if (!value) return value;
    SymbolId written = *value;
    if (types_of(tool_, property.schema) == ValueTypes::kBoolean && property.schema.is_object() &&
        !property.schema.get_object().contains("enum") && !property.schema.get_object().contains("const")) {
      written = b_.choice({written, b_.literal("True"), b_.literal("False")});
    }
    parts.push_back(b_.sequence({b_.literal(property.name + "="), written}));
  }
  return b_.sequence({open, members(*properties, parts, comma), close});
}

SymbolId Notation::gemma_any() {
  RegexPool& pool = b_.regexes();
  ByteSet digits;
  for (int c = '0'; c <= '9'; ++c) digits.set(static_cast<size_t>(c));
  ByteSet nonzero = digits;
  nonzero.reset('0');
  const RegexId digit = pool.bytes(digits);
  const RegexId whole = pool.either(pool.literal("0"), pool.concat(pool.bytes(nonzero), pool.repeat(digit, 0, 17)));
  const RegexId number =
      pool.concat(std::vector<RegexId>{pool.optional(pool.literal("-")), whole,
                                       pool.optional(pool.concat(pool.literal("."), pool.repeat(digit, 1, 17)))});
  const RegexId scalar =
      pool.either(std::vector<RegexId>{number, pool.literal("true"), pool.literal("false"), pool.literal("null")});
  const SymbolId delimiter = symbols_.mark(args_.delimiter);
  const SymbolId string =
      b_.sequence({delimiter, symbols_.text_then(pool.star(pool.any_code_point()), args_.delimiter, {})});
  const SymbolId value = b_.declare_rule();
  const auto list = [&](SymbolId item) {
    return b_.optional(
        b_.sequence({item, b_.repeat(b_.sequence({b_.literal(","), item}), 0, GrammarBuilder::kUnbounded)}));
  };
  const SymbolId member = b_.sequence({b_.terminal(bare_name(&pool, "")), b_.literal(":"), value});
  b_.define_rule(value,
                 b_.choice({b_.terminal(scalar), string, b_.sequence({b_.literal("["), list(value), b_.literal("]")}),
                            b_.sequence({b_.literal("{"), list(member), b_.literal("}")})}));
  return list(member);
}

Result<SymbolId> Notation::gemma_object(const json::value& schema, const std::string& pointer, int depth) {
  const auto properties = properties_of(tool_, schema, pointer);
  if (!properties) return properties.error();
  std::vector<SymbolId> parts;
  for (const Property& property : *properties) {
    const bool is_plain =
        property.name.find_first_of("\"'{}[]():, \t\r\n<") == std::string::npos && !property.name.empty();
    if (!is_plain) return refused(tool_, property.pointer, "properties (a name that cannot stand bare)");
    const auto value = gemma_value(property.schema, property.pointer, depth + 1);
    if (!value) return value;
    parts.push_back(b_.sequence({b_.literal(property.name + ":"), *value}));
  }
  return members(*properties, parts, b_.literal(","));
}

Result<SymbolId> Notation::gemma_value(const json::value& schema, const std::string& pointer, int depth) {
  if (depth > kDepthMax) return refused(tool_, pointer, "$ref (nesting without end)");
  const uint8_t types = types_of(tool_, schema);
  if (types == ValueTypes::kString && tool_.input) {
    const auto input = input_then("", args_.delimiter);
    if (!input) return input;
    return b_.sequence({symbols_.mark(args_.delimiter), *input});
  }
  if (types == ValueTypes::kString) {
    const auto regex = string_regex(schema, pointer);
    if (!regex) return regex.error();
    return b_.sequence({symbols_.mark(args_.delimiter), symbols_.text_then(*regex, args_.delimiter, {})});
  }
  if (types == ValueTypes::kObject) {
    const auto object = gemma_object(schema, pointer, depth);
    if (!object) return object;
    return b_.sequence({b_.literal("{"), *object, b_.literal("}")});
  }
  if (types == ValueTypes::kArray) {
    const json::value* array = followed(tool_.parameters, &schema);
    if (!array) return refused(tool_, pointer, "$ref");
    uint32_t min = 0, max = GrammarBuilder::kUnbounded;
    json::value items = nullptr;
    for (const auto& [key, value] : array->get_object()) {
      if (key == "items" && value.is_object())
        items = value;
      else if ((key == "minItems" || key == "maxItems") && value.is_number() && value.to_number<double>() >= 0 &&
               value.to_number<double>() <= 1024)
        (key == "minItems" ? min : max) = static_cast<uint32_t>(value.to_number<double>());
      else if (key != "type" && !is_note(key))
        return refused(tool_, pointer, key);
    }
    if (items.is_null()) return refused(tool_, pointer, "items (missing)");
    const auto item = gemma_value(items, pointer + "/items", depth + 1);
    if (!item) return item;
    const uint32_t rest_max = max == GrammarBuilder::kUnbounded ? max : max - std::min(max, 1u);
    const SymbolId rest = b_.repeat(b_.sequence({b_.literal(","), *item}), min > 0 ? min - 1 : 0, rest_max);
    SymbolId list = max == 0 ? GrammarBuilder::kEmpty : b_.sequence({*item, rest});
    if (min == 0) list = b_.optional(list);
    return b_.sequence({b_.literal("["), list, b_.literal("]")});
  }
  const uint8_t nested = ValueTypes::kString | ValueTypes::kObject | ValueTypes::kArray;
  if ((types & nested) != 0) return refused(tool_, pointer, "type (several, of which one is no scalar)");
  return values_.schema(&b_, self_contained(tool_, schema));
}

Result<SymbolId> Notation::gemma() {
  const NameMarks& name = symbols_.format().name_marks;
  SymbolId members = GrammarBuilder::kEmpty;
  if (tool_.strict) {
    const auto object = gemma_object(tool_.parameters, "", 0);
    if (!object) return object;
    members = *object;
  } else {
    members = gemma_any();
  }
  return b_.sequence({symbols_.mark(name.before), b_.literal(tool_.name + name.after), members, b_.literal("}")});
}

}  // namespace

Result<SymbolId> tagged_args(FormatSymbols* symbols, const ToolGrammar& tool, const ValueGrammars& values) {
  return Notation(symbols, tool, values).tagged();
}
Result<SymbolId> pythonic_args(FormatSymbols* symbols, const ToolGrammar& tool, const ValueGrammars& values) {
  return Notation(symbols, tool, values).pythonic();
}
Result<SymbolId> gemma_args(FormatSymbols* symbols, const ToolGrammar& tool, const ValueGrammars& values) {
  return Notation(symbols, tool, values).gemma();
}

}  // namespace llmrt
