// The grammar of expressions, each operator's level a function.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/jinja/token_stream.h"

namespace llmrt::jinja {

class ExpressionParser : public TokenStream {
 public:
  using TokenStream::TokenStream;

 protected:
  ExpressionPtr parse_expression(bool with_conditional = true);
  // One expression, or several with commas between: a tuple without need of parentheses.
  ExpressionPtr parse_tuple(bool with_conditional, bool in_parentheses, Words end_words);
  bool at_tuple_end(Words end_words) const;
  // Behind the '|'; `input` is absent at the head of a block.
  std::unique_ptr<FilterCall> parse_filter(ExpressionPtr input);
  // {% filter a|b %}: the last filter, whose input leads back to the first one.
  std::unique_ptr<FilterCall> parse_filter_chain(std::unique_ptr<FilterCall> filter);

  std::vector<MacroBody*> macros_;  // around this place

  // As in Jinja, an unknown filter or test inside of a branch or a conditional expression fails where it is reached;
  // any other once the template is read.
  class Branch {
   public:
    Branch(ExpressionParser& parser, bool is_branch)
        : parser_(parser), outer_(std::exchange(parser.in_branch_, is_branch)) {}
    ~Branch() { parser_.in_branch_ = outer_; }
    Branch(const Branch&) = delete;
    Branch& operator=(const Branch&) = delete;

   private:
    ExpressionParser& parser_;
    bool outer_;
  };
  void require_known() const;

 private:
  struct OperatorName {
    std::string_view text;
    BinaryOperator op;
  };
  using ParseOperand = ExpressionPtr (ExpressionParser::*)();

  // From the loosest to the tightest.
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_filtered_unary() { return parse_unary(true); }
  ExpressionPtr parse_unary(bool with_filter);
  ExpressionPtr parse_primary();
  // A level of operators that group from the left.
  ExpressionPtr parse_binary(std::span<const OperatorName> operators, ParseOperand parse_operand);
  bool take_comparison(Comparison& comparison);

  ExpressionPtr parse_name();
  // A macro takes extra arguments only where its body names them.
  void note_use(std::string_view name);
  ExpressionPtr parse_list(Position at);
  ExpressionPtr parse_mapping(Position at);

  // What follows an expression.
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr node);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  // object[a, b]: the key is a tuple.
  ExpressionPtr parse_subscript_tuple(ExpressionPtr first);
  ExpressionPtr parse_slice(Position at, ExpressionPtr object, ExpressionPtr begin);
  ArgumentList parse_arguments();
  ExpressionPtr parse_call(ExpressionPtr callee);
  ExpressionPtr parse_test(ExpressionPtr input);

  // The name of a filter or test, which may have dots.
  std::string parse_dotted_name();
  void note_unknown(std::string_view what, std::string_view name, Position at);

  ExpressionPtr make_literal(Position at, Value value);
  ExpressionPtr make_logical(bool is_or, Position at, ExpressionPtr left, ExpressionPtr right);
  ExpressionPtr make_unary(UnaryOperator op, Position at, ExpressionPtr operand);
  ExpressionPtr make_item(Position at, ExpressionPtr object, ExpressionPtr key);
  Value integer_of(const Token& token);

  bool in_branch_ = false;
  std::vector<TemplateError> unknown_;  // outside of branches
};

}  // namespace llmrt::jinja
