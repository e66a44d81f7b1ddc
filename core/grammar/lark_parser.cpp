#include "core/grammar/lark_parser.h"

#include <optional>
#include <utility>

#include "core/grammar/text_cursor.h"

namespace llmrt {
namespace {

using Expression = LarkExpression;
constexpr int kJsonNestingMax = 64;

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

class LarkReader {
 public:
  LarkReader(std::string_view text, const GrammarNames& names) : names_(names), cursor_("Lark", text) {}

  Result<LarkDocument> read() {
    skip_lines();
    while (!cursor_.at_end()) {
      if (Status statement = cursor_.peek() == '%' ? read_directive() : read_definition(); !statement) {
        return statement.error();
      }
      skip_blanks();
      if (!cursor_.at_end() && cursor_.peek() != '\n') return cursor_.error("expected the end of the line");
      skip_lines();
    }
    return std::move(document_);
  }

 private:
  Error refused(std::string_view what) const {
    Error error = cursor_.error("{} not supported", what);
    error.code = ErrorCode::kUnsupportedSchema;
    return error;
  }

  // Blanks and comments of the line.
  void skip_blanks() {
    while (true) {
      const char c = cursor_.peek();
      if (c == ' ' || c == '\t' || c == '\r') {
        cursor_.take();
      } else if (c == '#' || cursor_.starts_with("//")) {
        while (!cursor_.at_end() && cursor_.peek() != '\n') cursor_.take();
      } else {
        return;
      }
    }
  }
  void skip_lines() {
    for (skip_blanks(); cursor_.peek() == '\n'; skip_blanks()) cursor_.take();
  }
  // A definition goes on behind a line end where the next line begins with |, and anywhere inside a group.
  void skip_between(uint32_t depth) {
    if (depth > 0) return skip_lines();
    skip_blanks();
    const TextCursor before = cursor_;
    skip_lines();
    if (cursor_.peek() != '|') cursor_ = before;
  }

  std::string read_name() {
    const size_t begin = cursor_.offset();
    while (is_name_char(cursor_.peek())) cursor_.take();
    return std::string(cursor_.from(begin));
  }

  Status read_directive() {
    cursor_.take();
    const std::string name = read_name();
    skip_blanks();
    if (name == "ignore") {
      Result<Expression> ignored = read_choice(0);
      if (!ignored.ok()) return ignored.error();
      document_.ignored.push_back(std::move(*ignored));
      return {};
    }
    if (name == "import") return read_import();
    if (name == "llguidance") {
      Result<boost::json::value> options = read_json();
      if (!options.ok()) return options.error();
      if (!options->is_object() || !options->get_object().empty()) return refused("options of %llguidance are");
      return {};
    }
    return refused("%" + name.substr(0, 32) + " is");
  }

  // common.A, common.A -> B, common (A, B).
  Status read_import() {
    if (!cursor_.take_if("common")) return refused("an import from anywhere but common is");
    skip_blanks();
    if (cursor_.take_if("(")) {
      do {
        skip_blanks();
        const std::string name = read_name();
        if (name.empty()) return cursor_.error("expected a terminal's name");
        document_.imports[name] = name;
        skip_blanks();
      } while (cursor_.take_if(","));
      if (!cursor_.take_if(")")) return cursor_.error("expected )");
      return {};
    }
    if (!cursor_.take_if(".")) return cursor_.error("expected common.NAME");
    const std::string name = read_name();
    if (name.empty()) return cursor_.error("expected a terminal's name");
    skip_blanks();
    std::string here = name;
    if (cursor_.take_if("->")) {
      skip_blanks();
      here = read_name();
    }
    document_.imports[here] = name;
    return {};
  }

  Status read_definition() {
    while (cursor_.peek() == '?' || cursor_.peek() == '!') cursor_.take();  // how a tree would look: no matter here
    const std::string name = read_name();
    if (name.empty()) return cursor_.error("expected a rule, a terminal or a directive");
    if (cursor_.peek() == '{') return refused("a template is");
    if (cursor_.take_if(".")) {
      cursor_.take_if("-");
      if (!cursor_.take_number()) return cursor_.error("expected a priority behind the point");
    }
    if (cursor_.peek() == '[') return refused("attributes of a rule are");
    skip_blanks();
    if (!cursor_.take_if(":")) return cursor_.error("expected : behind \"{}\"", name);
    skip_lines_before_choice();
    Result<Expression> body = read_choice(0);
    if (!body.ok()) return body.error();
    if (!document_.definitions.emplace(name, std::move(*body)).second) {
      return cursor_.error("\"{}\" is defined twice", name);
    }
    return {};
  }
  void skip_lines_before_choice() {
    skip_between(0);
    cursor_.take_if("|");
  }

