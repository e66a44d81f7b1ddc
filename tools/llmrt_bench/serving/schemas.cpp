#include "tools/llmrt_bench/serving/schemas.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <vector>

namespace llmrt::bench {
namespace {

namespace json = boost::json;

constexpr std::array kSchemaWords = {
    "user",   "order",  "city",     "country", "street",  "status",   "price",   "amount",   "name",     "title",
    "email",  "phone",  "date",     "time",    "start",   "end",      "count",   "limit",    "offset",   "query",
    "filter", "sort",   "page",     "size",    "color",   "weight",   "height",  "category", "priority", "level",
    "source", "target", "language", "region",  "unit",    "currency", "account", "customer", "product",  "item",
    "note",   "reason", "summary",  "detail",  "message", "subject",  "path",    "file",     "code",     "type",
    "group",  "owner",  "author",   "version", "score",   "rating",   "total",   "index",    "key",      "value"};
constexpr std::array kFormats = {"date-time", "date", "time", "uuid", "email", "ipv4"};
constexpr std::array kPatterns = {"^[A-Z]{2}-[0-9]{4}$", "^[a-z]{3,8}$", "^[0-9]{3}-[0-9]{3}-[0-9]{4}$",
                                  "^#[0-9a-f]{6}$"};
constexpr uint32_t kDepthMax = 2;  // of objects inside of the record

template <typename List>
const char* one_of(const List& list, Draws* draws) {
  return list[draws->below(static_cast<uint32_t>(list.size()))];
}

class SchemaMaker {
 public:
  explicit SchemaMaker(Draws* draws) : draws_(draws) {}

  json::object record(uint32_t fields_min, uint32_t fields_max) {
    json::object properties;
    json::array required;
    uint32_t left = fields_min + draws_->below(fields_max - fields_min + 1);
    while (left > 0) {
      const uint32_t before = num_fields_;
      add_field(&properties, &required, left, 0);
      left -= std::min(left, num_fields_ - before);
    }
    if (draws_->below(16) == 0) properties["free_text"] = {{"type", "string"}};
    return object_of(std::move(properties), std::move(required));
  }

 private:
  static json::object object_of(json::object properties, json::array required) {
    return {{"type", "object"},
            {"properties", std::move(properties)},
            {"required", std::move(required)},
            {"additionalProperties", false}};
  }

  // `left`: fields that the record has room for, this one included.
  void add_field(json::object* properties, json::array* required, uint32_t left, uint32_t depth) {
    std::string name;
    do {
      name = one_of(kSchemaWords, draws_);
      if (draws_->below(2) == 0) name += fmt::format("_{}", one_of(kSchemaWords, draws_));
    } while (properties->contains(name));
    ++num_fields_;
    (*properties)[name] = field(left - 1, depth);
    if (draws_->below(8) != 0) required->push_back(json::string(name));
  }

  json::object inner_object(uint32_t fields, uint32_t depth) {
    json::object properties;
    json::array required;
    for (uint32_t i = 0; i < fields; ++i) add_field(&properties, &required, fields - i, depth);
    return object_of(std::move(properties), std::move(required));
  }

  json::object field(uint32_t left, uint32_t depth) {
    const uint32_t kind = draws_->below(20);
    const bool may_nest = depth < kDepthMax && left >= 4;
    if (kind < 6) return string();
    if (kind < 9) return integer();
    if (kind < 11) return number();
    if (kind < 13) return enumeration();
    if (kind < 15) return {{"type", "boolean"}};
    if (kind < 16) return nullable();
    if (kind < 18 || !may_nest) return array(may_nest, depth);
    return inner_object(2 + draws_->below(3), depth + 1);
  }

  json::object string() {
    const uint32_t kind = draws_->below(6);
    if (kind == 0) {
      const std::string format = one_of(kFormats, draws_);
      if (format == "email") return {{"type", "string"}, {"format", format}, {"maxLength", 40}};
      return {{"type", "string"}, {"format", format}};
    }
    if (kind == 1) return {{"type", "string"}, {"pattern", one_of(kPatterns, draws_)}};
    json::object out{{"type", "string"}, {"maxLength", 20 + draws_->below(41)}};
    if (kind < 4) out["minLength"] = 1 + draws_->below(8);
    return out;
  }

  json::object integer() {
    const int64_t least = draws_->below(2) == 0 ? 0 : -static_cast<int64_t>(draws_->below(1000));
    return {{"type", "integer"}, {"minimum", least}, {"maximum", least + 1 + draws_->below(100000)}};
  }

