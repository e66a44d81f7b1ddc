#include "core/jinja/parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/keyed_hash.h"
#include "core/jinja/code_points.h"
#include "core/jinja/expression_parser.h"

namespace llmrt::jinja {
namespace {

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Template run() {
    Template whole;
    whole.body = parse_block({});
    require_known();
    whole.blocks = std::move(blocks_);
    return whole;
  }

 private:
  // Up to a tag that begins with one of `end_words`, which is left for the caller; to the end where there are none.
  Block parse_block(Words end_words) {
    const Nest nest(*this);
    Block block;
    while (token().kind != TokenKind::kEnd) {
      if (token().kind == TokenKind::kData) {
        auto node = make<OutputText>(token().at);
        node->text = std::make_shared<const Text>(take().text, true);
        block.push_back(std::move(node));
      } else if (token().kind == TokenKind::kVariableBegin) {
        auto node = make<OutputValue>(take().at);
        node->value = parse_tuple(true, false, {});
        expect_kind(TokenKind::kVariableEnd, "'}}'");
        block.push_back(std::move(node));
      } else {
        expect_kind(TokenKind::kBlockBegin, "a tag");
        if (at_any_name(end_words)) {
          return block;
        }
        block.push_back(parse_statement());
        expect_kind(TokenKind::kBlockEnd, "'%}'");
      }
    }
    if (end_words.size() > 0) {
      expected(fmt::format("'{}'", *(end_words.end() - 1)));
    }
    return block;
  }

  // The rest of an opening tag, and the statements up to an end word.
  Block parse_body(Words end_words) {
    skip_operator(":");
    expect_kind(TokenKind::kBlockEnd, "'%}'");
    return parse_block(end_words);
  }

  // The same for a body with one end word, which is taken.
  Block parse_whole_body(std::string_view end_word) {
    Block body = parse_body({end_word});
    take();
    return body;
  }

  StatementPtr parse_statement() {
    if (token().kind != TokenKind::kName) {
      expected("the name of a tag");
    }
    const Token& tag = take();
    if (tag.text == "if") {
      return parse_if(tag.at);
    }
    if (tag.text == "for") {
      return parse_for(tag.at);
    }
    if (tag.text == "set") {
      return parse_set(tag.at);
    }
    if (tag.text == "macro") {
      return parse_macro(tag.at);
    }
    if (tag.text == "call") {
      return parse_call_block(tag.at);
    }
    if (tag.text == "filter") {
      auto node = make<FilterBlock>(tag.at);
      const Branch branch(*this, false);
      node->filter = parse_filter_chain(parse_filter(nullptr));
      node->body = parse_whole_body("endfilter");
      return node;
    }
    if (tag.text == "with") {
      return parse_with(tag.at);
    }
    if (tag.text == "generation") {
      const Branch branch(*this, false);
      auto node = make<With>(tag.at);
      node->body = parse_whole_body("endgeneration");
      return node;
    }
    if (tag.text == "block") {
      return parse_named_block(tag.at);
    }
    if (tag.text == "autoescape") {
      return parse_autoescape(tag.at);
    }
    if (tag.text == "break" || tag.text == "continue") {
      return parse_jump(tag);
    }
    static constexpr std::array kKnown = {"do", "extends", "from", "import", "include", "print", "trans"};
    if (std::ranges::find(kKnown, tag.text) != kKnown.end()) {
      throw TemplateError{ErrorCode::kUnsupported, fmt::format("tag '{}'", tag.text), tag.at};
    }
    fail_syntax(tag.at, "unknown tag '{}'", tag.text);
  }

  StatementPtr parse_named_block(Position at) {
    auto node = make<NamedBlock>(at);
    node->name = expect_name();
    node->is_scoped = skip_name("scoped");
    node->is_required = skip_name("required");
    if (!block_names_.insert(node->name).second) {
      fail_syntax(at, "block '{}' defined twice", node->name);
    }
    blocks_.push_back(node.get());
    const Branch branch(*this, false);
    const int loops = std::exchange(loops_, 0);  // break does not reach out of a block
    node->body = parse_whole_body("endblock");
    loops_ = loops;
    skip_name(node->name);
    if (node->is_required && !std::ranges::all_of(node->body, is_blank_text)) {
      fail_syntax(at, "required blocks can only contain comments or whitespace");
    }
    return node;
  }

  static bool is_blank_text(const StatementPtr& statement) {
    const auto* output = dynamic_cast<const OutputText*>(statement.get());
    return output && is_blank(output->text->bytes());
  }

  // Nothing escapes here by itself, so false changes nothing.
  StatementPtr parse_autoescape(Position at) {
    const ExpressionPtr value = parse_expression();
    const auto* literal = dynamic_cast<const Literal*>(value.get());
    if (!literal || is_true(literal->value)) {
      throw TemplateError{ErrorCode::kUnsupported, "tag 'autoescape' with another value than false", at};
    }
    const Branch branch(*this, false);
    auto node = make<With>(at);
    node->body = parse_whole_body("endautoescape");
    return node;
  }

