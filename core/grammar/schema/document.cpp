#include "core/grammar/schema/document.h"

#include <charconv>

#include "core/grammar/schema/uri.h"

namespace llmrt {
namespace {

using boost::json::value;

enum class Holds { kSchema, kSchemas, kMap, kSchemaOrSchemas };
constexpr std::pair<std::string_view, Holds> kSubschemas[] = {
    {"additionalItems", Holds::kSchema},
    {"additionalProperties", Holds::kSchema},
    {"unevaluatedItems", Holds::kSchema},
    {"unevaluatedProperties", Holds::kSchema},
    {"contains", Holds::kSchema},
    {"not", Holds::kSchema},
    {"if", Holds::kSchema},
    {"then", Holds::kSchema},
    {"else", Holds::kSchema},
    {"propertyNames", Holds::kSchema},
    {"contentSchema", Holds::kSchema},
    {"items", Holds::kSchemaOrSchemas},
    {"allOf", Holds::kSchemas},
    {"anyOf", Holds::kSchemas},
    {"oneOf", Holds::kSchemas},
    {"prefixItems", Holds::kSchemas},
    {"properties", Holds::kMap},
    {"patternProperties", Holds::kMap},
    {"$defs", Holds::kMap},
    {"definitions", Holds::kMap},
    {"dependentSchemas", Holds::kMap},
    {"dependencies", Holds::kMap},
};

Result<Draft> draft_of(std::string_view dialect, std::string_view pointer) {
  if (dialect.find("draft/2020-12/schema") != dialect.npos) return Draft::k2020;
  if (dialect.find("draft/2019-09/schema") != dialect.npos) return Draft::k2019;
  for (std::string_view name : {"draft-07/schema", "draft-06/schema"}) {
    if (dialect.find(name) != dialect.npos) return Draft::k7;
  }
  if (dialect.find("draft-04/schema") != dialect.npos) return Draft::k4;
  return refuse_schema(pointer, "$schema", "expected draft 2020-12, 2019-09 or 7, found another dialect");
}

// Bounds on size and depth, without recursion.
Status check_size(const value& root, const SchemaLimits& limits) {
  struct Entry {
    const value* v;
    uint32_t depth;
  };
  std::vector<Entry> open{{&root, 1}};
  size_t num_bytes = 0;
  while (!open.empty()) {
    const Entry entry = open.back();
    open.pop_back();
    if (entry.depth > limits.depth_max) {
      return make_error(ErrorCode::kGrammarTooComplex, "schema too deep: expected at most {} levels of JSON",
                        limits.depth_max);
    }
    num_bytes += 2;
    if (const auto* text = entry.v->if_string()) num_bytes += text->size();
    if (const auto* list = entry.v->if_array()) {
      for (const value& child : *list) open.push_back({&child, entry.depth + 1});
    } else if (const auto* object = entry.v->if_object()) {
      for (const auto& member : *object) {
        num_bytes += member.key().size() + 3;
        open.push_back({&member.value(), entry.depth + 1});
      }
    }
    if (num_bytes > limits.schema_bytes_max) {
      return make_error(ErrorCode::kGrammarTooComplex, "schema too large: expected at most {} bytes",
                        limits.schema_bytes_max);
    }
  }
  return {};
}

const boost::json::string* text_at(const boost::json::object& schema, std::string_view keyword) {
  const value* found = schema.if_contains(keyword);
  return found != nullptr ? found->if_string() : nullptr;
}

}  // namespace

std::string child_pointer(std::string_view pointer, std::string_view token) {
  std::string out(pointer);
  out += '/';
  for (char c : token) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

Error refuse_schema(std::string_view pointer, std::string_view keyword, std::string_view reason) {
  return make_error(ErrorCode::kUnsupportedSchema, "unsupported schema: {}: keyword \"{}\": {}",
                    child_pointer(pointer, keyword), keyword, reason);
}

Error invalid_schema(std::string_view pointer, std::string_view keyword, std::string_view reason) {
  return make_error(ErrorCode::kInvalidArgument, "invalid schema: {}: {}",
                    keyword.empty() ? std::string(pointer) : child_pointer(pointer, keyword), reason);
}

Result<SchemaDocument> SchemaDocument::read(const value& root, const SchemaLimits& limits) {
  if (Status status = check_size(root, limits); !status) return status.error();
  SchemaDocument out;
  out.root_ = &root;
  out.resources_.push_back({"", Draft::k2020, &root, ""});
  out.by_uri_.emplace("", 0);
  out.resource_of_.emplace(&root, 0);
  if (const auto* schema = root.if_object()) {
    if (const auto* dialect = text_at(*schema, "$schema")) {
      Result<Draft> draft = draft_of(*dialect, "");
      if (!draft) return draft.error();
      out.resources_[0].draft = *draft;
    }
  }
  if (Status status = out.scan(root, "", 0); !status) return status.error();
  return out;
}

SchemaPlace SchemaDocument::child_of(uint32_t resource, const value& v, std::string pointer) const {
  const auto it = resource_of_.find(&v);
  return {&v, std::move(pointer), it == resource_of_.end() ? resource : it->second};
}

void SchemaDocument::add_anchor(uint32_t resource, std::string_view name, const value& v, const std::string& pointer) {
  anchors_.emplace(std::pair(resource, std::string(name)), SchemaPlace{&v, pointer, resource});
}

// The resource that holds inside `v`: a new one where it has an $id.
Result<uint32_t> SchemaDocument::enter(const value& v, const std::string& pointer, uint32_t resource) {
  const boost::json::object& schema = v.get_object();
  const Draft draft = resources_[resource].draft;
  const bool is_old = draft == Draft::k7 || draft == Draft::k4;
  if (is_old && schema.contains("$ref")) return resource;  // hides what stands beside it
  const auto* id = text_at(schema, draft == Draft::k4 ? "id" : "$id");
  if (id == nullptr) return resource;
  const std::string uri = resolve_uri(resources_[resource].uri, *id);
  const SplitUri split = split_fragment(uri);
  if (is_old && id->starts_with('#')) {
    if (!split.fragment.empty()) add_anchor(resource, split.fragment, v, pointer);
    return resource;
  }
  Draft own = draft;
  if (const auto* dialect = text_at(schema, "$schema")) {
    Result<Draft> read = draft_of(*dialect, pointer);
    if (!read) return read.error();
    own = *read;
  }
  uint32_t entered = 0;
  if (pointer.empty()) {
    resources_[0].uri = split.document;
  } else {
    entered = static_cast<uint32_t>(resources_.size());
    resources_.push_back({std::string(split.document), own, &v, pointer});
    resource_of_[&v] = entered;
  }
  by_uri_.emplace(split.document, entered);
  if (is_old && !split.fragment.empty()) add_anchor(entered, split.fragment, v, pointer);
  return entered;
}

// Depth is bounded: check_size ran.
Status SchemaDocument::scan(const value& v, const std::string& pointer, uint32_t resource) {
  const auto* schema = v.if_object();
  if (schema == nullptr) return {};
  Result<uint32_t> entered = enter(v, pointer, resource);
  if (!entered) return entered.error();
  for (std::string_view keyword : {"$anchor", "$dynamicAnchor"}) {
    if (const auto* name = text_at(*schema, keyword)) add_anchor(*entered, *name, v, pointer);
  }
  return scan_children(*schema, pointer, *entered);
}

Status SchemaDocument::scan_children(const boost::json::object& schema, const std::string& pointer, uint32_t resource) {
  for (const auto& [keyword, holds] : kSubschemas) {
    const value* found = schema.if_contains(keyword);
    if (found == nullptr) continue;
    const std::string below = child_pointer(pointer, keyword);
    if (found->is_array() && (holds == Holds::kSchemas || holds == Holds::kSchemaOrSchemas)) {
      size_t index = 0;
      for (const value& child : found->get_array()) {
        if (Status status = scan(child, child_pointer(below, std::to_string(index++)), resource); !status)
          return status;
      }
    } else if (found->is_object() && holds == Holds::kMap) {
      for (const auto& member : found->get_object()) {
        if (Status status = scan(member.value(), child_pointer(below, member.key()), resource); !status) return status;
      }
    } else if (found->is_object()) {
      if (Status status = scan(*found, below, resource); !status) return status;
    }
  }
  return {};
}

Result<SchemaPlace> SchemaDocument::resolve(const SchemaPlace& from, std::string_view reference) const {
  const std::string uri = resolve_uri(resources_[from.resource].uri, reference);
  const SplitUri split = split_fragment(uri);
  const auto found = by_uri_.find(split.document);
  if (found == by_uri_.end()) {
    return refuse_schema(from.pointer, "$ref", "leads out of the document; only local references are followed");
  }
  const std::string fragment = percent_decoded(split.fragment);
  const Error missing = invalid_schema(from.pointer, "$ref", "nothing in the schema is at this reference");
  if (fragment.empty())
    return child_of(found->second, *resources_[found->second].root, resources_[found->second].pointer);
  if (fragment.starts_with('/')) return follow(found->second, fragment, missing);
  const auto anchor = anchors_.find(std::pair(found->second, fragment));
  if (anchor == anchors_.end()) return missing;
  return anchor->second;
}

Result<SchemaPlace> SchemaDocument::follow(uint32_t resource, std::string_view tokens, const Error& missing) const {
  SchemaPlace place{resources_[resource].root, resources_[resource].pointer, resource};
  while (!tokens.empty()) {
    const size_t end = std::min(tokens.find('/', 1), tokens.size());
    std::string token;
    for (size_t i = 1; i < end; ++i) {
      const bool is_escape = tokens[i] == '~' && i + 1 < end && (tokens[i + 1] == '0' || tokens[i + 1] == '1');
      token += !is_escape ? tokens[i] : tokens[++i] == '0' ? '~' : '/';
    }
    tokens = tokens.substr(end);
    const value* next = nullptr;
    if (const auto* object = place.value->if_object()) {
      next = object->if_contains(token);
    } else if (const auto* list = place.value->if_array()) {
      size_t index = 0;
      const auto [stop, error] = std::from_chars(token.data(), token.data() + token.size(), index);
      if (error == std::errc() && stop == token.data() + token.size()) next = list->if_contains(index);
    }
    if (next == nullptr) return missing;
    place = child(place, *next, token);
  }
  return place;
}

}  // namespace llmrt