  json::object number() {
    return {{"type", "number"}, {"minimum", 0}, {"maximum", 1 + draws_->below(10000)}, {"multipleOf", 0.01}};
  }

  json::object enumeration() {
    json::array values;
    const uint32_t count = 3 + draws_->below(5);
    while (values.size() < count) {
      json::value word(one_of(kSchemaWords, draws_));
      if (std::ranges::find(values, word) == values.end()) values.push_back(std::move(word));
    }
    return {{"type", "string"}, {"enum", std::move(values)}};
  }

  json::object nullable() {
    json::array alternatives;
    alternatives.emplace_back(draws_->below(2) == 0 ? integer() : enumeration());
    alternatives.emplace_back(json::object{{"type", "null"}});
    return {{"anyOf", std::move(alternatives)}};
  }

  json::object array(bool of_objects, uint32_t depth) {
    json::object out{{"type", "array"}, {"minItems", draws_->below(2)}, {"maxItems", 1 + draws_->below(3)}};
    if (of_objects && draws_->below(2) == 0)
      out["items"] = inner_object(2 + draws_->below(2), depth + 1);
    else if (draws_->below(3) == 0)
      out["items"] = enumeration();
    else
      out["items"] = {{"type", "string"}, {"maxLength", 20 + draws_->below(21)}};
    return out;
  }

  Draws* draws_;
  uint32_t num_fields_ = 0;
};

bool is_of_type(const json::value& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_bool();
  if (type == "null") return value.is_null();
  if (type == "integer") return value.is_int64() || value.is_uint64();
  return type != "number" || value.is_number();
}

bool fits(const json::value& value, const json::value& schema, int depth);

bool fits_object(const json::object& object, const json::object& schema, int depth) {
  const json::value* required = schema.if_contains("required");
  if (required && required->is_array())
    for (const json::value& key : required->get_array())
      if (key.is_string() && !object.contains(key.get_string())) return false;
  const json::value* described = schema.if_contains("properties");
  const json::object* properties = described ? described->if_object() : nullptr;
  const json::value* others = schema.if_contains("additionalProperties");
  for (const auto& [key, value] : object) {
    if (const json::value* property = properties ? properties->if_contains(key) : nullptr) {
      if (!fits(value, *property, depth)) return false;
    } else if (others && others->is_bool() && !others->get_bool()) {
      return false;
    }
  }
  return true;
}

bool fits(const json::value& value, const json::value& schema, int depth) {
  const json::object* rules = schema.if_object();
  if (depth == 0 || !rules) return true;
  if (const json::value* type = rules->if_contains("type")) {
    const json::array* types = type->if_array();
    const auto is_it = [&](const json::value& name) {
      return name.is_string() && is_of_type(value, name.get_string());
    };
    if (types ? std::ranges::none_of(*types, is_it) : type->is_string() && !is_it(*type)) return false;
  }
  if (const json::value* alternatives = rules->if_contains("anyOf"); alternatives && alternatives->is_array()) {
    const auto is_one = [&](const json::value& each) { return fits(value, each, depth - 1); };
    if (std::ranges::none_of(alternatives->get_array(), is_one)) return false;
  }
  if (const json::value* items = rules->if_contains("items"); items && value.is_array())
    for (const json::value& item : value.get_array())
      if (!fits(item, *items, depth - 1)) return false;
  return !value.is_object() || fits_object(value.get_object(), *rules, depth - 1);
}

}  // namespace

std::span<const char* const> schema_words() {
  return kSchemaWords;
}

json::object make_schema(Draws* draws) {
  constexpr uint32_t kFieldsMin = 20, kFieldsMax = 27;
  return SchemaMaker(draws).record(kFieldsMin, kFieldsMax);
}

json::object make_tool(std::string_view name, Draws* draws) {
  constexpr uint32_t kArgumentsMin = 4, kArgumentsMax = 8;
  return {{"type", "function"},
          {"function",
           {{"name", name},
            {"description",
             fmt::format("Works on the {} of the {}.", one_of(kSchemaWords, draws), one_of(kSchemaWords, draws))},
            {"parameters", SchemaMaker(draws).record(kArgumentsMin, kArgumentsMax)}}}};
}

bool fits_roughly(const json::value& value, const json::value& schema) {
  constexpr int kDepth = 32;
  return fits(value, schema, kDepth);
}

}  // namespace llmrt::bench
