// The tree of a template: built by the parser, walked by the interpreter, immutable in between. eval and run are
// called through Interpreter::eval and Interpreter::run, which count steps and guard the depth.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/jinja/value.h"

namespace llmrt::jinja {

struct Expression {
  Position at;
  int depth = 1;  // of the tree below, this node included

  virtual ~Expression() = default;
  virtual Value eval(Interpreter& interpreter) const = 0;
  // The name that a call on this expression would use, for messages.
  virtual std::string description() const { return "value"; }
};
using ExpressionPtr = std::unique_ptr<Expression>;

// What a statement asks of the loop around it.
enum class Flow { kNext, kBreak, kContinue };

struct Statement {
  Position at;
  virtual ~Statement() = default;
  virtual Flow run(Interpreter& interpreter) const = 0;
};
using StatementPtr = std::unique_ptr<Statement>;
using Block = std::vector<StatementPtr>;

// Expressions.

struct Literal : Expression {
  Value value;
  Value eval(Interpreter&) const override { return value; }
};

struct Name : Expression {
  std::string name;
  Value eval(Interpreter& interpreter) const override;
  std::string description() const override { return "'" + name + "'"; }
};

struct Sequence : Expression {  // [a, b] or (a, b)
  ListKind kind = ListKind::kList;
  std::vector<ExpressionPtr> items;
  Value eval(Interpreter& interpreter) const override;
};

struct Mapping : Expression {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
  Value eval(Interpreter& interpreter) const override;
};

struct GetAttribute : Expression {
  ExpressionPtr object;
  std::string name;
  Value eval(Interpreter& interpreter) const override;
  std::string description() const override { return "'" + name + "'"; }
};

struct GetItem : Expression {
  ExpressionPtr object;
  ExpressionPtr key;
  Value eval(Interpreter& interpreter) const override;
};

struct GetSlice : Expression {
  ExpressionPtr object;
  ExpressionPtr begin, end, step;  // each may be absent
  Value eval(Interpreter& interpreter) const override;
};

struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;  // *args
  ExpressionPtr more_named;       // **kwargs
  Arguments eval(Interpreter& interpreter) const;
};

struct Call : Expression {
  ExpressionPtr callee;
  ArgumentList arguments;
  Value eval(Interpreter& interpreter) const override;
  Value call(Interpreter& interpreter, Arguments evaluated) const;
};

struct FilterCall : Expression {
  using Function = Value (*)(Interpreter&, const Value& input, Arguments&);
  ExpressionPtr input;  // absent at the head of a filter or set block, whose text is the input
  std::string name;
  Function function = nullptr;  // nullptr: unknown, inside of a branch; fails where it is reached
  ArgumentList arguments;
  Value eval(Interpreter& interpreter) const override;
  Value apply(Interpreter& interpreter, const Value& block_text) const;
};

struct TestCall : Expression {
  using Function = bool (*)(Interpreter&, const Value& input, Arguments&);
  ExpressionPtr input;
  std::string name;
  Function function = nullptr;  // as in FilterCall
  ArgumentList arguments;
  Value eval(Interpreter& interpreter) const override;
};

enum class UnaryOperator { kNot, kMinus, kPlus };
struct Unary : Expression {
  UnaryOperator op;
  ExpressionPtr operand;
  Value eval(Interpreter& interpreter) const override;
};

enum class BinaryOperator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
struct Binary : Expression {
  BinaryOperator op;
  ExpressionPtr left, right;
  Value eval(Interpreter& interpreter) const override;
};

struct Concat : Expression {  // a ~ b ~ c
  std::vector<ExpressionPtr> parts;
  Value eval(Interpreter& interpreter) const override;
};

struct Logical : Expression {  // and, or: the value of the operand that decides
  bool is_or = false;
  ExpressionPtr left, right;
  Value eval(Interpreter& interpreter) const override;
};

enum class Comparison { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
struct Compare : Expression {  // a < b <= c
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
  Value eval(Interpreter& interpreter) const override;
};

struct Conditional : Expression {            // a if b else c
  ExpressionPtr condition, then, otherwise;  // the last may be absent
  Value eval(Interpreter& interpreter) const override;
};

// Statements.

struct OutputText : Statement {
  TextPtr text;
  Flow run(Interpreter& interpreter) const override;
};

struct OutputValue : Statement {
  ExpressionPtr value;
  Flow run(Interpreter& interpreter) const override;
};

struct Target {  // of an assignment
  std::string name;
  std::string attribute;      // of the namespace `name`, when not empty
  std::vector<Target> parts;  // of a tuple, when `name` is empty
  Position at;
};

struct If : Statement {
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
  Flow run(Interpreter& interpreter) const override;
};

struct For : Statement {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr filter;  // may be absent
  bool is_recursive = false;
  Block body;
  Block otherwise;
  Flow run(Interpreter& interpreter) const override;
  Flow walk(Interpreter& interpreter, const Value& items, int loop_depth) const;
};

struct Set : Statement {
  Target target;
  ExpressionPtr value;
  Flow run(Interpreter& interpreter) const override;
};

struct SetBlock : Statement {
  Target target;
  std::unique_ptr<FilterCall> filter;  // may be absent
  Block body;
  Flow run(Interpreter& interpreter) const override;
};

struct MacroBody {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
  Block body;
};

struct Macro : Statement {
  MacroBody macro;
  Flow run(Interpreter& interpreter) const override;
};

struct CallBlock : Statement {  // {% call(x) macro() %}...{% endcall %}
  MacroBody caller;
  std::unique_ptr<Call> call;
  Flow run(Interpreter& interpreter) const override;
};

struct FilterBlock : Statement {
  std::unique_ptr<FilterCall> filter;
  Block body;
  Flow run(Interpreter& interpreter) const override;
};

struct With : Statement {  // also the plain scope of a generation block
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Block body;
  Flow run(Interpreter& interpreter) const override;
};

// {% block x %}: rendered in place, in the scope of the whole template or, where it says so, in that around it.
struct NamedBlock : Statement {
  std::string name;
  bool is_scoped = false;
  bool is_required = false;  // of a template that extends this one, which there is none of
  Block body;
  Flow run(Interpreter& interpreter) const override;
};

struct Jump : Statement {  // break, continue
  Flow flow = Flow::kNext;
  Flow run(Interpreter&) const override { return flow; }
};

// A whole template.
struct Template {
  Block body;
  std::vector<const NamedBlock*> blocks;
};

}  // namespace llmrt::jinja