  StatementPtr parse_if(Position at) {
    const Branch branch(*this, true);
    auto node = make<If>(at);
    while (true) {
      ExpressionPtr condition = parse_tuple(false, false, {});
      Block body = parse_body({"elif", "else", "endif"});
      node->branches.emplace_back(std::move(condition), std::move(body));
      const std::string word = take().text;
      if (word == "elif") {
        continue;
      }
      if (word == "else") {
        node->otherwise = parse_whole_body("endif");
      }
      return node;
    }
  }

  StatementPtr parse_for(Position at) {
    auto node = make<For>(at);
    node->target = parse_target(false, {"in"});
    if (!skip_name("in")) {
      expected("'in'");
    }
    node->iterable = parse_tuple(false, false, {"recursive"});
    const Branch branch(*this, false);
    if (skip_name("if")) {
      node->filter = parse_expression();
    }
    node->is_recursive = skip_name("recursive");
    ++loops_;
    node->body = parse_body({"endfor", "else"});
    --loops_;
    if (take().text == "else") {
      node->otherwise = parse_whole_body("endfor");
    }
    return node;
  }

  Target parse_one_target(bool with_attribute) {
    Target target;
    target.at = token().at;
    if (skip_operator("(")) {
      const Nest nest(*this);
      target = parse_target(with_attribute, {});
      expect_operator(")");
      return target;
    }
    target.name = expect_name();
    static constexpr std::array kConstants = {"true", "True", "false", "False", "none", "None"};
    if (std::ranges::find(kConstants, target.name) != kConstants.end()) {
      fail_syntax(target.at, "can't assign to '{}'", target.name);
    }
    if (with_attribute && skip_operator(".")) {
      target.attribute = expect_name();
    }
    return target;
  }

  Target parse_target(bool with_attribute, Words end_words) {
    Target first = parse_one_target(with_attribute);
    if (!at_operator(",")) {
      return first;
    }
    Target tuple;
    tuple.at = first.at;
    tuple.parts.push_back(std::move(first));
    while (skip_operator(",")) {
      if (at_tuple_end(end_words) || at_operator("=")) {
        break;
      }
      tuple.parts.push_back(parse_one_target(with_attribute));
    }
    return tuple;
  }

  StatementPtr parse_set(Position at) {
    Target target = parse_target(true, {});
    if (skip_operator("=")) {
      auto node = make<Set>(at);
      node->target = std::move(target);
      node->value = parse_tuple(true, false, {});
      return node;
    }
    const Branch branch(*this, false);
    auto node = make<SetBlock>(at);
    node->target = std::move(target);
    if (skip_operator("|")) {
      node->filter = parse_filter_chain(parse_filter(nullptr));
    }
    node->body = parse_whole_body("endset");
    return node;
  }

  void parse_signature(MacroBody& macro) {
    const Branch branch(*this, false);
    expect_operator("(");
    while (!skip_operator(")")) {
      if (!macro.parameters.empty()) {
        expect_operator(",");
      }
      macro.parameters.push_back(expect_name());
      if (skip_operator("=")) {
        macro.defaults.push_back(parse_expression());
      } else if (!macro.defaults.empty()) {
        fail_syntax(token().at, "a parameter without a default after one with a default");
      }
    }
  }

  void parse_macro_body(MacroBody& macro, std::string_view end_word) {
    const Branch branch(*this, false);
    macros_.push_back(&macro);
    const int loops = std::exchange(loops_, 0);  // break does not reach out of a macro
    macro.body = parse_whole_body(end_word);
    loops_ = loops;
    macros_.pop_back();
  }

  StatementPtr parse_macro(Position at) {
    auto node = make<Macro>(at);
    node->macro.name = expect_name();
    parse_signature(node->macro);
    parse_macro_body(node->macro, "endmacro");
    return node;
  }

  StatementPtr parse_call_block(Position at) {
    auto node = make<CallBlock>(at);
    node->caller.name = "caller";
    if (at_operator("(")) {
      parse_signature(node->caller);
    }
    ExpressionPtr call = parse_expression();
    if (!dynamic_cast<Call*>(call.get())) {
      fail_syntax(at, "expected a call");
    }
    node->call.reset(static_cast<Call*>(call.release()));
    parse_macro_body(node->caller, "endcall");
    return node;
  }

  StatementPtr parse_with(Position at) {
    auto node = make<With>(at);
    while (token().kind != TokenKind::kBlockEnd) {
      if (!node->assignments.empty()) {
        expect_operator(",");
      }
      Target target = parse_target(false, {});
      expect_operator("=");
      node->assignments.emplace_back(std::move(target), parse_expression());
    }
    const Branch branch(*this, false);
    node->body = parse_whole_body("endwith");
    return node;
  }

  StatementPtr parse_jump(const Token& tag) {
    if (loops_ == 0) {
      fail_syntax(tag.at, "'{}' outside loop", tag.text);
    }
    auto node = make<Jump>(tag.at);
    node->flow = tag.text == "break" ? Flow::kBreak : Flow::kContinue;
    return node;
  }

  int loops_ = 0;  // around this place, in this macro
  std::vector<const NamedBlock*> blocks_;
  KeyedSet block_names_;
};

}  // namespace

Template parse(std::string_view source) {
  return Parser(source).run();
}

}  // namespace llmrt::jinja