  Result<Expression> read_choice(uint32_t depth) {
    if (depth > kGrammarNestingMax) return cursor_.error("expected at most {} nested groups", kGrammarNestingMax);
    Expression choice{.kind = Expression::Kind::kChoice};
    while (true) {
      Result<Expression> sequence = read_sequence(depth);
      if (!sequence.ok()) return sequence;
      choice.parts.push_back(std::move(*sequence));
      skip_between(depth);
      if (cursor_.take_if("->")) {  // an alias of the tree
        skip_blanks();
        if (read_name().empty()) return cursor_.error("expected a name behind ->");
        skip_between(depth);
      }
      if (!cursor_.take_if("|")) break;
    }
    if (choice.parts.size() > 1) return choice;
    Expression only = std::move(choice.parts[0]);
    return only;
  }

  Result<Expression> read_sequence(uint32_t depth) {
    Expression sequence;
    while (true) {
      depth > 0 ? skip_lines() : skip_blanks();
      const char c = cursor_.peek();
      if (cursor_.at_end() || c == '|' || c == ')' || c == ']' || c == '\n' || cursor_.starts_with("->")) break;
      Result<Expression> item = read_item(depth);
      if (!item.ok()) return item;
      Result<Expression> repeated = read_repetition(std::move(*item));
      if (!repeated.ok()) return repeated;
      sequence.parts.push_back(std::move(*repeated));
    }
    return sequence;
  }

  static Expression repeat(Expression item, uint32_t min, uint32_t max) {
    Expression repeated{.kind = Expression::Kind::kRepeat, .min = min, .max = max};
    repeated.parts.push_back(std::move(item));
    return repeated;
  }

  Result<Expression> read_repetition(Expression item) {
    if (cursor_.take_if("*")) return repeat(std::move(item), 0, UINT32_MAX);
    if (cursor_.take_if("+")) return repeat(std::move(item), 1, UINT32_MAX);
    if (cursor_.take_if("?")) return repeat(std::move(item), 0, 1);
    const bool is_braced = cursor_.peek() == '{';
    if (cursor_.peek() != '~' && !is_braced) return item;
    cursor_.take();
    skip_blanks();
    const auto min = cursor_.take_number();
    if (!min) return cursor_.error("expected a number of repetitions");
    uint32_t max = *min;
    if (is_braced ? cursor_.take_if(",") : cursor_.take_if("..")) {
      skip_blanks();
      const auto most = is_braced && cursor_.peek() == '}' ? std::optional(UINT32_MAX) : cursor_.take_number();
      if (!most) return cursor_.error("expected a number of repetitions");
      max = *most;
    }
    if (is_braced && !cursor_.take_if("}")) return cursor_.error("expected }} behind the repetitions");
    if (*min > max) return cursor_.error("a repetition: expected min <= max, found {} and {}", *min, max);
    return repeat(std::move(item), *min, max);
  }

  Result<Expression> read_item(uint32_t depth) {
    const char c = cursor_.peek();
    if (c == '(' || c == '[') {
      cursor_.take();
      Result<Expression> group = read_choice(depth + 1);
      if (!group.ok()) return group;
      skip_lines();
      if (!cursor_.take_if(c == '(' ? ")" : "]"))
        return cursor_.error("expected {} at the end of a group", c == '(' ? ')' : ']');
      if (c == '(') return group;
      return repeat(std::move(*group), 0, 1);
    }
    if (c == '"') return read_string();
    if (c == '/') return read_pattern();
    if (c == '<') return read_token();
    if (c == '%') {
      cursor_.take();
      const std::string name = read_name();
      if (name != "json") return refused("%" + name.substr(0, 32) + " is");
      skip_blanks();
      Result<boost::json::value> schema = read_json();
      if (!schema.ok()) return schema.error();
      Expression json{.kind = Expression::Kind::kJson};
      json.schema = std::move(*schema);
      return json;
    }
    if (c == '~') return refused("~ before an expression (what is not in it) is");
    if (c == '&') return refused("& (what is in both) is");
    Expression name{.kind = Expression::Kind::kName};
    name.text = read_name();
    if (name.text.empty()) return cursor_.error("expected a name, a literal, an expression or a group");
    if (cursor_.peek() == '{') return refused("a template is");
    return name;
  }

