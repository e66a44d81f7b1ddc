// What each kind of statement does.
#include <utility>

#include "core/jinja/convert.h"
#include "core/jinja/interpreter.h"
#include "core/jinja/loop.h"
#include "core/jinja/operators.h"

namespace llmrt::jinja {

Flow OutputText::run(Interpreter& interpreter) const {
  interpreter.write(*text);
  return Flow::kNext;
}

Flow OutputValue::run(Interpreter& interpreter) const {
  const Value evaluated = interpreter.eval(*value);
  if (const Text* text = evaluated.as_text()) {
    interpreter.write(*text);
  } else {
    interpreter.write(to_text(evaluated, interpreter.meter()));
  }
  return Flow::kNext;
}

Flow If::run(Interpreter& interpreter) const {
  for (const auto& [condition, body] : branches) {
    if (is_true(interpreter.eval(*condition))) {
      return interpreter.run(body);
    }
  }
  return interpreter.run(otherwise);
}

Flow For::run(Interpreter& interpreter) const {
  return walk(interpreter, interpreter.eval(*iterable), 0);
}

Flow For::walk(Interpreter& interpreter, const Value& items, int loop_depth) const {
  if (loop_depth > kNestingMax) {
    fail("expected at most {} nested recursive loops, found more", kNestingMax);
  }
  const std::shared_ptr<Interpreter::Scope> outer = interpreter.scope();
  Loop::Filter keep;
  if (filter) {
    keep = [this, &interpreter, &outer](const Value& item) {
      const Interpreter::ScopeGuard scope(interpreter, outer);
      interpreter.assign(target, item);
      return is_true(interpreter.eval(*filter));
    };
  }
  Loop::Recurse recurse;
  if (is_recursive) {
    recurse = [this, &interpreter, &outer, loop_depth](const Value& inner) {
      Interpreter::Capture capture(interpreter);
      const Interpreter::ScopeGuard scope(interpreter, outer);
      walk(interpreter, inner, loop_depth + 1);
      return Value(capture.take());
    };
  }
  const auto loop =
      std::make_shared<Loop>(iterate(items, interpreter.meter()), std::move(keep), std::move(recurse), loop_depth);
  struct Closer {  // on every way out: the loop refers to this frame
    Loop& loop;
    ~Closer() { loop.close(); }
  } const closer{*loop};
  bool any_whole = false;  // Jinja's else also runs when every round was cut short by break or continue
  for (Flow flow = Flow::kNext; flow != Flow::kBreak && loop->next();) {
    const Interpreter::ScopeGuard scope(interpreter);
    interpreter.define("loop", Value(loop));
    interpreter.assign(target, loop->current());
    flow = interpreter.run(body);
    any_whole |= flow == Flow::kNext;
  }
  if (any_whole) {
    return Flow::kNext;
  }
  const Interpreter::ScopeGuard scope(interpreter);
  return interpreter.run(otherwise);
}

Flow Set::run(Interpreter& interpreter) const {
  interpreter.assign(target, interpreter.eval(*value));
  return Flow::kNext;
}

namespace {

// Runs the body in a scope of its own and keeps what it writes.
Flow run_captured(Interpreter& interpreter, const Block& body, Value& text) {
  const Interpreter::ScopeGuard scope(interpreter);
  Interpreter::Capture capture(interpreter);
  const Flow flow = interpreter.run(body);
  text = Value(capture.take());
  return flow;
}

}  // namespace

Flow SetBlock::run(Interpreter& interpreter) const {
  Value text;
  const Flow flow = run_captured(interpreter, body, text);
  if (flow == Flow::kNext) {
    interpreter.assign(target, filter ? filter->apply(interpreter, text) : text);
  }
  return flow;
}

Flow FilterBlock::run(Interpreter& interpreter) const {
  Value text;
  const Flow flow = run_captured(interpreter, body, text);
  if (flow == Flow::kNext) {
    interpreter.write(to_text(filter->apply(interpreter, text), interpreter.meter()));
  }
  return flow;
}

Flow NamedBlock::run(Interpreter& interpreter) const {
  if (is_required) {
    fail("required block '{}' not found", name);
  }
  const Interpreter::ScopeGuard scope(interpreter, is_scoped ? interpreter.scope() : interpreter.top_scope());
  return interpreter.run(body);
}

Flow Macro::run(Interpreter& interpreter) const {
  interpreter.define(macro.name, interpreter.bind_macro(macro));
  return Flow::kNext;
}

Flow CallBlock::run(Interpreter& interpreter) const {
  Arguments arguments = call->arguments.eval(interpreter);
  arguments.named.emplace_back("caller", interpreter.bind_macro(caller));
  const Value result = call->call(interpreter, std::move(arguments));
  interpreter.write(to_text(result, interpreter.meter()));
  return Flow::kNext;
}

Flow With::run(Interpreter& interpreter) const {
  std::vector<Value> values;
  for (const auto& [target, value] : assignments) {
    values.push_back(interpreter.eval(*value));  // none of the new names is known to the values
  }
  const Interpreter::ScopeGuard scope(interpreter);
  for (size_t i = 0; i < assignments.size(); ++i) {
    interpreter.assign(assignments[i].first, values[i]);
  }
  return interpreter.run(body);
}

}  // namespace llmrt::jinja
