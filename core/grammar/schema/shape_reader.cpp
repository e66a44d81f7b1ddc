#include "core/grammar/schema/shape_reader.h"

#include <algorithm>
#include <iterator>

namespace llmrt {
namespace {

using boost::json::value;

// Said about a value, not of it; containers of schemas that only references enter; and what other keywords read.
constexpr std::string_view kSilent[] = {
    "$schema", "$id",         "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$comment", "$defs",     "definitions",
    "title",   "description", "default", "examples",       "deprecated",       "readOnly", "writeOnly",
};

bool is_silent(std::string_view keyword) {
  return std::ranges::find(kSilent, keyword) != std::end(kSilent);
}

}  // namespace

// Keywords that are read together, the first draft in which they are and the last.
struct ShapeReader::KeywordGroup {
  std::vector<std::string_view> keywords;
  Reader read;
  Draft first = Draft::k4, last = Draft::k2020;
};

// In the order in which properties are written: a schema's own first.
const std::vector<ShapeReader::KeywordGroup>& ShapeReader::keyword_groups() {
  using Self = ShapeReader;
  static const std::vector<KeywordGroup> groups = {
      {{"$dynamicRef", "$vocabulary"}, &Self::read_refused, Draft::k2020},
      {{"$recursiveRef"}, &Self::read_refused, Draft::k2019, Draft::k2019},
      {{"type"}, &Self::read_type},
      {{"enum"}, &Self::read_enum},
      {{"const"}, &Self::read_const, Draft::k7},
      {{"minLength", "maxLength"}, &Self::read_lengths},
      {{"pattern"}, &Self::read_pattern},
      {{"format"}, &Self::read_format},
      {{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}, &Self::read_bounds},
      {{"multipleOf"}, &Self::read_multiple},
      {{"properties", "patternProperties", "additionalProperties"}, &Self::read_properties},
      {{"propertyNames"}, &Self::read_names, Draft::k7},
      {{"required"}, &Self::read_required},
      {{"minProperties", "maxProperties"}, &Self::read_property_counts},
      {{"items", "additionalItems"}, &Self::read_items, Draft::k4, Draft::k2019},
      {{"items", "prefixItems"}, &Self::read_items, Draft::k2020},
      {{"minItems", "maxItems"}, &Self::read_item_counts},
      {{"contains"}, &Self::read_contains, Draft::k7},
      {{"minContains", "maxContains"}, nullptr, Draft::k2019},  // read with contains
      {{"uniqueItems"}, &Self::read_unique},
      {{"$ref"}, &Self::read_ref},
      {{"allOf"}, &Self::read_all_of},
      {{"dependentRequired", "dependentSchemas"}, &Self::read_dependencies, Draft::k2019},
      {{"dependencies"}, &Self::read_dependencies},
      {{"anyOf"}, &Self::read_any_of},
      {{"oneOf"}, &Self::read_one_of},
      {{"if"}, &Self::read_if, Draft::k7},
      {{"then", "else"}, nullptr, Draft::k7},  // read with if
      {{"not"}, &Self::read_not},
      {{"unevaluatedItems", "unevaluatedProperties"}, nullptr, Draft::k2019},  // read at the end
  };
  return groups;
}

ShapeReader::ShapeReader(GrammarBuilder* builder, SchemaDocument document, const SchemaOptions& options,
                         SchemaNotes* notes)
    : pool_(builder->regexes()),
      document_(std::move(document)),
      options_(options),
      notes_(notes),
      builder_(*builder),
      work_(options.limits.work_max),
      algebra_(&pool_, &values_, &work_, options.limits, [this](ValueId v) { return is_known_empty(v); }) {}

PlaceId ShapeReader::place_of(const Schema& schema, std::string_view keyword) {
  places_.push_back({schema.place.pointer, std::string(keyword)});
  return static_cast<PlaceId>(places_.size() - 1);
}

Error ShapeReader::refuse(PlaceId place, std::string_view reason) const {
  return refuse_schema(places_[place].pointer, places_[place].keyword, reason);
}

Status ShapeReader::refuse_or_drop(PlaceId place, std::string_view reason) {
  if (!options_.lenient) return refuse(place, reason);
  note(places_[place].pointer, places_[place].keyword);
  return {};
}

Status ShapeReader::refuse_or_drop_in(ValueId v, std::string_view reason) {
  const std::string& pointer = values_.node(values_.nodes_of(v).front()).place.pointer;
  if (!options_.lenient)
    return make_error(ErrorCode::kUnsupportedSchema, "unsupported schema: {}: {}", pointer, reason);
  note(pointer, "oneOf or not");
  return {};
}

void ShapeReader::note(std::string_view pointer, std::string_view keyword) {
  std::string text = fmt::format("{}: {}", pointer, keyword);
  if (noted_.insert(text).second && notes_ != nullptr) notes_->ignored.push_back(std::move(text));
}

Result<const Shape*> ShapeReader::shape_of(ValueId v) {
  if (const auto it = shapes_.find(v); it != shapes_.end()) return static_cast<const Shape*>(it->second.get());
  Result<Shape> shape = read_value(v, {});
  if (!shape) return shape.error();
  return static_cast<const Shape*>(shapes_.emplace(v, std::make_unique<Shape>(*std::move(shape))).first->second.get());
}

Result<Shape> ShapeReader::read_value(ValueId v, Mode mode) {
  const std::span<const NodeId> of_value = values_.nodes_of(v);
  const std::vector<NodeId> nodes(of_value.begin(), of_value.end());
  Shape shape = algebra_.any();
  std::vector<NodeId> taken_away;
  for (NodeId id : nodes) {
    if (values_.node(id).kind == ValueTable::Node::Kind::kNot) {
      taken_away.push_back(id);
      continue;
    }
    Result<const Shape*> part = node_shape(id, mode);
    if (!part) return part.error();
    Result<Shape> merged = algebra_.both(shape, **part);
    if (!merged) {
      const SchemaPlace& place = values_.node(nodes.front()).place;
      if (merged.error().code != ErrorCode::kUnsupportedSchema) return merged;
      return make_error(ErrorCode::kUnsupportedSchema, "unsupported schema: {}: together with {}: {}", place.pointer,
                        values_.node(id).place.pointer, merged.error().message);
    }
    shape = *std::move(merged);
  }
  for (NodeId id : taken_away) {
    Result<Shape> rest = without(std::move(shape), id, mode);
    if (!rest) return rest;
    shape = *std::move(rest);
  }
  return shape;
}

// Values of the shape that are in a complement, the node.
Result<Shape> ShapeReader::without(Shape shape, NodeId id, Mode mode) {
  const ValueTable::Node node = values_.node(id);
  Result<Shape> inner = read_value(node.values[0], {.tracked = false, .strict = true});
  Result<Shape> out = inner ? algebra_.without(shape, *inner, node.place) : inner.error();
  if (out || out.error().code != ErrorCode::kUnsupportedSchema) return out;
  if (!options_.lenient || mode.strict) {
    return inner ? refuse_schema(node.place.pointer, "not", out.error().message) : out.error();
  }
  note(node.place.pointer, "not");
  return shape;
}

Result<const Shape*> ShapeReader::node_shape(NodeId id, Mode mode) {
  const std::pair key(id, mode);
  if (const auto it = node_shapes_.find(key); it != node_shapes_.end())
    return static_cast<const Shape*>(it->second.get());
  const SchemaPlace place = values_.node(id).place;
  if (!reading_.insert(key).second) {
    return refuse_schema(place.pointer, "$ref", "references lead back here and no property or item lies between");
  }
  if (!builder_.status()) return builder_.status().error();
  if (++nesting_ > kNestingMax) {
    --nesting_;
    reading_.erase(key);
    return refuse_schema(place.pointer, "$ref", fmt::format("more than {} schemas apply to one value", kNestingMax));
  }
  Result<Shape> shape = read_node(id, mode);
  --nesting_;
  reading_.erase(key);
  if (!shape) return shape.error();
  return static_cast<const Shape*>(
      node_shapes_.emplace(key, std::make_unique<Shape>(*std::move(shape))).first->second.get());
}

Result<Shape> ShapeReader::read_node(NodeId id, Mode mode) {
  using Kind = ValueTable::Node::Kind;
  const ValueTable::Node node = values_.node(id);
  switch (node.kind) {
    case Kind::kNone:
      return Shape{};
    case Kind::kSchema:
      return read_schema(node.place, mode);
    case Kind::kLiteral:
      return literal(node.place);
    case Kind::kEither: {
      Shape out;
      for (ValueId part : node.values) {
        Result<Shape> shape = read_value(part, mode);
        if (!shape) return shape;
        Result<Shape> merged = algebra_.either(std::move(out), *shape);
        if (!merged) return refuse_schema(node.place.pointer, "not", merged.error().message);
        out = *std::move(merged);
      }
      return out;
    }
    case Kind::kNot:  // read_value takes them from the other nodes
      return without(algebra_.any(), id, mode);
  }
  return Shape{};
}

// Reads one part and adds it to the shape. In lenient mode what cannot be read is left out and noted.
Status ShapeReader::apply(const Schema& schema, std::string_view keyword, Mode mode, const std::function<Part()>& read,
                          Shape* shape) {
  Part part = read();
  Result<Shape> merged = part ? algebra_.both(*shape, *part) : part.error();
  if (merged) {
    *shape = *std::move(merged);
    return {};
  }
  Error error = merged.error();
  if (error.code != ErrorCode::kUnsupportedSchema) return error;
  if (!error.message.starts_with("unsupported schema: "))
    error = refuse_schema(schema.place.pointer, keyword, error.message);
  if (!options_.lenient || mode.strict) return error;
  note(schema.place.pointer, keyword);
  return {};
}

Result<Shape> ShapeReader::read_schema(const SchemaPlace& place, Mode mode) {
  const auto* members = place.value->if_object();
  if (members == nullptr) return invalid_schema(place.pointer, "", "expected a schema: an object or a boolean");
  const Draft draft = document_.draft(place);
  Schema schema{place, *members, mode, draft};
  if (draft >= Draft::k2019 && (schema.find("unevaluatedItems") || schema.find("unevaluatedProperties"))) {
    schema.mode.tracked = true;
  }
  Shape shape = algebra_.any();
  if (schema.is_old() && schema.find("$ref")) {  // hides what stands beside it
    if (Status status = apply(
            schema, "$ref", mode, [&] { return read_ref(schema); }, &shape);
        !status)
      return status.error();
    return shape;
  }
  note_unknown(schema);
  for (const KeywordGroup& group : keyword_groups()) {
    if (draft < group.first || draft > group.last || group.read == nullptr) continue;
    const auto found =
        std::ranges::find_if(group.keywords, [&](std::string_view k) { return schema.find(k) != nullptr; });
    if (found == group.keywords.end()) continue;
    Status status = apply(
        schema, *found, mode, [&] { return (this->*group.read)(schema); }, &shape);
    if (!status) return status.error();
  }
  if (schema.draft >= Draft::k2019) {
    if (Status status = read_unevaluated_items(schema, &shape); !status) return status.error();
    if (Status status = read_unevaluated_properties(schema, &shape); !status) return status.error();
  }
  return shape;
}

void ShapeReader::note_unknown(const Schema& schema) {
  for (const auto& member : schema.members) {
    const std::string_view keyword = member.key();
    if (is_silent(keyword) || (keyword == "id" && schema.draft == Draft::k4)) continue;
    const bool is_known = std::ranges::any_of(keyword_groups(), [&](const KeywordGroup& group) {
      return schema.draft >= group.first && schema.draft <= group.last &&
             std::ranges::find(group.keywords, keyword) != group.keywords.end();
    });
    if (!is_known) note(schema.place.pointer, keyword);
  }
}

Result<ValueId> ShapeReader::value_at(const Schema& schema, const value& at, std::string_view keyword,
                                      std::string_view token) {
  const SchemaPlace place =
      token.empty() ? document_.child(schema.place, at, keyword) : document_.child(schema.place, at, keyword, token);
  if (!at.is_bool() && !at.is_object()) {
    return invalid_schema(place.pointer, "", "expected a schema: an object or a boolean");
  }
  return values_.schema(target_of(place));
}

// Where a schema that is nothing but a reference leads; else the schema itself. So references to one schema are one set
// of values.
SchemaPlace ShapeReader::target_of(const SchemaPlace& place) const {
  SchemaPlace at = place;
  for (uint32_t hops = 0; hops < kHopsMax; ++hops) {
    const auto* members = at.value->if_object();
    const value* reference = members == nullptr ? nullptr : members->if_contains("$ref");
    if (reference == nullptr || !reference->is_string()) return at;
    const bool is_old = document_.draft(at) < Draft::k2019;
    const bool is_alone = is_old || std::ranges::all_of(*members, [](const auto& member) {
                            return member.key() == "$ref" || is_silent(member.key());
                          });
    if (!is_alone) return at;
    const Result<SchemaPlace> target = document_.resolve(at, reference->get_string());
    if (!target || (!target->value->is_bool() && !target->value->is_object())) return at;
    at = *target;
  }
  return place;
}

bool ShapeReader::is_shape_empty(const Shape& shape) {
  return shape.literals == 0 && algebra_.has_no_text(shape.numbers.values) && !algebra_.may_hold_strings(shape) &&
         std::ranges::all_of(shape.arrays, [&](const auto& each) { return algebra_.is_empty(each); }) &&
         std::ranges::all_of(shape.objects, [&](const auto& each) { return algebra_.is_empty(each); });
}

bool ShapeReader::is_known_empty(ValueId v) {
  if (v == ValueTable::kNone || known_empty_.contains(v)) return true;
  if (v == ValueTable::kAny || known_filled_.contains(v)) return false;
  if (testing_.size() >= kEmptyDepth || !testing_.insert(v).second) return false;
  Result<const Shape*> shape = shape_of(v);
  const bool is_empty = shape.ok() && is_shape_empty(**shape);
  testing_.erase(v);
  if (is_empty)
    known_empty_.insert(v);
  else if (testing_.empty() && shape.ok() && reading_.empty())
    known_filled_.insert(v);
  return is_empty;
}

}  // namespace llmrt
