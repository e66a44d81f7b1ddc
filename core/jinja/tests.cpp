#include "core/jinja/tests.h"

#include <algorithm>
#include <iterator>

#include "core/jinja/arguments.h"
#include "core/jinja/code_points.h"
#include "core/jinja/convert.h"
#include "core/jinja/filters.h"
#include "core/jinja/interpreter.h"
#include "core/jinja/operators.h"

namespace llmrt::jinja {
namespace {

using Predicate = bool (*)(const Value&);

// A test without arguments that looks at the value alone.
template <Predicate predicate>
bool plain(Interpreter&, const Value& input, Arguments& arguments) {
  const Parameters given("test", arguments, {});
  return predicate(input);
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_boolean(const Value& value) {
  return value.as_bool() != nullptr;
}
bool is_the_true(const Value& value) {
  return value.as_bool() && *value.as_bool();
}
bool is_the_false(const Value& value) {
  return value.as_bool() && !*value.as_bool();
}
bool is_integer(const Value& value) {
  return value.as_int() || value.as_big();
}
bool is_float(const Value& value) {
  return value.as_double() != nullptr;
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_string(const Value& value) {
  return value.as_text() != nullptr;
}
bool is_mapping(const Value& value) {
  return value.as_dict() != nullptr;
}
bool is_escaped(const Value&) {
  return false;
}  // nothing is: there is no automatic escaping
bool is_callable(const Value& value) {
  return value.as_callable() || value.as_loop() || value.is_undefined();
}
bool is_iterable(const Value& value) {
  return value.as_list() || value.as_dict() || value.as_text() || value.as_loop() || value.is_undefined();
}
bool is_sequence(const Value& value) {
  const List* list = value.as_list();
  return (list && list->kind <= ListKind::kRange) || value.as_dict() || value.as_text() || value.is_undefined();
}

template <int64_t rest>
bool has_parity(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("test", arguments, {});
  const Value remainder = apply(BinaryOperator::kModulo, input, Value(int64_t{2}), interpreter.meter());
  return equals(remainder, Value(rest), interpreter.meter());
}

bool is_divisible(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("divisibleby", arguments, {"num"}, 1);
  return equals(apply(BinaryOperator::kModulo, input, given[0], interpreter.meter()), Value(int64_t{0}),
                interpreter.meter());
}

template <Comparison comparison>
bool compares(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("test", arguments, {"other"}, 1);
  return apply(comparison, input, given[0], interpreter.meter());
}

bool is_same(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("sameas", arguments, {"other"}, 1);
  return input.same_as(given[0], interpreter.meter());
}

template <bool (*predicate)(std::string_view)>
bool text_is(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("test", arguments, {});
  const Text text = to_text(input, interpreter.meter());
  interpreter.meter().charge_characters(text.size());
  return predicate(text.bytes());
}

// The names are keys of a dict: what cannot be one fails.
bool is_filter(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("filter", arguments, {});
  hash_of(input, interpreter.meter());
  return input.as_text() && find_filter(input.as_text()->bytes());
}

bool is_test(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("test", arguments, {});
  hash_of(input, interpreter.meter());
  return input.as_text() && find_test(input.as_text()->bytes());
}

struct NamedTest {
  std::string_view name;
  TestCall::Function function;
};

constexpr NamedTest kTests[] = {
    {"defined", plain<is_defined>},
    {"undefined", plain<is_undefined>},
    {"none", plain<is_none>},
    {"boolean", plain<is_boolean>},
    {"true", plain<is_the_true>},
    {"false", plain<is_the_false>},
    {"integer", plain<is_integer>},
    {"float", plain<is_float>},
    {"number", plain<is_number>},
    {"string", plain<is_string>},
    {"mapping", plain<is_mapping>},
    {"escaped", plain<is_escaped>},
    {"callable", plain<is_callable>},
    {"iterable", plain<is_iterable>},
    {"sequence", plain<is_sequence>},
    {"odd", has_parity<1>},
    {"even", has_parity<0>},
    {"divisibleby", is_divisible},
    {"lower", text_is<is_lower>},
    {"upper", text_is<is_upper>},
    {"sameas", is_same},
    {"filter", is_filter},
    {"test", is_test},
    {"in", compares<Comparison::kIn>},
    {"==", compares<Comparison::kEqual>},
    {"eq", compares<Comparison::kEqual>},
    {"equalto", compares<Comparison::kEqual>},
    {"!=", compares<Comparison::kNotEqual>},
    {"ne", compares<Comparison::kNotEqual>},
    {"<", compares<Comparison::kLess>},
    {"lt", compares<Comparison::kLess>},
    {"lessthan", compares<Comparison::kLess>},
    {"<=", compares<Comparison::kLessEqual>},
    {"le", compares<Comparison::kLessEqual>},
    {">", compares<Comparison::kGreater>},
    {"gt", compares<Comparison::kGreater>},
    {"greaterthan", compares<Comparison::kGreater>},
    {">=", compares<Comparison::kGreaterEqual>},
    {"ge", compares<Comparison::kGreaterEqual>},
};

}  // namespace

TestCall::Function find_test(std::string_view name) {
  const auto* found = std::ranges::find(kTests, name, &NamedTest::name);
  return found == std::end(kTests) ? nullptr : found->function;
}

}  // namespace llmrt::jinja
