// What Jinja's operators do to values, as Python does it.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "core/jinja/ast.h"

namespace llmrt::jinja {

Value apply(UnaryOperator op, const Value& operand, Meter& meter);
Value apply(BinaryOperator op, const Value& left, const Value& right, Meter& meter);
bool apply(Comparison comparison, const Value& left, const Value& right, Meter& meter);

// The items that a for loop would see. A lazy sequence is used up by it.
std::vector<Value> iterate(const Value& value, Meter& meter);
int64_t length_of(const Value& value);

// object.name and object[key]: undefined where there is nothing. Both look at items and at methods, in their own order.
Value get_attribute(Interpreter& interpreter, const Value& object, std::string_view name);
Value get_item(Interpreter& interpreter, const Value& object, const Value& key);
// object[begin:end:step]; an absent bound is none.
Value get_slice(const Value& object, const Value& begin, const Value& end, const Value& step, Meter& meter);

// Fails with the message of an undefined value, if it is one.
void require_defined(const Value& value);

}  // namespace llmrt::jinja
