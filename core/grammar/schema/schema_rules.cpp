#include "core/grammar/schema/schema_rules.h"

#include "core/grammar/json_spelling.h"

namespace llmrt {
namespace {

RegexId spaces_regex(RegexPool* pool, SchemaOptions::Spaces spaces) {
  ByteSet set;
  for (char c : {' ', '\t'}) set.set(static_cast<uint8_t>(c));
  switch (spaces) {
    case SchemaOptions::Spaces::kCompact:
      return RegexPool::kEmpty;
    case SchemaOptions::Spaces::kOneSpace:
      return pool->optional(pool->literal(" "));
    case SchemaOptions::Spaces::kDefault:
      return pool->optional(
          pool->either(pool->literal(" "), pool->concat(pool->literal("\n"), pool->repeat(pool->bytes(set), 0, 64))));
    case SchemaOptions::Spaces::kAny:
      for (char c : {'\n', '\r'}) set.set(static_cast<uint8_t>(c));
      return pool->star(pool->bytes(set));
  }
  return RegexPool::kEmpty;
}

}  // namespace

SchemaRules::SchemaRules(GrammarBuilder* builder, ShapeReader* reader, const SchemaOptions& options,
                         bool shortest_numbers)
    : builder_(*builder),
      pool_(builder->regexes()),
      reader_(*reader),
      options_(options),
      escaped_(&pool_, json_spellings()) {
  spaces_ = spaces_regex(&pool_, options.spaces);
  if (shortest_numbers) number_texts_ = llmrt::shortest_numbers(&pool_);
  comma_ = pool_.concat(spaces_, pool_.concat(pool_.literal(","), spaces_));
  colon_ = pool_.concat(spaces_, pool_.concat(pool_.literal(":"), spaces_));
}

Result<SymbolId> SchemaRules::write(ValueId value) {
  Result<SymbolId> symbol = symbol_of(value);
  while (symbol && !to_define_.empty()) {
    const ValueId next = to_define_.front();
    to_define_.pop_front();
    Result<const Shape*> shape = reader_.shape_of(next);
    if (!shape) return shape.error();
    Result<SymbolId> body = body_of(**shape);
    if (!body && body.error().code == ErrorCode::kUnsupportedSchema &&
        !body.error().message.starts_with("unsupported schema: ")) {
      if (Status status = reader_.refuse_or_drop_in(next, body.error().message); !status) return status.error();
      Shape without = **shape;
      for (ObjectShape& object : without.objects) object.some.clear();
      body = body_of(without);
    }
    if (!body) return body;
    if (!builder_.status()) return builder_.status().error();
    builder_.define_rule(symbols_.at(next), *body);
  }
  return symbol;
}

Result<SymbolId> SchemaRules::symbol_of(ValueId value) {
  if (const auto it = symbols_.find(value); it != symbols_.end()) return it->second;
  Result<const Shape*> shape = reader_.shape_of(value);
  if (!shape) return shape.error();
  if (!builder_.status()) return builder_.status().error();
  SymbolId symbol;
  if ((*shape)->arrays.empty() && (*shape)->objects.empty()) {
    symbol = builder_.terminal(scalars(**shape));
  } else {
    symbol = builder_.declare_rule();
    to_define_.push_back(value);
  }
  symbols_.emplace(value, symbol);
  return symbol;
}

RegexId SchemaRules::scalars(const Shape& shape) {
  std::vector<RegexId> parts;
  if (shape.literals & Shape::kNull) parts.push_back(pool_.literal("null"));
  if (shape.literals & Shape::kTrue) parts.push_back(pool_.literal("true"));
  if (shape.literals & Shape::kFalse) parts.push_back(pool_.literal("false"));
  parts.push_back(numbers_of(shape));
  if (shape.strings != RegexPool::kNothing) parts.push_back(string_regex(shape.strings));
  return pool_.either(parts);
}

RegexId SchemaRules::numbers_of(const Shape& shape) {
  const RegexId texts = shape.numbers.texts;
  return number_texts_ == RegexPool::kNothing ? texts : pool_.both(texts, number_texts_);
}

RegexId SchemaRules::string_regex(RegexId decoded) {
  const RegexId quote = pool_.literal("\"");
  return pool_.concat(quote, pool_.concat(escaped_.replace(decoded), quote));
}

Result<SymbolId> SchemaRules::body_of(const Shape& shape) {
  std::vector<SymbolId> parts = {builder_.terminal(scalars(shape))};
  for (const ArrayShape& array : shape.arrays) {
    Result<Body> body = array_body(array);
    if (!body) return body.error();
    parts.push_back(bracketed("[", "]", *body));
  }
  for (const ObjectShape& object : shape.objects) {
    Result<Body> body = object_body(object);
    if (!body) return body.error();
    parts.push_back(bracketed("{", "}", *body));
  }
  return builder_.choice(parts);
}

SymbolId SchemaRules::bracketed(const char* open, const char* close, const Body& body) {
  const RegexId opened = pool_.concat(pool_.literal(open), spaces_);
  const RegexId closed = pool_.concat(spaces_, pool_.literal(close));
  const SymbolId place = body.marks == 0 ? GrammarBuilder::kEmpty : builder_.mark(body.marks);
  const SymbolId filled = builder_.sequence({builder_.terminal(opened), place, body.filled, builder_.terminal(closed)});
  if (!body.may_be_empty) return filled;
  return builder_.choice({filled, builder_.terminal(pool_.concat(opened, pool_.literal(close)))});
}

SymbolId SchemaRules::distinct(SymbolId part, bool is_tight) {
  const SymbolId begin = is_tight ? builder_.mark(static_cast<uint8_t>(PlaceMark::kBegins)) : GrammarBuilder::kEmpty;
  return builder_.sequence({begin, part, builder_.mark(static_cast<uint8_t>(PlaceMark::kDistinct))});
}

SymbolId SchemaRules::rule(SymbolId body) {
  const auto kind = builder_.symbol(body).kind;
  using Kind = GrammarBuilder::Symbol::Kind;
  if (kind != Kind::kSequence && kind != Kind::kChoice && kind != Kind::kRepeat) return body;
  const SymbolId out = builder_.declare_rule();
  builder_.define_rule(out, body);
  return out;
}

}  // namespace llmrt
