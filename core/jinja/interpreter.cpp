#include "core/jinja/interpreter.h"

#include <algorithm>
#include <utility>

#include "core/base/utf8.h"
#include "core/jinja/functions.h"
#include "core/jinja/integers.h"
#include "core/jinja/operators.h"

namespace llmrt::jinja {
namespace {

constexpr int kEvalDepthMax = 2 * kTreeDepthMax;
constexpr int kRunDepthMax = 512;  // macros inside blocks inside macros: what a thread's stack holds with ease

// Counts what is inside of itself while it lives.
struct DepthGuard {
  int& depth;
  explicit DepthGuard(int& counter) : depth(counter) { ++depth; }
  ~DepthGuard() { --depth; }
};

// Counts macro calls inside macro calls while it lives.
struct MacroDepth {
  int& depth;
  explicit MacroDepth(int& counter) : depth(counter) {
    if (depth >= kNestingMax) {
      fail("expected at most {} nested macro calls, found more", kNestingMax);
    }
    ++depth;
  }
  ~MacroDepth() { --depth; }
};

constexpr size_t kListedMax = 16;  // variables of the context; beyond, they are looked up by a hash

}  // namespace

void JsonReader::count(size_t entries) {
  entries_ += entries;
  if (entries_ > entries_max_) {
    fail("{}: expected at most {} entries in all lists and dicts, found more", what_, entries_max_);
  }
  meter_.charge(entries);
}

Text JsonReader::read_text(std::string_view bytes) {
  meter_.charge_bytes(2 * bytes.size());
  return Text(is_valid_utf8(bytes) ? std::string(bytes) : replace_invalid_utf8(bytes), from_template_);
}

Value JsonReader::read(const boost::json::value& json, int level) {
  switch (json.kind()) {
    case boost::json::kind::null:
      return Value();
    case boost::json::kind::bool_:
      return Value(json.get_bool());
    case boost::json::kind::int64:
      return Value(json.get_int64());
    case boost::json::kind::uint64:
      return *parse_whole(std::to_string(json.get_uint64()), 10, false, meter_);
    case boost::json::kind::double_:
      return Value(json.get_double());
    case boost::json::kind::string:
      return Value(read_text(json.get_string()));
    default:
      break;
  }
  if (level >= nesting_max_) {
    fail("{}: expected at most {} nested lists and dicts, found more", what_, nesting_max_);
  }
  if (const auto* array = json.if_array()) {
    count(array->size());
    std::vector<Value> items;
    items.reserve(array->size());
    for (const boost::json::value& item : *array) {
      items.push_back(read(item, level + 1));
    }
    return Value::list(std::move(items));
  }
  const boost::json::object& object = json.get_object();
  count(object.size());
  std::vector<std::pair<Value, Value>> items;
  items.reserve(object.size());
  for (const auto& [key, value] : object) {
    items.emplace_back(Value(read_text(key)), read(value, level + 1));
  }
  return Value::dict(std::move(items), meter_);
}

Interpreter::Interpreter(const boost::json::object& context, const boost::json::object& template_strings,
                         const RenderLimits& limits, const std::atomic<bool>* cancelled)
    : meter_(limits, cancelled), scope_(std::make_shared<Scope>()) {
  JsonReader ours(true, limits.entries, kNestingMax, "template strings", meter_);
  JsonReader chat(false, limits.entries, kNestingMax, "messages and tools", meter_);
  JsonReader client(false, limits.client_entries, limits.client_nesting, "chat_template_kwargs", meter_);
  for (const auto& [name, value] : template_strings) {
    scope_->variables.emplace_back(name, ours.read(value));
  }
  for (const auto& [name, value] : context) {
    const bool is_chat = name == "messages" || name == "tools" || name == "documents";
    JsonReader& reader = is_chat ? chat : client;
    reader.count(1);
    meter_.charge_bytes(name.size());
    if (!template_strings.contains(name)) {
      scope_->variables.emplace_back(name, reader.read(value));
    }
  }
  if (scope_->variables.size() > kListedMax) {
    for (size_t i = 0; i < scope_->variables.size(); ++i) {
      context_index_.emplace(scope_->variables[i].first, i);
    }
  }
}

Interpreter::ScopeGuard::ScopeGuard(Interpreter& interpreter, std::shared_ptr<Scope> parent)
    : interpreter_(interpreter), outer_(std::move(interpreter.scope_)) {
  interpreter_.scope_ = std::make_shared<Scope>(Scope{std::move(parent), {}});
}

Text Interpreter::render(const Template& whole) {
  const ScopeGuard outer(*this);
  if (!whole.blocks.empty()) {
    Namespace* self = make_namespace();
    self->is_sealed = true;
    for (const NamedBlock* block : whole.blocks) {
      self->set(block->name, bind_block(block->body));
    }
    define("self", Value(self));
  }
  const ScopeGuard guard(*this);
  top_scope_ = scope_;
  run(whole.body);
  return std::move(output_text_);
}

Value Interpreter::eval(const Expression& expression) {
  const DepthGuard depth(depth_);
  try {
    meter_.charge(1);
    if (depth_ > kEvalDepthMax) {
      fail("expected at most {} nested operations, found more", kEvalDepthMax);
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
  const DepthGuard depth(run_depth_);
  if (run_depth_ > kRunDepthMax) {
    fail("expected at most {} nested blocks, found more", kRunDepthMax);
  }
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

Value Interpreter::lookup(std::string_view name) {
  for (const Scope* scope = scope_.get(); scope; scope = scope->parent.get()) {
    if (!scope->parent && !context_index_.empty()) {
      meter_.charge_bytes(name.size());
      if (const auto found = context_index_.find(name); found != context_index_.end()) {
        return scope->variables[found->second].second;
      }
      break;
    }
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
  return Value::undefined(fmt::format("'{}' is undefined", excerpt(name)));
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
    if (space->is_sealed) {
      fail("cannot assign attribute on non-namespace object '{}'", target.name);
    }
    space->set(target.attribute, value);
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
  meter_.charge_growth(output_->size(), text.size());
  meter_.charge(text.num_runs() / 8);
  output_->append(text);
}

std::minstd_rand& Interpreter::random() {
  if (!random_) {
    random_.emplace(std::random_device{}());
  }
  return *random_;
}

Namespace* Interpreter::make_namespace() {
  meter_.charge(1);
  Namespace& made = namespaces_.emplace_back();
  made.held.grow(sizeof(Namespace));
  return &made;
}

Value Interpreter::bind_macro(const MacroBody& macro) {
  // Weak, since the scope will hold the macro. It lives as long as any place from which the macro could be named.
  const std::weak_ptr<Scope> definition = scope_;
  return Value(std::make_shared<const Callable>(
      Callable{"macro", 0, [&macro, definition](Interpreter& interpreter, Arguments& arguments) {
                 const std::shared_ptr<Scope> scope = definition.lock();
                 if (!scope) {
                   fail_unsupported("a macro that outlives the block where it is defined: '{}'", macro.name);
                 }
                 return interpreter.call_macro(macro, scope, arguments);
               }}));
}

Value Interpreter::bind_block(const Block& body) {
  return Value(
      std::make_shared<const Callable>(Callable{"block", 0, [&body](Interpreter& interpreter, Arguments& arguments) {
                                                  if (!arguments.positional.empty() || !arguments.named.empty()) {
                                                    fail("a block takes no arguments");
                                                  }
                                                  const MacroDepth depth(interpreter.macro_depth_);
                                                  const ScopeGuard guard(interpreter, interpreter.top_scope());
                                                  Capture capture(interpreter);
                                                  interpreter.run(body);
                                                  return Value(capture.take());
                                                }}));
}

Value Interpreter::call_macro(const MacroBody& macro, const std::shared_ptr<Scope>& definition, Arguments& arguments) {
  const MacroDepth depth(macro_depth_);
  const ScopeGuard guard(*this, definition);
  const size_t num_parameters = macro.parameters.size();
  for (size_t i = 0; i < num_parameters; ++i) {
    const std::string& name = macro.parameters[i];
    meter_.charge(arguments.named.size() / 8);
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
    meter_.charge(arguments.named.size());
    for (const auto& [name, value] : arguments.named) {
      items.emplace_back(Value(Text(name, false)), value);  // **mapping may have brought the name
    }
    define("kwargs", Value::dict(std::move(items), meter_));
  } else if (!arguments.named.empty()) {
    fail_about(arguments.named[0].first, "macro '{}' takes no such keyword argument", macro.name);
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
