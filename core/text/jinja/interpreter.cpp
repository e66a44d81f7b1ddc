#include "core/text/jinja/interpreter.h"

#include <algorithm>
#include <utility>

#include "core/text/jinja/functions.h"
#include "core/text/jinja/operators.h"
#include "core/text/utf8.h"

namespace llmrt::jinja {
namespace {

constexpr int kEvalDepthMax = 2 * kTreeDepthMax;

Text text_from_json(const boost::json::string& text, bool from_template) {
  const std::string_view bytes(text.data(), text.size());
  return Text(is_valid_utf8(bytes) ? std::string(bytes) : replace_invalid_utf8(bytes), from_template);
}

}  // namespace

Value from_json(const boost::json::value& json, bool from_template, Meter& meter, int level) {
  if (level > kNestingMax) {
    fail("limit of {} nested lists and dicts exceeded", kNestingMax);
  }
  switch (json.kind()) {
    case boost::json::kind::null:
      return Value();
    case boost::json::kind::bool_:
      return Value(json.get_bool());
    case boost::json::kind::int64:
      return Value(json.get_int64());
    case boost::json::kind::uint64:
      if (json.get_uint64() > static_cast<uint64_t>(INT64_MAX)) {
        fail_unsupported("integer {} beyond 64 bits", json.get_uint64());
      }
      return Value(static_cast<int64_t>(json.get_uint64()));
    case boost::json::kind::double_:
      return Value(json.get_double());
    case boost::json::kind::string:
      return Value(text_from_json(json.get_string(), from_template));
    case boost::json::kind::array: {
      std::vector<Value> items;
      for (const boost::json::value& item : json.get_array()) {
        items.push_back(from_json(item, from_template, meter, level + 1));
      }
      return Value::list(std::move(items));
    }
    case boost::json::kind::object: {
      std::vector<std::pair<Value, Value>> items;
      for (const auto& [key, value] : json.get_object()) {
        items.emplace_back(Value(text_from_json(boost::json::string(key), from_template)),
                           from_json(value, from_template, meter, level + 1));
      }
      return Value::dict(std::move(items), meter);
    }
  }
  return Value();
}

Interpreter::Interpreter(const boost::json::object& context, const boost::json::object& template_strings)
    : scope_(std::make_shared<Scope>()) {
  for (const auto& [name, value] : template_strings) {
    scope_->variables.emplace_back(name, from_json(value, true, meter_));
  }
  for (const auto& [name, value] : context) {
    if (!template_strings.contains(name)) {
      scope_->variables.emplace_back(name, from_json(value, false, meter_));
    }
  }
}

Interpreter::ScopeGuard::ScopeGuard(Interpreter& interpreter, std::shared_ptr<Scope> parent)
    : interpreter_(interpreter), outer_(std::move(interpreter.scope_)) {
  interpreter_.scope_ = std::make_shared<Scope>(Scope{std::move(parent), {}});
}

Text Interpreter::render(const Block& block) {
  const ScopeGuard guard(*this);
  run(block);
  return std::move(output_text_);
}

Value Interpreter::eval(const Expression& expression) {
  struct Depth {
    int& depth;
    explicit Depth(int& counter) : depth(counter) { ++depth; }
    ~Depth() { --depth; }
  } const depth(depth_);
  try {
    meter_.charge(1);
    if (depth_ > kEvalDepthMax) {
      fail("limit of {} nested operations exceeded", kEvalDepthMax);
    }
    return expression.eval(*this);
  } catch (TemplateError& error) {
    if (!error.at) {
      error.at = expression.at;
    }
    throw;
  }
}

Flow Interpreter::run(const Block& block) {
  for (const StatementPtr& statement : block) {
    try {
      meter_.charge(1);
      if (const Flow flow = statement->run(*this); flow != Flow::kNext) {
        return flow;
      }
    } catch (TemplateError& error) {
      if (!error.at) {
        error.at = statement->at;
      }
      throw;
    }
  }
  return Flow::kNext;
}

Value Interpreter::lookup(const std::string& name) {
  for (const Scope* scope = scope_.get(); scope; scope = scope->parent.get()) {
    meter_.charge(scope->variables.size() / 8);
    for (const auto& [variable, value] : scope->variables) {
      if (variable == name) {
        return value;
      }
    }
  }
  if (std::optional<Value> function = find_function(name)) {
    return *function;
  }
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

void Interpreter::define(std::string_view name, Value value) {
  auto& variables = scope_->variables;
  meter_.charge(variables.size() / 8);
  const auto found = std::ranges::find(variables, name, &std::pair<std::string, Value>::first);
  if (found != variables.end()) {
    found->second = std::move(value);
  } else {
    variables.emplace_back(name, std::move(value));
  }
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (!target.attribute.empty()) {
    Namespace* space = lookup(target.name).as_namespace();
    if (!space) {
      fail("cannot assign attribute on non-namespace object '{}'", target.name);
    }
    space->attributes.insert_or_assign(target.attribute, value);
    return;
  }
  if (!target.name.empty()) {
    define(target.name, value);
    return;
  }
  const std::vector<Value> items = iterate(value, meter_);
  if (items.size() != target.parts.size()) {
    fail("unpacking: expected {} values, found {}", target.parts.size(), items.size());
  }
  for (size_t i = 0; i < items.size(); ++i) {
    assign(target.parts[i], items[i]);
  }
}

void Interpreter::write(const Text& text) {
  meter_.charge_text(output_->size() + text.size() > kTextBytesMax ? kTextBytesMax + 1 : text.size());
  output_->append(text);
}

Namespace* Interpreter::make_namespace() {
  return &namespaces_.emplace_back();
}

Value Interpreter::bind_macro(const MacroBody& macro) {
  // Weak, since the scope will hold the macro. It lives as long as any place from which the macro could be named.
  const std::weak_ptr<Scope> definition = scope_;
  return Value(std::make_shared<const Callable>(
      Callable{macro.name, 0, [&macro, definition](Interpreter& interpreter, Arguments& arguments) {
                 const std::shared_ptr<Scope> scope = definition.lock();
                 if (!scope) {
                   fail_unsupported("a macro that outlives the block where it is defined: '{}'", macro.name);
                 }
                 return interpreter.call_macro(macro, scope, arguments);
               }}));
}

Value Interpreter::call_macro(const MacroBody& macro, const std::shared_ptr<Scope>& definition, Arguments& arguments) {
  struct Depth {
    int& depth;
    explicit Depth(int& counter) : depth(counter) { ++depth; }
    ~Depth() { --depth; }
  } const depth(macro_depth_);
  if (macro_depth_ > kNestingMax) {
    fail("limit of {} nested macro calls exceeded", kNestingMax);
  }
  const ScopeGuard guard(*this, definition);
  const size_t num_parameters = macro.parameters.size();
  for (size_t i = 0; i < num_parameters; ++i) {
    const std::string& name = macro.parameters[i];
    const auto named = std::ranges::find(arguments.named, name, &std::pair<std::string, Value>::first);
    if (i < arguments.positional.size()) {
      if (named != arguments.named.end()) {
        fail("macro '{}' got two values for the argument '{}'", macro.name, name);
      }
      define(name, arguments.positional[i]);
    } else if (named != arguments.named.end()) {
      define(name, named->second);
      arguments.named.erase(named);
    } else if (const size_t first_default = num_parameters - macro.defaults.size(); i >= first_default) {
      define(name, eval(*macro.defaults[i - first_default]));
    } else {
      define(name, Value::undefined(fmt::format("parameter '{}' was not provided", name)));
    }
  }
  define_extra_arguments(macro, arguments);
  Capture capture(*this);
  run(macro.body);
  return Value(capture.take());
}

void Interpreter::define_extra_arguments(const MacroBody& macro, Arguments& arguments) {
  const size_t num_parameters = macro.parameters.size();
  const auto caller = std::ranges::find(arguments.named, "caller", &std::pair<std::string, Value>::first);
  if (macro.uses_caller) {
    define("caller", caller == arguments.named.end() ? Value::undefined("no caller defined") : caller->second);
    if (caller != arguments.named.end()) {
      arguments.named.erase(caller);
    }
  }
  if (macro.uses_kwargs) {
    std::vector<std::pair<Value, Value>> items;
    for (const auto& [name, value] : arguments.named) {
      items.emplace_back(Value(Text(name, false)), value);  // **mapping may have brought the name
    }
    define("kwargs", Value::dict(std::move(items), meter_));
  } else if (!arguments.named.empty()) {
    fail("macro '{}' takes no keyword argument '{}'", macro.name, arguments.named[0].first);
  }
  const size_t num_extra = arguments.positional.size() - std::min(arguments.positional.size(), num_parameters);
  if (macro.uses_varargs) {
    define("varargs", Value::list({arguments.positional.end() - static_cast<std::ptrdiff_t>(num_extra),
                                   arguments.positional.end()},
                                  ListKind::kTuple));
  } else if (num_extra > 0) {
    fail("macro '{}' takes not more than {} argument(s)", macro.name, num_parameters);
  }
}

}  // namespace llmrt::jinja
