#include "core/chat/call_grammar.h"

#include <algorithm>

#include "core/chat/call_body.h"
#include "core/grammar/json_schema.h"
#include "core/grammar/json_spelling.h"

namespace llmrt {
namespace {

using ArgsKind = ArgsMarks::Kind;

RegexId letters_and_digits(RegexPool& pool, uint32_t min, uint32_t max) {
  ByteSet set;
  for (int c = 0; c < 256; ++c)
    set[static_cast<size_t>(c)] = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return pool.repeat(pool.bytes(set), min, max);
}

Result<SymbolId> json_args(FormatSymbols* symbols, const ToolGrammar& tool, const ValueGrammars& values) {
  if (tool.args) return *tool.args;
  if (tool.input) {
    GrammarBuilder& b = symbols->builder();
    return b.sequence(
        {b.literal("{\"input\":"), b.optional(b.literal(" ")), json_string(&b, *tool.input), b.literal("}")});
  }
  if (!tool.strict || tool.parameters.is_null()) return values.any_object(&symbols->builder());
  return values.schema(&symbols->builder(), tool.parameters);
}

Result<SymbolId> object_call(FormatSymbols* symbols, const ToolGrammar& tool, SymbolId args) {
  GrammarBuilder& b = symbols->builder();
  const ChatFormat& format = symbols->format();
  SymbolId id = GrammarBuilder::kEmpty;
  if (format.call_id.from == CallIdMarks::From::kKey) {
    const uint32_t length = format.call_id.length;
    id = b.sequence({b.literal(", \"" + format.call_id.mark + "\": \""),
                     b.terminal(letters_and_digits(b.regexes(), length == 0 ? 1 : length, length == 0 ? 64 : length)),
                     b.literal("\"")});
  }
  return b.sequence({b.literal("{\"name\": " + json_string_text(tool.name) + ", \"" + format.args.keys[0] + "\": "),
                     args, id, b.literal("}")});
}

Result<SymbolId> marked_call(FormatSymbols* symbols, const ToolGrammar& tool, SymbolId args) {
  GrammarBuilder& b = symbols->builder();
  const ChatFormat& format = symbols->format();
  if (format.header.used()) {
    return b.sequence({b.literal(format.name_marks.strip_prefix + tool.name + " "),
                       symbols->mark(format.header.constrain), b.literal("json"), symbols->mark(format.header.message),
                       args});
  }
  std::vector<SymbolId> parts = {symbols->mark(format.name_marks.before),
                                 b.literal(format.name_marks.strip_prefix + tool.name)};
  if (format.call_id.from == CallIdMarks::From::kName) {
    ByteSet digits;
    for (int c = '0'; c <= '9'; ++c) digits.set(static_cast<size_t>(c));
    parts.push_back(b.literal(":"));
    parts.push_back(b.terminal(b.regexes().repeat(b.regexes().bytes(digits), 1, 6)));
  }
  if (format.call_id.from == CallIdMarks::From::kMark) {
    parts.push_back(symbols->mark(format.call_id.mark));
    parts.push_back(b.terminal(letters_and_digits(b.regexes(), format.call_id.length, format.call_id.length)));
  }
  parts.push_back(symbols->mark(format.name_marks.after));
  parts.push_back(symbols->mark(format.args.before));
  if (format.args.fenced) parts.push_back(b.literal("```json\n"));
  parts.push_back(args);
  if (format.args.fenced) parts.push_back(b.literal("\n```"));
  return b.sequence(parts);
}

}  // namespace

SymbolId json_string(GrammarBuilder* builder, const ToolGrammar::Input& input) {
  return builder->sequence({builder->literal("\""), input.in_json, builder->literal("\"")});
}

ValueGrammars json_schema_values(const SchemaOptions& options, SchemaNotes* notes) {
  return {.schema =
              [options, notes](GrammarBuilder* builder, const boost::json::value& schema) {
                SchemaNotes unheard;
                return add_json_schema(builder, schema, options, notes ? notes : &unheard);
              },
          .any_object = [options](GrammarBuilder* builder) { return add_any_json_object(builder, options); },
          .any_value = [options](GrammarBuilder* builder) { return add_any_json(builder, options); }};
}

SymbolId FormatSymbols::mark(std::string_view text) {
  std::vector<SymbolId> parts;
  std::string bytes;
  const auto end_bytes = [&] {
    if (!bytes.empty()) parts.push_back(b_.literal(bytes));
    bytes.clear();
  };
  for (const Unit unit : resolved_.units(text)) {
    if (is_byte(unit)) {
      bytes += static_cast<char>(unit);
    } else {
      end_bytes();
      parts.push_back(b_.token(resolved_.token(unit).id));
    }
  }
  end_bytes();
  return b_.sequence(parts);
}

RegexId FormatSymbols::without(const std::vector<std::string>& marks) {
  RegexPool& pool = b_.regexes();
  std::vector<RegexId> held;
  for (const std::string& text : marks) {
    if (!text.empty() && !resolved_.has_token(text)) held.push_back(pool.literal(text));
  }
  if (held.empty()) return RegexPool::kAnything;
  const RegexId any = pool.either(held);
  return pool.complement(pool.concat(std::vector<RegexId>{RegexPool::kAnything, any, RegexPool::kAnything}));
}

SymbolId FormatSymbols::text_then(RegexId base, std::string_view mark_text, const std::vector<std::string>& forbidden) {
  RegexPool& pool = b_.regexes();
  std::vector<std::string> others = forbidden;
  std::erase(others, mark_text);
  const RegexId text = pool.both(base, without(others));
  if (resolved_.has_token(mark_text)) return b_.sequence({b_.terminal(text), mark(mark_text)});
  // One terminal: its first mark is its end. Text and mark together hold no other mark either.
  const RegexId literal = pool.literal(mark_text);
  ByteSet all;
  all.set();
  const RegexId ends = pool.concat(text, literal);
  const RegexId ends_early = pool.concat(
      std::vector<RegexId>{RegexPool::kAnything, literal, pool.repeat(pool.bytes(all), 1, RegexPool::kUnbounded)});
  return b_.terminal(pool.both(pool.except(ends, ends_early), without(others)));
}

SymbolId FormatSymbols::blanks(uint32_t max) {
  ByteSet set;
  for (const char c : {' ', '\n'}) set.set(static_cast<size_t>(c));
  return b_.terminal(b_.regexes().repeat(b_.regexes().bytes(set), 0, max));
}

Result<SymbolId> call_body(FormatSymbols* symbols, const ToolGrammar& tool, const ValueGrammars& values) {
  const ArgsKind kind = symbols->format().args.kind;
  const bool is_plain = !tool.name.empty() && tool.name.size() < kNameBytesMax / 2 &&
                        std::ranges::all_of(tool.name, [](char c) { return is_name_byte(static_cast<uint8_t>(c)); });
  if (!is_plain && kind != ArgsKind::kJsonInObject) {
    return make_error(ErrorCode::kInvalidArgument,
                      "tool name: the chat format {} writes letters, digits and _-.:/ only, found another character",
                      symbols->format().name);
  }
  if (tool.args && kind != ArgsKind::kJson && kind != ArgsKind::kJsonInObject) {
    return make_error(ErrorCode::kUnsupported,
                      "tool {}: the chat format {} writes no arguments as JSON, so a grammar of its own cannot hold",
                      tool.name, symbols->format().name);
  }
  switch (kind) {
    case ArgsKind::kTagged:
      return tagged_args(symbols, tool, values);
    case ArgsKind::kPythonic:
      return pythonic_args(symbols, tool, values);
    case ArgsKind::kGemma:
      return gemma_args(symbols, tool, values);
    case ArgsKind::kNone:
      return make_error(ErrorCode::kUnsupported, "the chat format {} has no tool calls", symbols->format().name);
    default:
      break;
  }
  const Result<SymbolId> args = json_args(symbols, tool, values);
  if (!args) return args;
  return kind == ArgsKind::kJsonInObject ? object_call(symbols, tool, *args) : marked_call(symbols, tool, *args);
}

}  // namespace llmrt
