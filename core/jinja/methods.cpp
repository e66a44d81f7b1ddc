#include "core/jinja/methods.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/jinja/arguments.h"
#include "core/jinja/code_points.h"
#include "core/jinja/format.h"
#include "core/jinja/interpreter.h"
#include "core/jinja/loop.h"
#include "core/jinja/operators.h"

namespace llmrt::jinja {
namespace {

const Text& self_text(Interpreter& interpreter, const Value& self) {
  interpreter.meter().charge_bytes(self.as_text()->size());
  return *self.as_text();
}

Value text_list(std::vector<Text> parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (Text& part : parts) {
    items.emplace_back(std::move(part));
  }
  return Value::list(std::move(items));
}

template <Side side>
Value str_strip(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters given("strip", arguments, {"chars"});
  std::optional<std::string_view> chars;
  if (!given[0].is_none()) {
    chars = given.text(0).bytes();
  }
  return Value(strip(self_text(interpreter, self), chars, side, interpreter.meter()));
}

template <bool from_right>
Value str_split(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters given("split", arguments, {"sep", "maxsplit"});
  const Text& text = self_text(interpreter, self);
  const int64_t num_max = given.integer(1, -1);
  if (given[0].is_none()) {
    return text_list(from_right ? rsplit_at_space(text, num_max, interpreter.meter())
                                : split_at_space(text, num_max, interpreter.meter()));
  }
  const std::string_view separator = given.text(0).bytes();
  if (separator.empty()) {
    fail("split: empty separator");
  }
  return text_list(from_right ? rsplit_at(text, separator, num_max, interpreter.meter())
                              : split_at(text, separator, num_max, interpreter.meter()));
}

Value str_splitlines(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters given("splitlines", arguments, {"keepends"});
  const Text& text = self_text(interpreter, self);
  return text_list(split_lines(text, given.flag(0, false), interpreter.meter()));
}

template <bool from_right>
Value str_partition(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters given("partition", arguments, {"sep"}, 1);
  const Text& text = self_text(interpreter, self);
  const Text& separator = given.text(0);
  if (separator.empty()) {
    fail("partition: empty separator");
  }
  std::vector<Text> parts = from_right ? rsplit_at(text, separator.bytes(), 1, interpreter.meter())
                                       : split_at(text, separator.bytes(), 1, interpreter.meter());
  if (parts.size() == 2) {
    return Value::list({Value(parts[0]), Value(separator), Value(parts[1])}, ListKind::kTuple);
  }
  const Value empty{Text()};
  return from_right ? Value::list({empty, empty, self}, ListKind::kTuple)
                    : Value::list({self, empty, empty}, ListKind::kTuple);
}

// The part of the text that the arguments start and end leave, and the byte offset where it begins.
std::string_view bounded(Interpreter& interpreter, const Value& self, const Parameters& given, size_t& offset) {
  const std::string_view text = self_text(interpreter, self).bytes();
  offset = 0;
  if (given[1].is_none() && given[2].is_none()) {
    return text;
  }
  interpreter.meter().charge_bytes(2 * text.size());
  const int64_t length = count_code_points(text);
  const auto resolve = [&](size_t i, int64_t otherwise) {
    const int64_t index = given[i].is_none() ? otherwise : given.integer(i, 0);
    return std::clamp(index < 0 ? std::max(index, -length) + length : index, int64_t{0}, length);
  };
  offset = offset_of(text, resolve(1, 0));
  const size_t end = offset_of(text, resolve(2, length));
  return text.substr(offset, std::max(end, offset) - offset);
}

template <bool at_end>
Value str_starts_or_ends(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters given(at_end ? "endswith" : "startswith", arguments, {"prefix", "start", "end"}, 1);
  size_t offset = 0;
  const std::string_view text = bounded(interpreter, self, given, offset);
  const auto matches = [&](std::string_view part) { return at_end ? text.ends_with(part) : text.starts_with(part); };
  if (const List* any = given[0].as_list(); any && any->kind == ListKind::kTuple) {
    return Value(std::ranges::any_of(any->items, [&](const Value& part) {
      interpreter.meter().charge(1);
      if (!part.as_text()) {
        fail("startswith: expected strings, found {}", type_name(part));
      }
      interpreter.meter().charge_bytes(std::min(text.size(), part.as_text()->size()));
      return matches(part.as_text()->bytes());
    }));
  }
  return Value(matches(given.text(0).bytes()));
}

template <bool from_right, bool must_find>
Value str_find(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters given("find", arguments, {"sub", "start", "end"}, 1);
  size_t offset = 0;
  const std::string_view text = bounded(interpreter, self, given, offset);
  const std::string_view needle = given.text(0).bytes();
  size_t hit = npos;
  interpreter.meter().charge_bytes(text.size() + needle.size());
  if (from_right) {
    const std::string reversed(text.rbegin(), text.rend());
    hit = find_text(reversed, std::string(needle.rbegin(), needle.rend()));
    hit = hit == npos ? npos : text.size() - hit - needle.size();
  } else {
    hit = find_text(text, needle);
  }
  if (hit == npos && must_find) {
    fail("index: substring not found");
  }
  return Value(hit == npos ? int64_t{-1} : count_code_points(self.as_text()->bytes().substr(0, offset + hit)));
}

Value str_count(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters given("count", arguments, {"sub", "start", "end"}, 1);
  size_t offset = 0;
  const std::string_view text = bounded(interpreter, self, given, offset);
  return Value(static_cast<int64_t>(count_text(text, given.text(0).bytes())));
}

Value str_replace(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters given("replace", arguments, {"old", "new", "count"}, 2);
  return Value(replace(self_text(interpreter, self), given.text(0).bytes(), given.text(1), given.integer(2, -1),
                       interpreter.meter()));
}

template <Text (*function)(const Text&, Meter&)>
Value str_map(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters given("case mapping", arguments, {});
  return Value(function(self_text(interpreter, self), interpreter.meter()));
}

template <bool (*function)(std::string_view)>
Value str_is(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters given("str.is...", arguments, {});
  const std::string_view text = self_text(interpreter, self).bytes();
  interpreter.meter().charge_characters(text.size());
  return Value(function(text));
}

Value str_join(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters given("join", arguments, {"iterable"}, 1);
  Text out;
  bool first = true;
  for (const Value& item : iterate(given[0], interpreter.meter())) {
    if (!item.as_text()) {
      fail("join: expected strings, found {}", type_name(item));
    }
    interpreter.meter().charge_growth(out.size(), self.as_text()->size() + item.as_text()->size());
    if (!std::exchange(first, false)) {
      out.append(*self.as_text());
    }
    out.append(*item.as_text());
  }
  return Value(std::move(out));
}

Value str_format(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  return Value(brace_format(interpreter, self_text(interpreter, self), arguments));
}

template <bool at_end>
Value str_remove_affix(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters given("removeprefix", arguments, {"affix"}, 1);
  const Text& text = self_text(interpreter, self);
  const std::string_view affix = given.text(0).bytes();
  if (at_end ? !text.bytes().ends_with(affix) : !text.bytes().starts_with(affix)) {
    return self;
  }
  return Value(at_end ? text.substr(0, text.size() - affix.size()) : text.substr(affix.size()));
}

enum class Align { kLeft, kRight, kCenter };
template <Align align>
Value str_pad(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters given("justify", arguments, {"width", "fillchar"}, 1);
  const Text fill = given.has(1) ? given.text(1) : Text(" ", true);
  return Value(pad(self_text(interpreter, self), given.integer(0, 0), fill,
                   align == Align::kLeft    ? '<'
                   : align == Align::kRight ? '>'
                                            : '^',
                   interpreter.meter()));
}

Value str_zfill(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters given("zfill", arguments, {"width"}, 1);
  const Text& text = self_text(interpreter, self);
  const bool has_sign = text.bytes().starts_with('-') || text.bytes().starts_with('+');
  Text out = text.substr(0, has_sign);
  out.append(pad(text.substr(has_sign), std::max<int64_t>(given.integer(0, 0), has_sign) - has_sign, Text("0", true),
                 '>', interpreter.meter()));
  return Value(std::move(out));
}

Value list_index(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters given("index", arguments, {"value"}, 1);
  const auto& items = self.as_list()->items;
  interpreter.meter().charge(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    if (equals(items[i], given[0], interpreter.meter())) {
      return Value(static_cast<int64_t>(i));
    }
  }
  fail("index: the value is not in the list");
}

Value list_count(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters given("count", arguments, {"value"}, 1);
  const auto& items = self.as_list()->items;
  interpreter.meter().charge(items.size());
  return Value(static_cast<int64_t>(
      std::ranges::count_if(items, [&](const Value& item) { return equals(item, given[0], interpreter.meter()); })));
}

Value copy(Interpreter&, const Value& self, Arguments& arguments) {
  const Parameters given("copy", arguments, {});
  return self;  // nothing can change it
}

Value dict_get(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters given("get", arguments, {"key", "default"}, 1);
  const Value* found = self.as_dict()->find(given[0], interpreter.meter());
  return found ? *found : given[1];
}

enum class View { kKeys, kValues, kItems };
template <View view>
Value dict_view(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Parameters given("dict view", arguments, {});
  const auto& items = self.as_dict()->items;
  interpreter.meter().charge(items.size());
  std::vector<Value> out;
  out.reserve(items.size());
  for (const auto& [key, value] : items) {
    out.push_back(view == View::kKeys     ? key
                  : view == View::kValues ? value
                                          : Value::list({key, value}, ListKind::kTuple));
  }
  return Value::list(std::move(out), ListKind::kView);
}

Value loop_cycle(Interpreter&, const Value& self, Arguments& arguments) {
  return self.as_loop()->cycle(arguments);
}

Value loop_changed(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  return Value(self.as_loop()->changed(arguments, interpreter.meter()));
}

struct NamedMethod {
  std::string_view name;
  Method method;  // nullptr: Python has it, but it is not supported here
};

constexpr NamedMethod kStringMethods[] = {
    {"capitalize", str_map<capitalize>},
    {"casefold", nullptr},
    {"center", str_pad<Align::kCenter>},
    {"count", str_count},
    {"encode", nullptr},
    {"endswith", str_starts_or_ends<true>},
    {"expandtabs", nullptr},
    {"find", str_find<false, false>},
    {"format", str_format},
    {"format_map", nullptr},
    {"index", str_find<false, true>},
    {"isalnum", str_is<is_alphanumeric>},
    {"isalpha", str_is<is_alpha>},
    {"isascii", nullptr},
    {"isdecimal", str_is<is_decimal>},
    {"isdigit", str_is<is_digits>},
    {"isidentifier", nullptr},
    {"islower", str_is<is_lower>},
    {"isnumeric", nullptr},
    {"isprintable", nullptr},
    {"isspace", str_is<is_blank>},
    {"istitle", nullptr},
    {"isupper", str_is<is_upper>},
    {"join", str_join},
    {"ljust", str_pad<Align::kLeft>},
    {"lower", str_map<lower>},
    {"lstrip", str_strip<Side::kLeft>},
    {"maketrans", nullptr},
    {"partition", str_partition<false>},
    {"removeprefix", str_remove_affix<false>},
    {"removesuffix", str_remove_affix<true>},
    {"replace", str_replace},
    {"rfind", str_find<true, false>},
    {"rindex", str_find<true, true>},
    {"rjust", str_pad<Align::kRight>},
    {"rpartition", str_partition<true>},
    {"rsplit", str_split<true>},
    {"rstrip", str_strip<Side::kRight>},
    {"split", str_split<false>},
    {"splitlines", str_splitlines},
    {"startswith", str_starts_or_ends<false>},
    {"strip", str_strip<Side::kBoth>},
    {"swapcase", str_map<swap_case>},
    {"title", str_map<title>},
    {"translate", nullptr},
    {"upper", str_map<upper>},
    {"zfill", str_zfill},
};
constexpr NamedMethod kListMethods[] = {{"copy", copy}, {"count", list_count}, {"index", list_index}};
constexpr NamedMethod kTupleMethods[] = {{"count", list_count}, {"index", list_index}};
constexpr NamedMethod kDictMethods[] = {{"copy", copy},
                                        {"fromkeys", nullptr},
                                        {"get", dict_get},
                                        {"items", dict_view<View::kItems>},
                                        {"keys", dict_view<View::kKeys>},
                                        {"values", dict_view<View::kValues>}};
constexpr NamedMethod kLoopMethods[] = {{"changed", loop_changed}, {"cycle", loop_cycle}};

constexpr std::string_view kListMutators[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};

template <size_t size>
const NamedMethod* find_in(const NamedMethod (&methods)[size], std::string_view name) {
  const auto* found = std::ranges::find(methods, name, &NamedMethod::name);
  return found == std::end(methods) ? nullptr : found;
}

const NamedMethod* find_named(const Value& object, std::string_view name) {
  if (object.as_text()) {
    return find_in(kStringMethods, name);
  }
  if (const List* list = object.as_list()) {
    return list->kind == ListKind::kList    ? find_in(kListMethods, name)
           : list->kind <= ListKind::kRange ? find_in(kTupleMethods, name)
                                            : nullptr;
  }
  if (object.as_dict()) {
    return find_in(kDictMethods, name);
  }
  return object.as_loop() ? find_in(kLoopMethods, name) : nullptr;
}

bool is_mutator(const Value& object, std::string_view name) {
  const bool is_list = object.as_list() && object.as_list()->kind == ListKind::kList;
  return (is_list && std::ranges::find(kListMutators, name) != std::end(kListMutators)) ||
         (object.as_dict() && std::ranges::find(kDictMutators, name) != std::end(kDictMutators));
}

}  // namespace

Method find_method(const Value& object, std::string_view name) {
  const NamedMethod* found = find_named(object, name);
  return found ? found->method : nullptr;
}

std::optional<Value> bind_method(const Value& object, std::string_view name) {
  if (is_mutator(object, name)) {
    return Value::undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe: it changes the object",
                                        name, type_name(object)));
  }
  const NamedMethod* found = find_named(object, name);
  if (!found) {
    return std::nullopt;
  }
  if (!found->method) {
    fail_unsupported("method '{}' of '{}' objects", name, type_name(object));
  }
  if (object.depth() >= kNestingMax) {
    fail("expected at most {} nested lists and dicts, found more", kNestingMax);
  }
  return Value(std::make_shared<const Callable>(
      Callable{std::string(name), object.depth() + 1,
               [object, method = found->method](Interpreter& interpreter, Arguments& arguments) {
                 return method(interpreter, object, arguments);
               }}));
}

}  // namespace llmrt::jinja
