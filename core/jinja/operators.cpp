#include "core/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "core/jinja/code_points.h"
#include "core/jinja/format.h"
#include "core/jinja/integers.h"
#include "core/jinja/interpreter.h"
#include "core/jinja/loop.h"
#include "core/jinja/methods.h"

namespace llmrt::jinja {
namespace {

[[noreturn]] void fail_operands(std::string_view op, const Value& left, const Value& right) {
  require_defined(left);
  require_defined(right);
  fail("unsupported operands of {}: {} and {}", op, type_name(left), type_name(right));
}

Value add(const Value& left, const Value& right, Meter& meter) {
  if (left.is_integer() && right.is_integer()) {
    int64_t sum = 0;
    if (!__builtin_add_overflow(left.integer(), right.integer(), &sum)) {
      return Value(sum);
    }
  }
  if (left.is_whole() && right.is_whole()) {
    return apply_whole(BinaryOperator::kAdd, left, right, meter);
  }
  if (left.is_number() && right.is_number()) {
    return Value(left.number() + right.number());
  }
  if (left.as_text() && right.as_text()) {
    meter.charge_growth(left.as_text()->size(), right.as_text()->size());
    meter.charge_bytes(left.as_text()->size());
    Text joined = *left.as_text();
    joined.append(*right.as_text());
    return Value(std::move(joined));
  }
  const List* a = left.as_list();
  const List* b = right.as_list();
  if (a && b && a->kind == b->kind && a->kind <= ListKind::kTuple) {
    meter.charge(a->items.size() + b->items.size());
    meter.check_entries(a->items.size() + b->items.size());
    std::vector<Value> items;
    items.reserve(a->items.size() + b->items.size());
    items = a->items;
    items.insert(items.end(), b->items.begin(), b->items.end());
    return Value::list(std::move(items), a->kind);
  }
  fail_operands("+", left, right);
}

Value subtract(const Value& left, const Value& right, Meter& meter) {
  if (left.is_integer() && right.is_integer()) {
    int64_t difference = 0;
    if (!__builtin_sub_overflow(left.integer(), right.integer(), &difference)) {
      return Value(difference);
    }
  }
  if (left.is_whole() && right.is_whole()) {
    return apply_whole(BinaryOperator::kSubtract, left, right, meter);
  }
  if (left.is_number() && right.is_number()) {
    return Value(left.number() - right.number());
  }
  fail_operands("-", left, right);
}

// "ab" * 3 and [1] * 3.
Value repeat(const Value& value, int64_t times, Meter& meter) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (const Text* text = value.as_text()) {
    if (text->empty()) {
      return value;
    }
    meter.charge_repeated(text->size(), count);
    meter.charge(text->num_runs() > 1 ? count * text->num_runs() / 8 : 0);
    Text out;
    out.append_repeated(*text, count);
    return Value(std::move(out));
  }
  const List& list = *value.as_list();
  std::vector<Value> items;
  for (size_t i = 0; i < count && !list.items.empty(); ++i) {
    meter.charge(list.items.size());
    meter.check_entries(items.size() + list.items.size());
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return Value::list(std::move(items), list.kind);
}

bool repeats(const Value& value) {
  return value.as_text() || (value.as_list() && value.as_list()->kind <= ListKind::kTuple);
}

Value multiply(const Value& left, const Value& right, Meter& meter) {
  if (left.is_integer() && right.is_integer()) {
    int64_t product = 0;
    if (!__builtin_mul_overflow(left.integer(), right.integer(), &product)) {
      return Value(product);
    }
  }
  if (left.is_whole() && right.is_whole()) {
    return apply_whole(BinaryOperator::kMultiply, left, right, meter);
  }
  if (left.is_number() && right.is_number()) {
    return Value(left.number() * right.number());
  }
  if (repeats(left) && right.is_integer()) {
    return repeat(left, right.integer(), meter);
  }
  if (left.is_integer() && repeats(right)) {
    return repeat(right, left.integer(), meter);
  }
  fail_operands("*", left, right);
}

double floor_modulo(double left, double right) {
  double rest = std::fmod(left, right);
  if (rest == 0) {
    return std::copysign(0.0, right);
  }
  return (rest < 0) != (right < 0) ? rest + right : rest;
}

double floor_divide(double left, double right) {
  // As CPython: from the remainder, so that quotient * right + remainder gives left back.
  const double quotient = (left - floor_modulo(left, right)) / right;
  if (quotient == 0) {
    return std::copysign(0.0, left / right);
  }
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

Value divide(BinaryOperator op, const Value& left, const Value& right, Meter& meter) {
  const char* name = op == BinaryOperator::kDivide ? "/" : op == BinaryOperator::kModulo ? "%" : "//";
  if (!left.is_number() || !right.is_number()) {
    fail_operands(name, left, right);
  }
  if (!right.as_big() && right.number() == 0) {
    fail("division by zero");
  }
  constexpr int64_t kExact = int64_t{1} << 53;  // as a double
  const auto is_exact = [](const Value& value) {
    return value.as_double() || (value.is_integer() && value.integer() >= -kExact && value.integer() <= kExact);
  };
  if (left.is_whole() && right.is_whole() &&
      (op == BinaryOperator::kDivide ? !is_exact(left) || !is_exact(right) : left.as_big() || right.as_big())) {
    return apply_whole(op, left, right, meter);
  }
  if (op == BinaryOperator::kDivide) {
    return Value(left.number() / right.number());
  }
  if (!left.is_integer() || !right.is_integer()) {
    return Value(op == BinaryOperator::kModulo ? floor_modulo(left.number(), right.number())
                                               : floor_divide(left.number(), right.number()));
  }
  const int64_t a = left.integer();
  const int64_t b = right.integer();
  if (b == -1) {  // the one quotient that can overflow
    return op == BinaryOperator::kModulo ? Value(int64_t{0}) : subtract(Value(int64_t{0}), left, meter);
  }
  const bool inexact_negative = a % b != 0 && (a % b < 0) != (b < 0);
  return op == BinaryOperator::kModulo ? Value(a % b + (inexact_negative ? b : 0)) : Value(a / b - inexact_negative);
}

Value power(const Value& left, const Value& right, Meter& meter) {
  if (!left.is_number() || !right.is_number()) {
    fail_operands("**", left, right);
  }
  if (left.is_whole() && right.is_whole() && !is_negative(right)) {
    return apply_whole(BinaryOperator::kPower, left, right, meter);
  }
  if (left.number() == 0 && right.number() < 0) {
    fail("division by zero");
  }
  const double result = std::pow(left.number(), right.number());
  if (std::isnan(result) && left.number() < 0) {
    fail_unsupported("complex numbers");
  }
  if (std::isinf(result) && std::isfinite(left.number()) && std::isfinite(right.number())) {
    fail("numerical result out of range");
  }
  return Value(result);
}

bool contains(const Value& container, const Value& item, Meter& meter) {
  if (const Text* text = container.as_text()) {
    if (!item.as_text()) {
      fail("'in <string>' requires a string, not {}", type_name(item));
    }
    meter.charge_bytes(text->size());
    return find_text(text->bytes(), item.as_text()->bytes()) != std::string_view::npos;
  }
  if (const Dict* dict = container.as_dict()) {
    return dict->find(item, meter) != nullptr;
  }
  const List* list = container.as_list();
  if (!list) {
    const std::vector<Value> items = iterate(container, meter);  // empty, or fails
    return false;
  }
  size_t i = list->kind == ListKind::kGenerator ? list->consumed : 0;
  bool found = false;
  for (; i < list->items.size() && !found; ++i) {
    meter.charge(1);
    found = equals(list->items[i], item, meter) || list->items[i].same_as(item, meter);
  }
  list->consumed = i;
  return found;
}

// An index from the end made one from the front; nullopt outside.
std::optional<size_t> resolve_index(int64_t index, int64_t length) {
  if (index < 0) {
    index += length;
  }
  return index >= 0 && index < length ? std::optional(static_cast<size_t>(index)) : std::nullopt;
}

std::optional<Value> item_at(const Value& object, int64_t index, Meter& meter) {
  if (const List* list = object.as_list(); list && list->kind <= ListKind::kRange) {
    const auto at = resolve_index(index, static_cast<int64_t>(list->items.size()));
    return at ? std::optional(list->items[*at]) : std::nullopt;
  }
  const Text* text = object.as_text();
  if (!text) {
    return std::nullopt;
  }
  meter.charge_bytes(text->size());
  const auto at = resolve_index(index, count_code_points(text->bytes()));
  if (!at) {
    return std::nullopt;
  }
  const size_t begin = offset_of(text->bytes(), static_cast<int64_t>(*at));
  return Value(text->substr(begin, begin + offset_of(text->bytes().substr(begin), 1)));
}

// What object[key] gives by itself, methods left aside.
std::optional<Value> find_item(const Value& object, const Value& key, Meter& meter) {
  if (const Dict* dict = object.as_dict()) {
    const bool hashable = !key.as_dict() && !(key.as_list() && key.as_list()->kind != ListKind::kTuple);
    const Value* found = hashable ? dict->find(key, meter) : nullptr;
    return found ? std::optional(*found) : std::nullopt;
  }
  return key.is_integer() ? item_at(object, key.integer(), meter) : std::nullopt;
}

// What object.name gives by itself, items left aside.
std::optional<Value> find_attribute(const Value& object, std::string_view name) {
  if (name.starts_with("__")) {
    return Value::undefined(fmt::format("access to an attribute of a '{}' object is unsafe", type_name(object)),
                            excerpt(name));
  }
  if (const List* list = object.as_list(); list && list->is_group && (name == "grouper" || name == "list")) {
    return list->items[name == "list"];
  }
  if (const Namespace* space = object.as_namespace()) {
    const auto found = space->attributes.find(name);
    return found == space->attributes.end() ? std::nullopt : std::optional(found->second);
  }
  if (Loop* loop = object.as_loop()) {
    if (std::optional<Value> value = loop->attribute(name)) {
      return value;
    }
  }
  return bind_method(object, name);
}

// `is_ours`: the key is the template's own, which messages may show.
Value missing(const Value& object, std::string_view key, bool is_ours) {
  if (!is_ours) {
    return Value::undefined(fmt::format("'{} object' has no such attribute", type_name(object)), excerpt(key));
  }
  return Value::undefined(fmt::format("'{} object' has no attribute '{}'", type_name(object), excerpt(key)));
}

// Python's rules for the bounds of a slice.
struct SliceRange {
  int64_t begin, end, step;
};

SliceRange resolve_slice(const Value& begin, const Value& end, const Value& step, int64_t length) {
  for (const Value* bound : {&begin, &end, &step}) {
    if (!bound->is_none() && !bound->is_whole()) {
      require_defined(*bound);
      fail("slice indices must be integers or none, not {}", type_name(*bound));
    }
  }
  const auto clamped = [](const Value& bound) {
    return bound.as_big() ? (is_negative(bound) ? INT64_MIN : INT64_MAX) : bound.integer();
  };
  const int64_t stride = step.is_none() ? 1 : std::clamp<int64_t>(clamped(step), -INT32_MAX, INT32_MAX);
  if (stride == 0) {
    fail("slice step cannot be zero");
  }
  const int64_t low = stride > 0 ? 0 : -1;
  const int64_t high = stride > 0 ? length : length - 1;
  const auto resolve = [&](const Value& bound, int64_t otherwise) {
    if (bound.is_none()) {
      return otherwise;
    }
    const int64_t index = clamped(bound);
    return std::clamp(index < 0 ? std::max(index, -length - 1) + length : index, low, high);
  };
  return stride > 0 ? SliceRange{resolve(begin, low), resolve(end, high), stride}
                    : SliceRange{resolve(begin, high), resolve(end, low), stride};
}

}  // namespace

void require_defined(const Value& value) {
  if (const Undefined* undefined = value.as_undefined()) {
    throw TemplateError{ErrorCode::kInvalidArgument, undefined->message, {}, undefined->detail};
  }
}

Value apply(UnaryOperator op, const Value& operand, Meter& meter) {
  if (op == UnaryOperator::kNot) {
    return Value(!is_true(operand));
  }
  if (!operand.is_number()) {
    require_defined(operand);
    fail("bad operand of unary {}: {}", op == UnaryOperator::kMinus ? "-" : "+", type_name(operand));
  }
  if (op == UnaryOperator::kPlus) {
    return operand.is_integer() ? Value(operand.integer()) : operand;
  }
  return operand.is_whole() ? subtract(Value(int64_t{0}), operand, meter) : Value(-operand.number());
}

Value apply(BinaryOperator op, const Value& left, const Value& right, Meter& meter) {
  switch (op) {
    case BinaryOperator::kAdd:
      return add(left, right, meter);
    case BinaryOperator::kSubtract:
      return subtract(left, right, meter);
    case BinaryOperator::kMultiply:
      return multiply(left, right, meter);
    case BinaryOperator::kModulo:
      if (const Text* format = left.as_text()) {
        return Value(percent_format(*format, right, meter));
      }
      [[fallthrough]];
    case BinaryOperator::kDivide:
    case BinaryOperator::kFloorDivide:
      return divide(op, left, right, meter);
    case BinaryOperator::kPower:
      return power(left, right, meter);
  }
  return Value();
}

bool apply(Comparison comparison, const Value& left, const Value& right, Meter& meter) {
  const bool has_nan =
      (left.as_double() && std::isnan(*left.as_double())) || (right.as_double() && std::isnan(*right.as_double()));
  switch (comparison) {
    case Comparison::kEqual:
      return equals(left, right, meter);
    case Comparison::kNotEqual:
      return !equals(left, right, meter);
    case Comparison::kLess:
      return compare(left, right, meter) < 0 && !has_nan;
    case Comparison::kLessEqual:
      return compare(left, right, meter) <= 0 && !has_nan;
    case Comparison::kGreater:
      return compare(left, right, meter) > 0 && !has_nan;
    case Comparison::kGreaterEqual:
      return compare(left, right, meter) >= 0 && !has_nan;
    case Comparison::kIn:
      return contains(right, left, meter);
    case Comparison::kNotIn:
      return !contains(right, left, meter);
  }
  return false;
}

std::vector<Value> iterate(const Value& value, Meter& meter) {
  std::vector<Value> items;
  if (const List* list = value.as_list()) {
    const size_t begin = list->kind == ListKind::kGenerator ? std::exchange(list->consumed, list->items.size()) : 0;
    meter.charge(list->items.size() - begin);
    items.assign(list->items.begin() + static_cast<std::ptrdiff_t>(begin), list->items.end());
  } else if (const Dict* dict = value.as_dict()) {
    meter.charge(dict->items.size());
    items.reserve(dict->items.size());
    for (const auto& [key, unused] : dict->items) {
      items.push_back(key);
    }
  } else if (const Text* text = value.as_text()) {
    for (Text& character : split_characters(*text, meter)) {
      items.emplace_back(std::move(character));
    }
  } else if (!value.is_undefined()) {
    fail("'{}' object is not iterable", type_name(value));
  }
  return items;
}

int64_t length_of(const Value& value) {
  if (const Text* text = value.as_text()) {
    return count_code_points(text->bytes());
  }
  if (const List* list = value.as_list(); list && list->kind != ListKind::kGenerator) {
    return static_cast<int64_t>(list->items.size());
  }
  if (const Dict* dict = value.as_dict()) {
    return static_cast<int64_t>(dict->items.size());
  }
  if (Loop* loop = value.as_loop()) {
    return loop->attribute("length")->integer();
  }
  if (!value.is_undefined()) {
    fail("object of type '{}' has no length", type_name(value));
  }
  return 0;
}

Value get_attribute(Interpreter& interpreter, const Value& object, std::string_view name) {
  require_defined(object);
  if (std::optional<Value> attribute = find_attribute(object, name)) {
    return *attribute;
  }
  if (const Dict* dict = object.as_dict()) {
    if (const Value* item = dict->find(name, interpreter.meter())) {
      return *item;
    }
  }
  return missing(object, name, true);
}

Value get_item(Interpreter& interpreter, const Value& object, const Value& key) {
  require_defined(object);
  if (std::optional<Value> item = find_item(object, key, interpreter.meter())) {
    return *item;
  }
  if (const Text* name = key.as_text()) {
    if (std::optional<Value> attribute = find_attribute(object, name->bytes())) {
      return *attribute;
    }
    return missing(object, name->bytes(), name->is_all_template());
  }
  return Value::undefined(fmt::format("'{} object' has no such element", type_name(object)));
}

Value get_slice(const Value& object, const Value& begin, const Value& end, const Value& step, Meter& meter) {
  require_defined(object);
  const List* list = object.as_list();
  if (!object.as_text() && !(list && list->kind <= ListKind::kRange)) {
    fail("'{}' object has no slices", type_name(object));
  }
  if (const Text* text = object.as_text()) {
    meter.charge_bytes(2 * text->size());
  }
  const int64_t length = length_of(object);
  const SliceRange range = resolve_slice(begin, end, step, length);
  if (const Text* text = object.as_text()) {
    if (range.step == 1) {
      const size_t from = offset_of(text->bytes(), range.begin);
      const size_t to =
          range.end <= range.begin ? from : from + offset_of(text->bytes().substr(from), range.end - range.begin);
      return Value(text->substr(from, to));
    }
    const std::vector<Text> characters = split_characters(*text, meter);
    Text out;
    for (int64_t i = range.begin; range.step > 0 ? i < range.end : i > range.end; i += range.step) {
      out.append(characters[static_cast<size_t>(i)]);
    }
    return Value(std::move(out));
  }
  std::vector<Value> items;
  for (int64_t i = range.begin; range.step > 0 ? i < range.end : i > range.end; i += range.step) {
    meter.charge(1);
    items.push_back(list->items[static_cast<size_t>(i)]);
  }
  return Value::list(std::move(items), list->kind);
}

}  // namespace llmrt::jinja
