#include "core/jinja/functions.h"

#include <algorithm>
#include <ctime>
#include <iterator>

#include "core/jinja/arguments.h"
#include "core/jinja/convert.h"
#include "core/jinja/interpreter.h"
#include "core/jinja/operators.h"

namespace llmrt::jinja {
namespace {

constexpr int64_t kRangeMax = 100'000;     // items, as in Jinja's sandbox
constexpr size_t kRefusalBytesMax = 1000;  // of raise_exception's text
constexpr size_t kDateFormatBytesMax = 1024;

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
      fail("range: expected at most {} items, found more", kRangeMax);
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
  interpreter.meter().charge(arguments.named.size());
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
      interpreter.meter().charge(1 + key.as_text()->size() / kBytesPerStep);
      space->set(key.as_text()->bytes(), value);
    }
  }
  return Value(space);
}

Value raise_exception(Interpreter& interpreter, Arguments& arguments) {
  const Parameters given("raise_exception", arguments, {"message"}, 1);
  const Text message = to_text(given[0], interpreter.meter());
  throw TemplateError{ErrorCode::kInvalidArgument, "the template refuses this conversation", Position{0, 0},
                      excerpt(message.bytes(), kRefusalBytesMax)};
}

Value strftime_now(Interpreter& interpreter, Arguments& arguments) {
  const Parameters given("strftime_now", arguments, {"format"}, 1);
  const Text& text = given.text(0);
  if (text.size() > kDateFormatBytesMax) {
    fail("strftime_now: expected a format of at most {} bytes, found {}", kDateFormatBytesMax, text.size());
  }
  interpreter.meter().charge(8 + text.size() / 8);
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

// joiner(", "): nothing at its first call, the separator at each later one.
Value make_joiner(Interpreter&, Arguments& arguments) {
  const Parameters given("joiner", arguments, {"sep"});
  const Value separator = given.has(0) ? given[0] : Value(Text(", ", true));
  if (separator.depth() >= kNestingMax) {
    fail("expected at most {} nested lists and dicts, found more", kNestingMax);
  }
  return Value(std::make_shared<const Callable>(
      Callable{"joiner", separator.depth() + 1,
               [separator, used = std::make_shared<bool>(false)](Interpreter&, Arguments& call_arguments) {
                 const Parameters none("joiner", call_arguments, {});
                 return std::exchange(*used, true) ? separator : Value(Text());
               }}));
}

// cycler(a, b, ...): next() gives one after the other, again and again; current is the one to come.
Value make_cycler(Interpreter& interpreter, Arguments& arguments) {
  if (!arguments.named.empty()) {
    fail("cycler: expected no keyword arguments");
  }
  if (arguments.positional.empty()) {
    fail("cycler: at least one item has to be provided");
  }
  Namespace* cycler = interpreter.make_namespace();
  cycler->is_sealed = true;
  const auto move_to = [cycler](size_t pos) {
    cycler->set("pos", Value(static_cast<int64_t>(pos)));
    cycler->set("current", cycler->attributes.find("items")->second.as_list()->items[pos]);
  };
  cycler->set("items", Value::list(arguments.positional, ListKind::kTuple));
  move_to(0);
  // The namespace belongs to the interpreter and outlives these.
  cycler->set("next", Value(std::make_shared<const Callable>(Callable{
                          "next", 0, [cycler, move_to](Interpreter&, Arguments& call_arguments) {
                            const Parameters none("next", call_arguments, {});
                            const Value current = cycler->attributes.find("current")->second;
                            const auto pos = static_cast<size_t>(cycler->attributes.find("pos")->second.integer());
                            move_to((pos + 1) % cycler->attributes.find("items")->second.as_list()->items.size());
                            return current;
                          }})));
  cycler->set(
      "reset",
      Value(std::make_shared<const Callable>(Callable{"reset", 0, [move_to](Interpreter&, Arguments& call_arguments) {
                                                        const Parameters none("reset", call_arguments, {});
                                                        move_to(0);
                                                        return Value();
                                                      }})));
  return Value(cycler);
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
    {"cycler", make_cycler},
    {"joiner", make_joiner},
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