  Result<std::string> read_quoted() {
    cursor_.take();
    std::string text;
    while (cursor_.peek() != '"') {
      if (cursor_.at_end() || cursor_.peek() == '\n') return cursor_.error("expected \" before the end of the line");
      const char c = cursor_.take();
      if (c != '\\') {
        text += c;
        continue;
      }
      const char kind = cursor_.take();
      const std::string_view plain = "nrtfv\\\"/", meaning = "\n\r\t\f\v\\\"/";
      if (const size_t at = plain.find(kind); at != std::string_view::npos && kind != '\0') {
        text += meaning[at];
      } else if (kind == 'x' || kind == 'u' || kind == 'U') {
        const Result<char32_t> value = cursor_.take_escaped_code_point(kind);
        if (!value.ok()) return value.error();
        append_utf8(text, *value);
      } else {
        return cursor_.error("an unknown escape");
      }
    }
    cursor_.take();
    return text;
  }

  Result<Expression> read_string() {
    Result<std::string> text = read_quoted();
    if (!text.ok()) return text.error();
    if (cursor_.take_if("..")) {
      if (cursor_.peek() != '"') return cursor_.error("expected a string behind ..");
      Result<std::string> last = read_quoted();
      if (!last.ok()) return last.error();
      const auto character = [](const std::string& one) -> std::optional<char32_t> {
        if (one.empty()) return std::nullopt;
        const Utf8Step step = decode_utf8(one, 0);
        return step.num_bytes == one.size() && step.state == Utf8State::kValid ? std::optional(step.code_point)
                                                                               : std::nullopt;
      };
      const auto a = character(*text), b = character(*last);
      if (!a || !b || *a > *b) return cursor_.error("a range: expected two characters in ascending order");
      return Expression{.kind = Expression::Kind::kRange, .first = *a, .last = *b};
    }
    Expression literal{.kind = Expression::Kind::kLiteral};
    literal.text = std::move(*text);
    literal.ignores_case = cursor_.peek() == 'i' && !is_name_char(cursor_.peek(1));
    if (literal.ignores_case) cursor_.take();
    if (literal.ignores_case && !is_ascii(literal.text)) return refused("the flag i of a string that is not ASCII is");
    if (is_name_char(cursor_.peek())) return refused("a flag other than i of a string is");
    return literal;
  }

  Result<Expression> read_pattern() {
    const size_t begin = cursor_.offset() + 1;
    cursor_.take();
    for (; cursor_.peek() != '/'; cursor_.take()) {
      if (cursor_.at_end() || cursor_.peek() == '\n') return cursor_.error("expected / before the end of the line");
      if (cursor_.peek() == '\\') cursor_.take();
    }
    Expression pattern{.kind = Expression::Kind::kPattern};
    pattern.text = cursor_.from(begin);
    cursor_.take();
    if (is_name_char(cursor_.peek())) return refused("a flag of a regular expression is");
    return pattern;
  }

  Result<Expression> read_token() {
    Result<int32_t> id = cursor_.take_token(names_);
    if (!id.ok()) return id.error();
    Expression token{.kind = Expression::Kind::kToken};
    token.token = *id;
    return token;
  }

  Result<boost::json::value> read_json() {
    boost::json::parse_options options;
    options.max_depth = kJsonNestingMax;
    boost::json::stream_parser parser({}, options);
    boost::json::error_code error;
    const std::string_view rest = cursor_.rest();
    const size_t used = parser.write_some(rest.data(), rest.size(), error);
    if (!error && !parser.done()) parser.finish(error);
    if (error) return cursor_.error("expected JSON: {}", error.message());
    cursor_.skip(used);
    return parser.release();
  }

  const GrammarNames& names_;
  TextCursor cursor_;
  LarkDocument document_;
};

}  // namespace

Result<LarkDocument> parse_lark(std::string_view text, const GrammarNames& names) {
  return LarkReader(text, names).read();
}

}  // namespace llmrt
