#include "core/jinja/expression_parser.h"

#include <utility>

#include "core/jinja/filters.h"
#include "core/jinja/integers.h"
#include "core/jinja/tests.h"

namespace llmrt::jinja {

ExpressionPtr ExpressionParser::parse_expression(bool with_conditional) {
  const size_t num_unknown = unknown_.size();
  ExpressionPtr left = parse_or();
  while (with_conditional && at_name("if")) {
    auto node = make<Conditional>(take().at);
    node->then = std::move(left);
    node->condition = parse_or();
    if (skip_name("else")) {
      const Nest nest(*this);
      node->otherwise = parse_expression();
    }
    for (const ExpressionPtr* part : {&node->then, &node->condition, &node->otherwise}) {
      deepen(node->depth, *part);
    }
    left = finish(std::move(node));
    unknown_.resize(num_unknown);  // all parts of a conditional expression are branches
  }
  return left;
}

void ExpressionParser::require_known() const {
  if (!unknown_.empty()) {
    throw unknown_.front();
  }
}

void ExpressionParser::note_unknown(std::string_view what, std::string_view name, Position at) {
  if (!in_branch_) {
    unknown_.push_back({ErrorCode::kUnsupported, fmt::format("{} '{}'", what, excerpt(name)), at});
  }
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name = expect_name();
  while (skip_operator(".")) {
    name += "." + expect_name();
  }
  return name;
}

ExpressionPtr ExpressionParser::make_logical(bool is_or, Position at, ExpressionPtr left, ExpressionPtr right) {
  auto node = make<Logical>(at);
  node->is_or = is_or;
  node->left = std::move(left);
  node->right = std::move(right);
  deepen(node->depth, node->left);
  deepen(node->depth, node->right);
  return finish(std::move(node));
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr left = parse_and();
  while (at_name("or")) {
    const Position at = take().at;
    left = make_logical(true, at, std::move(left), parse_and());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr left = parse_not();
  while (at_name("and")) {
    const Position at = take().at;
    left = make_logical(false, at, std::move(left), parse_not());
  }
  return left;
}

ExpressionPtr ExpressionParser::make_unary(UnaryOperator op, Position at, ExpressionPtr operand) {
  auto node = make<Unary>(at);
  node->op = op;
  node->operand = std::move(operand);
  deepen(node->depth, node->operand);
  return finish(std::move(node));
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!at_name("not")) {
    return parse_compare();
  }
  const Nest nest(*this);
  const Position at = take().at;
  return make_unary(UnaryOperator::kNot, at, parse_not());
}

bool ExpressionParser::take_comparison(Comparison& comparison) {
  static constexpr std::pair<std::string_view, Comparison> kOperators[] = {
      {"==", Comparison::kEqual},     {"!=", Comparison::kNotEqual}, {"<", Comparison::kLess},
      {"<=", Comparison::kLessEqual}, {">", Comparison::kGreater},   {">=", Comparison::kGreaterEqual}};
  for (const auto& [text, value] : kOperators) {
    if (skip_operator(text)) {
      comparison = value;
      return true;
    }
  }
  if (skip_name("in")) {
    comparison = Comparison::kIn;
    return true;
  }
  if (at_name("not") && is_name(look(), "in")) {
    take();
    take();
    comparison = Comparison::kNotIn;
    return true;
  }
  return false;
}

ExpressionPtr ExpressionParser::parse_compare() {
  auto node = make<Compare>(token().at);
  node->first = parse_sum();
  deepen(node->depth, node->first);
  for (Comparison comparison; take_comparison(comparison);) {
    node->rest.emplace_back(comparison, parse_sum());
    deepen(node->depth, node->rest.back().second);
  }
  return node->rest.empty() ? std::move(node->first) : finish(std::move(node));
}

ExpressionPtr ExpressionParser::parse_binary(std::span<const OperatorName> operators, ParseOperand parse_operand) {
  ExpressionPtr left = (this->*parse_operand)();
  while (true) {
    const auto found =
        std::ranges::find_if(operators, [&](const OperatorName& name) { return at_operator(name.text); });
    if (found == operators.end()) {
      return left;
    }
    auto node = make<Binary>(take().at);
    node->op = found->op;
    node->left = std::move(left);
    node->right = (this->*parse_operand)();
    deepen(node->depth, node->left);
    deepen(node->depth, node->right);
    left = finish(std::move(node));
  }
}

ExpressionPtr ExpressionParser::parse_sum() {
  static constexpr OperatorName kOperators[] = {{"+", BinaryOperator::kAdd}, {"-", BinaryOperator::kSubtract}};
  return parse_binary(kOperators, &ExpressionParser::parse_concat);
}

ExpressionPtr ExpressionParser::parse_concat() {
  auto node = make<Concat>(token().at);
  do {
    node->parts.push_back(parse_product());
    deepen(node->depth, node->parts.back());
  } while (skip_operator("~"));
  return node->parts.size() == 1 ? std::move(node->parts[0]) : finish(std::move(node));
}

ExpressionPtr ExpressionParser::parse_product() {
  static constexpr OperatorName kOperators[] = {{"*", BinaryOperator::kMultiply},
                                                {"//", BinaryOperator::kFloorDivide},
                                                {"/", BinaryOperator::kDivide},
                                                {"%", BinaryOperator::kModulo}};
  return parse_binary(kOperators, &ExpressionParser::parse_power);
}

ExpressionPtr ExpressionParser::parse_power() {
  static constexpr OperatorName kOperators[] = {{"**", BinaryOperator::kPower}};
  return parse_binary(kOperators, &ExpressionParser::parse_filtered_unary);
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filter) {
  ExpressionPtr node;
  if (at_operator("-") || at_operator("+")) {
    const Nest nest(*this);
    const Token& sign = take();
    node = make_unary(sign.text == "-" ? UnaryOperator::kMinus : UnaryOperator::kPlus, sign.at, parse_unary(false));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::make_literal(Position at, Value value) {
  auto node = make<Literal>(at);
  node->value = std::move(value);
  return node;
}

Value ExpressionParser::integer_of(const Token& token) {
  Meter meter;
  try {
    return *parse_whole(token.text, token.base, false, meter);
  } catch (TemplateError& error) {
    fail_syntax(token.at, "{}", error.message);
  }
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Nest nest(*this);
  const Token& first = token();
  switch (first.kind) {
    case TokenKind::kName:
      return parse_name();
    case TokenKind::kString: {
      std::string text;
      while (token().kind == TokenKind::kString) {
        text += take().text;
      }
      return make_literal(first.at, Value(Text(std::move(text), true)));
    }
    case TokenKind::kInteger:
      return make_literal(first.at, integer_of(take()));
    case TokenKind::kFloat:
      return make_literal(first.at, Value(take().number));
    case TokenKind::kOperator:
      if (skip_operator("(")) {
        ExpressionPtr inner = parse_tuple(true, true, {});
        expect_operator(")");
        return inner;
      }
      if (skip_operator("[")) {
        return parse_list(first.at);
      }
      if (skip_operator("{")) {
        return parse_mapping(first.at);
      }
      break;
    default:
      break;
  }
  expected("an expression");
}

ExpressionPtr ExpressionParser::parse_name() {
  const Token& first = take();
  if (first.text == "true" || first.text == "True" || first.text == "false" || first.text == "False") {
    return make_literal(first.at, Value(first.text[0] == 't' || first.text[0] == 'T'));
  }
  if (first.text == "none" || first.text == "None") {
    return make_literal(first.at, Value());
  }
  note_use(first.text);
  auto node = make<Name>(first.at);
  node->name = first.text;
  return node;
}

void ExpressionParser::note_use(std::string_view name) {
  for (MacroBody* macro : macros_) {
    macro->uses_varargs |= name == "varargs";
    macro->uses_kwargs |= name == "kwargs";
    macro->uses_caller |= name == "caller";
  }
}

bool ExpressionParser::at_tuple_end(Words end_words) const {
  return token().kind == TokenKind::kVariableEnd || token().kind == TokenKind::kBlockEnd || at_operator(")") ||
         at_any_name(end_words);
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_conditional, bool in_parentheses, Words end_words) {
  auto tuple = make<Sequence>(token().at);
  tuple->kind = ListKind::kTuple;
  bool is_tuple = false;
  while (!at_tuple_end(end_words)) {
    tuple->items.push_back(parse_expression(with_conditional));
    deepen(tuple->depth, tuple->items.back());
    if (!skip_operator(",")) {
      break;
    }
    is_tuple = true;
  }
  if (!is_tuple && !tuple->items.empty()) {
    return std::move(tuple->items[0]);
  }
  if (!is_tuple && !in_parentheses) {
    expected("an expression");
  }
  return finish(std::move(tuple));
}

ExpressionPtr ExpressionParser::parse_list(Position at) {
  auto node = make<Sequence>(at);
  while (!skip_operator("]")) {
    if (!node->items.empty()) {
      expect_operator(",");
      if (skip_operator("]")) {
        break;
      }
    }
    node->items.push_back(parse_expression());
    deepen(node->depth, node->items.back());
  }
  return finish(std::move(node));
}

ExpressionPtr ExpressionParser::parse_mapping(Position at) {
  auto node = make<Mapping>(at);
  while (!skip_operator("}")) {
    if (!node->items.empty()) {
      expect_operator(",");
      if (skip_operator("}")) {
        break;
      }
    }
    ExpressionPtr key = parse_expression();
    expect_operator(":");
    node->items.emplace_back(std::move(key), parse_expression());
    deepen(node->depth, node->items.back().first);
    deepen(node->depth, node->items.back().second);
  }
  return finish(std::move(node));
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr node) {
  while (true) {
    if (at_operator(".") || at_operator("[")) {
      node = parse_subscript(std::move(node));
    } else if (at_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters_and_tests(ExpressionPtr node) {
  while (true) {
    if (skip_operator("|")) {
      node = parse_filter(std::move(node));
    } else if (at_name("is")) {
      node = parse_test(std::move(node));
    } else if (at_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
  const Token& first = take();
  if (first.text == ".") {
    if (token().kind == TokenKind::kInteger) {
      const Token& index = take();
      return make_item(first.at, std::move(object), make_literal(index.at, integer_of(index)));
    }
    auto node = make<GetAttribute>(first.at);
    node->object = std::move(object);
    node->name = expect_name();
    deepen(node->depth, node->object);
    return finish(std::move(node));
  }
  const Nest nest(*this);
  ExpressionPtr begin;
  if (!at_operator(":")) {
    begin = parse_expression();
    if (skip_operator("]")) {
      return make_item(first.at, std::move(object), std::move(begin));
    }
    if (at_operator(",")) {
      return make_item(first.at, std::move(object), parse_subscript_tuple(std::move(begin)));
    }
  }
  return parse_slice(first.at, std::move(object), std::move(begin));
}

ExpressionPtr ExpressionParser::parse_subscript_tuple(ExpressionPtr first) {
  auto tuple = make<Sequence>(first->at);
  tuple->kind = ListKind::kTuple;
  tuple->items.push_back(std::move(first));
  while (skip_operator(",")) {
    tuple->items.push_back(parse_expression());
  }
  expect_operator("]");
  for (const ExpressionPtr& item : tuple->items) {
    deepen(tuple->depth, item);
  }
  return finish(std::move(tuple));
}

ExpressionPtr ExpressionParser::make_item(Position at, ExpressionPtr object, ExpressionPtr key) {
  auto node = make<GetItem>(at);
  node->object = std::move(object);
  node->key = std::move(key);
  deepen(node->depth, node->object);
  deepen(node->depth, node->key);
  return finish(std::move(node));
}

ExpressionPtr ExpressionParser::parse_slice(Position at, ExpressionPtr object, ExpressionPtr begin) {
  auto node = make<GetSlice>(at);
  node->object = std::move(object);
  node->begin = std::move(begin);
  expect_operator(":");
  if (!at_operator(":") && !at_operator("]")) {
    node->end = parse_expression();
  }
  if (skip_operator(":") && !at_operator("]")) {
    node->step = parse_expression();
  }
  expect_operator("]");
  for (const ExpressionPtr* part : {&node->object, &node->begin, &node->end, &node->step}) {
    deepen(node->depth, *part);
  }
  return finish(std::move(node));
}

ArgumentList ExpressionParser::parse_arguments() {
  const Nest nest(*this);
  ArgumentList arguments;
  expect_operator("(");
  bool is_first = true;
  while (!skip_operator(")")) {
    if (!is_first) {
      expect_operator(",");
      if (skip_operator(")")) {
        break;
      }
    }
    is_first = false;
    if (skip_operator("*")) {
      arguments.more_positional = parse_expression();
    } else if (skip_operator("**")) {
      arguments.more_named = parse_expression();
    } else if (token().kind == TokenKind::kName && is_operator(look(), "=")) {
      std::string name = take().text;
      take();
      arguments.named.emplace_back(std::move(name), parse_expression());
    } else if (arguments.named.empty() && !arguments.more_positional && !arguments.more_named) {
      arguments.positional.push_back(parse_expression());
    } else {
      fail_syntax(token().at, "a positional argument after a named one");
    }
  }
  return arguments;
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  auto node = make<Call>(token().at);
  node->callee = std::move(callee);
  node->arguments = parse_arguments();
  node->depth = std::max(depth_of(node->arguments), node->callee->depth + 1);
  return finish(std::move(node));
}

std::unique_ptr<FilterCall> ExpressionParser::parse_filter(ExpressionPtr input) {
  auto node = make<FilterCall>(token().at);
  node->name = parse_dotted_name();
  node->function = find_filter(node->name);
  if (!node->function) {
    note_unknown("filter", node->name, node->at);
  }
  node->input = std::move(input);
  if (at_operator("(")) {
    node->arguments = parse_arguments();
  }
  node->depth = depth_of(node->arguments);
  deepen(node->depth, node->input);
  return finish(std::move(node));
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
  auto node = make<TestCall>(take().at);
  const bool negated = skip_name("not");
  node->name = parse_dotted_name();
  node->function = find_test(node->name);
  if (!node->function) {
    note_unknown("test", node->name, node->at);
  }
  node->input = std::move(input);
  const TokenKind kind = token().kind;
  if (at_operator("(")) {
    node->arguments = parse_arguments();
  } else if (at_name("is")) {
    fail_syntax(token().at, "tests cannot be chained");
  } else if ((kind == TokenKind::kName && !at_any_name({"else", "or", "and"})) || kind == TokenKind::kString ||
             kind == TokenKind::kInteger || kind == TokenKind::kFloat || at_operator("[") || at_operator("{")) {
    node->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  node->depth = std::max(depth_of(node->arguments), node->input->depth + 1);
  const Position at = node->at;
  ExpressionPtr test = finish(std::move(node));
  return negated ? make_unary(UnaryOperator::kNot, at, std::move(test)) : std::move(test);
}

std::unique_ptr<FilterCall> ExpressionParser::parse_filter_chain(std::unique_ptr<FilterCall> filter) {
  while (skip_operator("|")) {
    filter = parse_filter(std::move(filter));
  }
  return filter;
}

}  // namespace llmrt::jinja
