#include "core/text/jinja/functions.h"

#include <algorithm>
#include <ctime>
#include <iterator>

#include "core/text/jinja/arguments.h"
#include "core/text/jinja/convert.h"
#include "core/text/jinja/interpreter.h"
#include "core/text/jinja/operators.h"

namespace llmrt::jinja {
namespace {

constexpr int64_t kRangeMax = 100'000;  // items, as in Jinja's sandbox

Value make_range(Interpreter& interpreter, Arguments& arguments) {
  const Parameters given("range", arguments, {"start", "stop", "step"}, 1);
  const bool has_stop = given.has(1);
  const int64_t begin = has_stop ? given.integer(0, 0) : 0;
  const int64_t end = has_stop ? given.integer(1, 0) : given.integer(0, 0);
  const int64_t step = given.integer(2, 1);
  if (step == 0) {
    fail("range: step must not be zero");
  }
  std::vector<Value> items;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<int64_t>(items.size()) == kRangeMax) {
      fail("range: limit of {} items exceeded", kRangeMax);
    }
    interpreter.meter().charge(1);
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) {
      break;
    }
  }
  return Value::list(std::move(items), ListKind::kRange);
}

// dict(mapping or pairs, key=value, ...)
std::vector<std::pair<Value, Value>> dict_items(Interpreter& interpreter, Arguments& arguments) {
  if (arguments.positional.size() > 1) {
    fail("dict: expected at most 1 argument, found {}", arguments.positional.size());
  }
  std::vector<std::pair<Value, Value>> items;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.as_dict()) {
      interpreter.meter().charge(source.as_dict()->items.size());
      items = source.as_dict()->items;
    } else {
      for (const Value& pair : iterate(source, interpreter.meter())) {
        const std::vector<Value> both = iterate(pair, interpreter.meter());
        if (both.size() != 2) {
          fail("dict: expected pairs, found {} items", both.size());
        }
        items.emplace_back(both[0], both[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) {
    items.emplace_back(Value(Text(name, false)), value);  // **mapping may have brought the name
  }
  return items;
}

Value make_dict(Interpreter& interpreter, Arguments& arguments) {
  return Value::dict(dict_items(interpreter, arguments), interpreter.meter());
}

Value make_namespace(Interpreter& interpreter, Arguments& arguments) {
  Namespace* space = interpreter.make_namespace();
  for (const auto& [key, value] : dict_items(interpreter, arguments)) {
    if (key.as_text()) {
      space->attributes.insert_or_assign(std::string(key.as_text()->bytes()), value);
    }
  }
  return Value(space);
}

Value raise_exception(Interpreter& interpreter, Arguments& arguments) {
  const Parameters given("raise_exception", arguments, {"message"}, 1);
  const Text message = to_text(given[0], interpreter.meter());
  throw TemplateError{ErrorCode::kInvalidArgument, std::string(message.bytes()), Position{0, 0}};
}

Value strftime_now(Interpreter&, Arguments& arguments) {
  const Parameters given("strftime_now", arguments, {"format"}, 1);
  const Text& text = given.text(0);
  const std::string format(text.bytes());
  if (format.empty()) {
    return Value(Text());
  }
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char buffer[4096];
  const size_t size = std::strftime(buffer, sizeof buffer, format.c_str(), &local);
  if (size == 0) {
    fail("strftime_now: expected a format of at most {} bytes of output", sizeof buffer);
  }
  return Value(Text(std::string(buffer, size), text.is_all_template()));
}

struct NamedFunction {
  std::string_view name;
  Value (*function)(Interpreter&, Arguments&);
};

constexpr NamedFunction kFunctions[] = {
    {"range", make_range},
    {"dict", make_dict},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
    {"cycler", [](Interpreter&, Arguments&) -> Value { fail_unsupported("function 'cycler'"); }},
    {"joiner", [](Interpreter&, Arguments&) -> Value { fail_unsupported("function 'joiner'"); }},
    {"lipsum", [](Interpreter&, Arguments&) -> Value { fail_unsupported("function 'lipsum'"); }},
};

}  // namespace

std::optional<Value> find_function(std::string_view name) {
  const auto* found = std::ranges::find(kFunctions, name, &NamedFunction::name);
  if (found == std::end(kFunctions)) {
    return std::nullopt;
  }
  return Value(std::make_shared<const Callable>(Callable{std::string(name), 0, found->function}));
}

}  // namespace llmrt::jinja
