// How each kind of expression computes its value.
#include <algorithm>

#include "core/base/keyed_hash.h"
#include "core/jinja/convert.h"
#include "core/jinja/interpreter.h"
#include "core/jinja/loop.h"
#include "core/jinja/methods.h"
#include "core/jinja/operators.h"

namespace llmrt::jinja {

Value Name::eval(Interpreter& interpreter) const {
  return interpreter.lookup(name);
}

Value Sequence::eval(Interpreter& interpreter) const {
  std::vector<Value> values;
  values.reserve(items.size());
  for (const ExpressionPtr& item : items) {
    values.push_back(interpreter.eval(*item));
  }
  return Value::list(std::move(values), kind);
}

Value Mapping::eval(Interpreter& interpreter) const {
  std::vector<std::pair<Value, Value>> values;
  values.reserve(items.size());
  for (const auto& [key, value] : items) {
    Value evaluated_key = interpreter.eval(*key);
    values.emplace_back(std::move(evaluated_key), interpreter.eval(*value));
  }
  return Value::dict(std::move(values), interpreter.meter());
}

Value GetAttribute::eval(Interpreter& interpreter) const {
  return get_attribute(interpreter, interpreter.eval(*object), name);
}

Value GetItem::eval(Interpreter& interpreter) const {
  const Value evaluated = interpreter.eval(*object);
  return get_item(interpreter, evaluated, interpreter.eval(*key));
}

Value GetSlice::eval(Interpreter& interpreter) const {
  const auto bound = [&](const ExpressionPtr& part) { return part ? interpreter.eval(*part) : Value(); };
  const Value evaluated = interpreter.eval(*object);
  const Value from = bound(begin);
  const Value to = bound(end);
  return get_slice(evaluated, from, to, bound(step), interpreter.meter());
}

Arguments ArgumentList::eval(Interpreter& interpreter) const {
  Arguments arguments;
  for (const ExpressionPtr& argument : positional) {
    arguments.positional.push_back(interpreter.eval(*argument));
  }
  if (more_positional) {
    for (Value& value : iterate(interpreter.eval(*more_positional), interpreter.meter())) {
      arguments.positional.push_back(std::move(value));
    }
  }
  constexpr size_t kListedMax = 8;  // beyond, names are looked up by a hash
  KeyedSet names;
  const auto add_named = [&](const std::string& name, Value value) {
    bool is_new = true;
    if (arguments.named.size() < kListedMax) {
      is_new = std::ranges::find(arguments.named, name, &std::pair<std::string, Value>::first) == arguments.named.end();
    } else {
      if (names.empty()) {
        for (const auto& [present, unused] : arguments.named) {
          names.insert(present);
        }
      }
      is_new = names.insert(name).second;
    }
    if (!is_new) {
      fail_about(name, "got two values for a keyword argument");
    }
    arguments.named.emplace_back(name, std::move(value));
  };
  for (const auto& [name, argument] : named) {
    add_named(name, interpreter.eval(*argument));
  }
  if (more_named) {
    const Value evaluated = interpreter.eval(*more_named);
    if (!evaluated.as_dict()) {
      require_defined(evaluated);
      fail("argument after ** must be a mapping, not {}", type_name(evaluated));
    }
    for (const auto& [key, value] : evaluated.as_dict()->items) {
      interpreter.meter().charge(2);
      if (!key.as_text()) {
        fail("keywords must be strings");
      }
      interpreter.meter().charge_bytes(3 * key.as_text()->size());
      add_named(std::string(key.as_text()->bytes()), value);
    }
  }
  return arguments;
}

Value Call::call(Interpreter& interpreter, Arguments evaluated) const {
  Value function;
  if (const auto* access = dynamic_cast<const GetAttribute*>(callee.get())) {
    const Value object = interpreter.eval(*access->object);
    if (const Method method = find_method(object, access->name)) {  // on the spot, without making it a value first
      return method(interpreter, object, evaluated);
    }
    function = get_attribute(interpreter, object, access->name);
  } else {
    function = interpreter.eval(*callee);
  }
  if (const Callable* callable = function.as_callable()) {
    return callable->call(interpreter, evaluated);
  }
  if (const Loop* loop = function.as_loop()) {
    return loop->recurse(evaluated.positional.empty() ? Value() : evaluated.positional[0]);
  }
  require_defined(function);
  fail("'{}' object is not callable", type_name(function));
}

Value Call::eval(Interpreter& interpreter) const {
  return call(interpreter, arguments.eval(interpreter));
}

namespace {

Value call_filter(const FilterCall& filter, Interpreter& interpreter, const Value& input, Arguments& arguments) {
  if (!filter.function) {
    fail_unsupported("filter '{}'", filter.name);
  }
  return filter.function(interpreter, input, arguments);
}

}  // namespace

Value FilterCall::eval(Interpreter& interpreter) const {
  const Value evaluated = interpreter.eval(*input);
  Arguments given = arguments.eval(interpreter);
  return call_filter(*this, interpreter, evaluated, given);
}

Value FilterCall::apply(Interpreter& interpreter, const Value& block_text) const {
  // The chain's first filter has no input of its own.
  const auto* before = static_cast<const FilterCall*>(input.get());
  const Value value = before ? before->apply(interpreter, block_text) : block_text;
  interpreter.meter().charge(1);
  Arguments given = arguments.eval(interpreter);
  return call_filter(*this, interpreter, value, given);
}

Value TestCall::eval(Interpreter& interpreter) const {
  const Value evaluated = interpreter.eval(*input);
  Arguments given = arguments.eval(interpreter);
  if (!function) {
    fail_unsupported("test '{}'", name);
  }
  return Value(function(interpreter, evaluated, given));
}

Value Unary::eval(Interpreter& interpreter) const {
  return jinja::apply(op, interpreter.eval(*operand), interpreter.meter());
}

Value Binary::eval(Interpreter& interpreter) const {
  const Value evaluated = interpreter.eval(*left);
  return jinja::apply(op, evaluated, interpreter.eval(*right), interpreter.meter());
}

Value Concat::eval(Interpreter& interpreter) const {
  Text out;
  for (const ExpressionPtr& part : parts) {
    const Text text = to_text(interpreter.eval(*part), interpreter.meter());
    interpreter.meter().charge_growth(out.size(), text.size());
    out.append(text);
  }
  return Value(std::move(out));
}

Value Logical::eval(Interpreter& interpreter) const {
  Value evaluated = interpreter.eval(*left);
  return is_true(evaluated) == is_or ? evaluated : interpreter.eval(*right);
}

Value Compare::eval(Interpreter& interpreter) const {
  Value evaluated = interpreter.eval(*first);
  for (const auto& [comparison, operand] : rest) {
    Value next = interpreter.eval(*operand);
    if (!jinja::apply(comparison, evaluated, next, interpreter.meter())) {
      return Value(false);
    }
    evaluated = std::move(next);
  }
  return Value(true);
}

Value Conditional::eval(Interpreter& interpreter) const {
  if (is_true(interpreter.eval(*condition))) {
    return interpreter.eval(*then);
  }
  return otherwise ? interpreter.eval(*otherwise)
                   : Value::undefined("the inline if-expression evaluated to false and no else section was defined");
}

}  // namespace llmrt::jinja
