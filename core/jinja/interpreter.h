// Walks the tree of one template for one rendering: variables, limits, output. Made for a rendering and thrown away
// after it; one thread.
#pragma once

#include <boost/json.hpp>

#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/keyed_hash.h"
#include "core/jinja/ast.h"

namespace llmrt::jinja {

class Interpreter {
 public:
  // Strings of `context` are data, those of `template_strings` template text; a name in both means the latter.
  Interpreter(const boost::json::object& context, const boost::json::object& template_strings,
              const RenderLimits& limits, const std::atomic<bool>* cancelled);

  Text render(const Template& whole);

  Value eval(const Expression& expression);
  Flow run(const Block& block);
  Meter& meter() { return meter_; }

  Value lookup(std::string_view name);
  void assign(const Target& target, const Value& value);
  void define(std::string_view name, Value value);  // in the innermost scope
  void write(const Text& text);
  Namespace* make_namespace();
  std::minstd_rand& random();  // seeded at its first use

  // A callable that runs the macro in the scope where it is defined.
  Value bind_macro(const MacroBody& macro);

  // Variables set while it lives are forgotten with it.
  struct Scope {
    std::shared_ptr<Scope> parent;
    std::vector<std::pair<std::string, Value>> variables;
  };
  class ScopeGuard {
   public:
    explicit ScopeGuard(Interpreter& interpreter) : ScopeGuard(interpreter, interpreter.scope_) {}
    ScopeGuard(Interpreter& interpreter, std::shared_ptr<Scope> parent);
    ~ScopeGuard() { interpreter_.scope_ = std::move(outer_); }
    ScopeGuard(const ScopeGuard&) = delete;
    ScopeGuard& operator=(const ScopeGuard&) = delete;

   private:
    Interpreter& interpreter_;
    std::shared_ptr<Scope> outer_;
  };
  // The scope that is innermost now, to run something in it later.
  std::shared_ptr<Scope> scope() const { return scope_; }

  // What is written while it lives.
  class Capture {
   public:
    explicit Capture(Interpreter& interpreter) : interpreter_(interpreter), outer_(interpreter.output_) {
      interpreter_.output_ = &text_;
    }
    ~Capture() { interpreter_.output_ = outer_; }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    Text take() { return std::move(text_); }

   private:
    Interpreter& interpreter_;
    Text* outer_;
    Text text_;
  };

  // A body that {% block %} names: rendered in the scope of the whole template.
  Value bind_block(const Block& body);
  std::shared_ptr<Scope> top_scope() const { return top_scope_; }

 private:
  friend class ScopeGuard;
  friend class Capture;
  Value call_macro(const MacroBody& macro, const std::shared_ptr<Scope>& definition, Arguments& arguments);
  void define_extra_arguments(const MacroBody& macro, Arguments& arguments);

  Meter meter_;  // outlives what it counts
  const Meter::Current current_{meter_};
  std::shared_ptr<Scope> scope_;
  std::shared_ptr<Scope> top_scope_;    // of the names that the template sets outside of all blocks
  KeyedViewMap<size_t> context_index_;  // of the variables in the outermost scope, where these are many
  Text output_text_;
  Text* output_ = &output_text_;
  int depth_ = 0;        // of eval inside eval
  int run_depth_ = 0;    // of run inside run
  int macro_depth_ = 0;  // of macro calls
  std::deque<Namespace> namespaces_;
  std::optional<std::minstd_rand> random_;
};

// JSON to values, their strings of the given origin, with a bound on the entries of all lists and dicts together.
class JsonReader {
 public:
  JsonReader(bool from_template, size_t entries_max, int nesting_max, const char* what, Meter& meter)
      : from_template_(from_template),
        entries_max_(entries_max),
        nesting_max_(nesting_max),
        what_(what),
        meter_(meter) {}
  void count(size_t entries);
  Value read(const boost::json::value& json, int level = 0);

 private:
  Text read_text(std::string_view bytes);

  bool from_template_;
  size_t entries_max_;
  int nesting_max_;
  const char* what_;  // for messages
  Meter& meter_;
  size_t entries_ = 0;
};

}  // namespace llmrt::jinja
