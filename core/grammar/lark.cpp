#include "core/grammar/lark.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/grammar/lark_parser.h"
#include "core/grammar/regex_syntax.h"

namespace llmrt {
namespace {

using Expression = LarkExpression;

bool is_terminal_name(std::string_view name) {
  const size_t letter = name.find_first_not_of("_");
  return letter != std::string_view::npos && name[letter] >= 'A' && name[letter] <= 'Z';
}

// Terminals of Lark's common.lark, by their patterns.
const std::map<std::string_view, std::string_view>& common_terminals() {
  static const std::map<std::string_view, std::string_view> terminals = {
      {"DIGIT", "[0-9]"},
      {"HEXDIGIT", "[0-9a-fA-F]"},
      {"INT", "[0-9]+"},
      {"SIGNED_INT", "[+-]?[0-9]+"},
      {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
      {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
      {"SIGNED_FLOAT", "[+-]?(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
      {"NUMBER", "[0-9]+|[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
      {"SIGNED_NUMBER", "[+-]?(?:[0-9]+|[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
      {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
      {"LCASE_LETTER", "[a-z]"},
      {"UCASE_LETTER", "[A-Z]"},
      {"LETTER", "[A-Za-z]"},
      {"WORD", "[A-Za-z]+"},
      {"CNAME", "[A-Za-z_][A-Za-z0-9_]*"},
      {"WS_INLINE", "[ \\t]+"},
      {"WS", "[ \\t\\f\\r\\n]+"},
      {"CR", "\\r"},
      {"LF", "\\n"},
      {"NEWLINE", "(?:\\r?\\n)+"},
  };
  return terminals;
}

class LarkMaker {
 public:
  LarkMaker(GrammarBuilder* builder, const LarkDocument& document, const LarkOptions& options)
      : builder_(*builder), document_(document), options_(options) {}

  Result<SymbolId> make() {
    if (!document_.definitions.contains("start")) {
      return make_error(ErrorCode::kInvalidArgument, "Lark grammar: expected a rule \"start\"");
    }
    std::vector<RegexId> ignored;
    for (const Expression& expression : document_.ignored) {
      Result<RegexId> regex = regex_of(expression, 0);
      if (!regex.ok()) return regex.error();
      ignored.push_back(*regex);
    }
    RegexPool& regexes = builder_.regexes();
    ignored_ = regexes.star(regexes.either(ignored));
    for (const auto& [name, expression] : document_.definitions) {
      if (!is_terminal_name(name)) rules_.emplace(name, builder_.declare_rule());
    }
    for (const auto& [name, expression] : document_.definitions) {
      if (is_terminal_name(name)) continue;
      Result<SymbolId> body = symbol_of(expression, 0);
      if (!body.ok()) return body;
      builder_.define_rule(rules_.at(name), *body);
    }
    return builder_.sequence({builder_.terminal(ignored_), rules_.at("start")});
  }

 private:
  Error unknown(std::string_view name) const {
    return make_error(ErrorCode::kInvalidArgument, "Lark grammar: \"{}\" is used but not defined", name);
  }
  static Error too_deep() {
    return make_error(ErrorCode::kGrammarTooComplex, "Lark grammar: expected at most {} nested groups and terminals",
                      kGrammarNestingMax);
  }
  // A terminal in a rule, with what is ignored behind it.
  SymbolId lexeme(RegexId regex) { return builder_.sequence({builder_.terminal(regex), builder_.terminal(ignored_)}); }

  Result<SymbolId> symbol_of(const Expression& expression, uint32_t depth) {
    if (depth > kGrammarNestingMax) return too_deep();
    std::vector<SymbolId> parts;
    switch (expression.kind) {
      case Expression::Kind::kName: {
        if (is_terminal_name(expression.text)) break;
        const auto rule = rules_.find(expression.text);
        return rule == rules_.end() ? Result<SymbolId>(unknown(expression.text)) : rule->second;
      }
      case Expression::Kind::kToken:
        return builder_.sequence({builder_.token(expression.token), builder_.terminal(ignored_)});
      case Expression::Kind::kJson: {
        Result<SymbolId> values = options_.add_json(&builder_, expression.schema);
        if (!values.ok()) return values;
        return builder_.sequence({*values, builder_.terminal(ignored_)});
      }
      case Expression::Kind::kSequence:
      case Expression::Kind::kChoice:
        for (const Expression& part : expression.parts) {
          Result<SymbolId> symbol = symbol_of(part, depth + 1);
          if (!symbol.ok()) return symbol;
          parts.push_back(*symbol);
        }
        return expression.kind == Expression::Kind::kChoice ? builder_.choice(parts) : builder_.sequence(parts);
      case Expression::Kind::kRepeat: {
        const uint32_t most = expression.max == GrammarBuilder::kUnbounded ? expression.min : expression.max;
        if (most > kGrammarRepetitionMax) {
          return make_error(ErrorCode::kUnsupportedSchema, "Lark grammar: expected at most {} repetitions, found {}",
                            kGrammarRepetitionMax, most);
        }
        Result<SymbolId> part = symbol_of(expression.parts[0], depth + 1);
        if (!part.ok()) return part;
        return builder_.repeat(*part, expression.min, expression.max);
      }
      case Expression::Kind::kLiteral:
      case Expression::Kind::kRange:
      case Expression::Kind::kPattern:
        break;
    }
    Result<RegexId> regex = regex_of(expression, depth);
    if (!regex.ok()) return regex.error();
    return lexeme(*regex);
  }

  // The expression as a part of a terminal.
  Result<RegexId> regex_of(const Expression& expression, uint32_t depth) {
    if (depth > kGrammarNestingMax) return too_deep();
    RegexPool& regexes = builder_.regexes();
    std::vector<RegexId> parts;
    switch (expression.kind) {
      case Expression::Kind::kLiteral:
        return expression.ignores_case ? literal_of_any_case(expression.text) : regexes.literal(expression.text);
      case Expression::Kind::kRange: {
        const CodePointRange range[] = {{expression.first, expression.last}};
        return regexes.code_points(range);
      }
      case Expression::Kind::kPattern:
        return parse_regex(&regexes, expression.text, {.anchored = true});
      case Expression::Kind::kName:
        return regex_of_name(expression.text, depth);
      case Expression::Kind::kSequence:
      case Expression::Kind::kChoice:
        for (const Expression& part : expression.parts) {
          Result<RegexId> regex = regex_of(part, depth + 1);
          if (!regex.ok()) return regex;
          parts.push_back(*regex);
        }
        return expression.kind == Expression::Kind::kChoice ? regexes.either(parts) : regexes.concat(parts);
      case Expression::Kind::kRepeat: {
        Result<RegexId> part = regex_of(expression.parts[0], depth + 1);
        if (!part.ok()) return part;
        return regexes.repeat(*part, expression.min, expression.max);
      }
      case Expression::Kind::kToken:
      case Expression::Kind::kJson:
        break;
    }
    return make_error(ErrorCode::kUnsupportedSchema,
                      "Lark grammar: a special token or %json inside a terminal is not supported: put it in a rule");
  }

  Result<RegexId> regex_of_name(const std::string& name, uint32_t depth) {
    if (!is_terminal_name(name)) {
      return make_error(ErrorCode::kInvalidArgument, "Lark grammar: the rule \"{}\" is used in a terminal", name);
    }
    if (const auto made = terminals_.find(name); made != terminals_.end()) return made->second;
    const auto definition = document_.definitions.find(name);
    if (definition == document_.definitions.end()) {
      const auto imported = document_.imports.find(name);
      const auto common =
          imported == document_.imports.end() ? common_terminals().end() : common_terminals().find(imported->second);
      if (common == common_terminals().end()) return unknown(name);
      return parse_regex(&builder_.regexes(), common->second, {.anchored = true});
    }
    if (!open_.insert(name).second) {
      return make_error(ErrorCode::kInvalidArgument, "Lark grammar: the terminal \"{}\" is used in itself", name);
    }
    Result<RegexId> regex = regex_of(definition->second, depth + 1);
    open_.erase(name);
    if (regex.ok()) terminals_.emplace(name, *regex);
    return regex;
  }

  RegexId literal_of_any_case(std::string_view text) {
    RegexPool& regexes = builder_.regexes();
    std::vector<RegexId> parts;
    for (const char c : text) {
      ByteSet set;
      set.set(static_cast<uint8_t>(c));
      const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      if (is_letter) set.set(static_cast<uint8_t>(c) ^ 0x20);
      parts.push_back(regexes.bytes(set));
    }
    return regexes.concat(parts);
  }

  GrammarBuilder& builder_;
  const LarkDocument& document_;
  const LarkOptions& options_;
  RegexId ignored_ = RegexPool::kEmpty;
  std::map<std::string, SymbolId> rules_;
  std::map<std::string, RegexId> terminals_;
  std::set<std::string> open_;  // terminals that are being made
};

}  // namespace

Result<SymbolId> add_lark(GrammarBuilder* builder, std::string_view text, const LarkOptions& options) {
  if (text.size() > kGrammarTextBytesMax) {
    return make_error(ErrorCode::kGrammarTooComplex, "Lark grammar: expected at most {} bytes, found {}",
                      kGrammarTextBytesMax, text.size());
  }
  Result<LarkDocument> document = parse_lark(text, options.names);
  if (!document.ok()) return document.error();
  return LarkMaker(builder, *document, options).make();
}

}  // namespace llmrt
