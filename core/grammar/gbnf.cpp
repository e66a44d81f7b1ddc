#include "core/grammar/gbnf.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/grammar/text_cursor.h"
#include "core/grammar/utf8_ranges.h"

namespace llmrt {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class GbnfReader {
 public:
  GbnfReader(GrammarBuilder* builder, std::string_view text, const GrammarNames& names)
      : builder_(*builder), names_(names), cursor_("GBNF", text) {}

  Result<SymbolId> read() {
    skip_space(true);
    while (!cursor_.at_end()) {
      if (Status rule = read_rule(); !rule) return rule.error();
      skip_space(true);
    }
    for (const auto& [name, rule] : rules_) {
      if (!rule.is_defined) {
        return make_error(ErrorCode::kInvalidArgument, "GBNF grammar: rule \"{}\" is used but not defined", name);
      }
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) return make_error(ErrorCode::kInvalidArgument, "GBNF grammar: expected a rule \"root\"");
    return root->second.symbol;
  }

 private:
  struct Rule {
    SymbolId symbol;
    bool is_defined = false;
  };

  // Blanks and comments; line ends too, where they do not end a rule.
  void skip_space(bool lines) {
    while (true) {
      const char c = cursor_.peek();
      if (cursor_.at_end()) return;
      if (c == '#') {
        while (!cursor_.at_end() && cursor_.peek() != '\n') cursor_.take();
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        cursor_.take();
      } else {
        return;
      }
    }
  }

  std::string read_name() {
    const size_t begin = cursor_.offset();
    while (is_name_char(cursor_.peek())) cursor_.take();
    return std::string(cursor_.from(begin));
  }

  Rule& rule_of(const std::string& name) {
    const auto [it, is_new] = rules_.try_emplace(name);
    if (is_new) it->second.symbol = builder_.declare_rule();
    return it->second;
  }

  Status read_rule() {
    const std::string name = read_name();
    if (name.empty()) return cursor_.error("expected a rule's name");
    skip_space(false);
    if (!cursor_.take_if("::=")) return cursor_.error("expected ::= behind \"{}\"", name);
    skip_space(true);
    Result<SymbolId> body = read_choice(0);
    if (!body.ok()) return body.error();
    Rule& rule = rule_of(name);
    if (rule.is_defined) return cursor_.error("rule \"{}\" is defined twice", name);
    rule.is_defined = true;
    builder_.define_rule(rule.symbol, *body);
    skip_space(false);
    const char c = cursor_.peek();
    if (!cursor_.at_end() && c != '\n' && c != '\r') return cursor_.error("expected the end of rule \"{}\"", name);
    return {};
  }

  Result<SymbolId> read_choice(uint32_t depth) {
    if (depth > kGrammarNestingMax) return cursor_.error("expected at most {} nested groups", kGrammarNestingMax);
    std::vector<SymbolId> choices;
    while (true) {
      Result<SymbolId> sequence = read_sequence(depth);
      if (!sequence.ok()) return sequence;
      choices.push_back(*sequence);
      skip_space(depth > 0);
      if (is_choice_on_next_line()) skip_space(true);
      if (!cursor_.take_if("|")) return builder_.choice(choices);
      skip_space(true);
    }
  }

  // A rule goes on with an alternative at the beginning of the next line.
  bool is_choice_on_next_line() {
    TextCursor before = cursor_;
    skip_space(true);
    const bool is_choice = cursor_.peek() == '|';
    cursor_ = before;
    return is_choice;
  }

  Result<SymbolId> read_sequence(uint32_t depth) {
    std::vector<SymbolId> parts;
    while (true) {
      skip_space(depth > 0);
      std::optional<RegexId> regex;  // where the item is a terminal
      Result<SymbolId> item = read_item(depth, &regex);
      if (!item.ok()) return item;
      if (is_no_item_) return builder_.sequence(parts);
      item = read_repetitions(*item, regex, depth);
      if (!item.ok()) return item;
      parts.push_back(*item);
    }
  }

  Result<SymbolId> read_item(uint32_t depth, std::optional<RegexId>* regex) {
    is_no_item_ = false;
    const char c = cursor_.peek();
    if (c == '"') return terminal(read_literal(), regex);
    if (c == '[') return terminal(read_class(), regex);
    if (c == '.') {
      cursor_.take();
      return terminal(builder_.regexes().any_code_point(), regex);
    }
    if (c == '(') {
      cursor_.take();
      skip_space(true);
      Result<SymbolId> group = read_choice(depth + 1);
      if (!group.ok()) return group;
      skip_space(true);
      if (!cursor_.take_if(")")) return cursor_.error("expected ) at the end of a group");
      is_no_item_ = false;
      return group;
    }
    if (c == '!' && cursor_.peek(1) == '<') {
      return cursor_.error("!<token> (any token but one) is not supported: expected a class of characters");
    }
    if (c == '<') return read_token();
    if (is_name_char(c)) return rule_of(read_name()).symbol;
    is_no_item_ = true;
    return GrammarBuilder::kEmpty;
  }

  Result<SymbolId> terminal(const Result<RegexId>& regex, std::optional<RegexId>* out) {
    if (!regex.ok()) return regex.error();
    *out = *regex;
    return builder_.terminal(*regex);
  }

  Result<SymbolId> read_repetitions(SymbolId item, std::optional<RegexId> regex, uint32_t depth) {
    while (true) {
      skip_space(depth > 0);
      uint32_t min = 0, max = GrammarBuilder::kUnbounded;
      if (cursor_.take_if("*")) {
      } else if (cursor_.take_if("+")) {
        min = 1;
      } else if (cursor_.take_if("?")) {
        max = 1;
      } else if (cursor_.peek() == '{') {
        if (Status bounds = read_bounds(&min, &max); !bounds) return bounds.error();
      } else {
        return item;
      }
      const uint32_t largest = max == GrammarBuilder::kUnbounded ? min : max;
      if (regex) {
        regex = builder_.regexes().repeat(*regex, min, max);
        item = builder_.terminal(*regex);
      } else if (largest > kGrammarRepetitionMax) {
        return cursor_.error("expected at most {} repetitions, found {}", kGrammarRepetitionMax, largest);
      } else {
        item = builder_.repeat(item, min, max);
      }
    }
  }

  Status read_bounds(uint32_t* min, uint32_t* max) {
    cursor_.take();
    skip_space(true);
    const auto first = cursor_.take_number();
    if (!first && cursor_.peek() != ',') return cursor_.error("expected a number of at most nine digits behind {{");
    *min = first.value_or(0);
    *max = *min;
    skip_space(true);
    if (cursor_.take_if(",")) {
      skip_space(true);
      const auto second = cursor_.peek() == '}' ? std::optional(GrammarBuilder::kUnbounded) : cursor_.take_number();
      if (!second) return cursor_.error("expected a number of at most nine digits behind the comma");
      *max = *second;
      skip_space(true);
    }
    if (!cursor_.take_if("}")) return cursor_.error("expected }} at the end of a repetition");
    if (*min > *max) return cursor_.error("a repetition: expected min <= max, found {} and {}", *min, *max);
    return {};
  }

  Result<RegexId> read_literal() {
    cursor_.take();
    std::string text;
    while (cursor_.peek() != '"') {
      Result<char32_t> c = read_character("\"");
      if (!c.ok()) return c.error();
      append_utf8(text, *c);
    }
    cursor_.take();
    return builder_.regexes().literal(text);
  }

  Result<RegexId> read_class() {
    cursor_.take();
    const bool is_negated = cursor_.take_if("^");
    std::vector<CodePointRange> ranges;
    while (cursor_.peek() != ']') {
      Result<char32_t> first = read_character("]");
      if (!first.ok()) return first.error();
      char32_t last = *first;
      if (cursor_.peek() == '-' && cursor_.peek(1) != ']') {
        cursor_.take();
        Result<char32_t> second = read_character("]");
        if (!second.ok()) return second.error();
        last = *second;
      }
      if (last < *first) return cursor_.error("a class: expected a range in ascending order");
      ranges.emplace_back(*first, last);
    }
    cursor_.take();
    return builder_.regexes().code_points(is_negated ? other_ranges(ranges) : ranges);
  }

  Result<char32_t> read_character(const char* end) {
    if (cursor_.at_end()) return cursor_.error("expected {} before the end of the text", end);
    if (cursor_.peek() != '\\') {
      const auto c = cursor_.take_code_point();
      if (!c) return cursor_.error("expected UTF-8");
      return *c;
    }
    cursor_.take();
    const char kind = cursor_.take();
    switch (kind) {
      case 'n':
        return U'\n';
      case 't':
        return U'\t';
      case 'r':
        return U'\r';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return static_cast<char32_t>(kind);
      case 'x':
      case 'u':
      case 'U':
        return cursor_.take_escaped_code_point(kind);
      default:
        return cursor_.error("an unknown escape: expected one of n t r \\ \" [ ] - ^ x u U behind the backslash");
    }
  }

  Result<SymbolId> read_token() {
    Result<int32_t> token = cursor_.take_token(names_);
    if (!token.ok()) return token.error();
    return builder_.token(*token);
  }

  GrammarBuilder& builder_;
  const GrammarNames& names_;
  TextCursor cursor_;
  std::map<std::string, Rule> rules_;
  bool is_no_item_ = false;  // read_item found none
};

}  // namespace

Result<SymbolId> add_gbnf(GrammarBuilder* builder, std::string_view text, const GrammarNames& names) {
  if (text.size() > kGrammarTextBytesMax) {
    return make_error(ErrorCode::kGrammarTooComplex, "GBNF grammar: expected at most {} bytes, found {}",
                      kGrammarTextBytesMax, text.size());
  }
  return GbnfReader(builder, text, names).read();
}

}  // namespace llmrt
