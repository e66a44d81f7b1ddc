// Filters that walk over items. Where Jinja gives a lazy sequence, so do they: one that can be walked only once.
#include <algorithm>
#include <optional>
#include <random>

#include "core/jinja/arguments.h"
#include "core/jinja/code_points.h"
#include "core/jinja/convert.h"
#include "core/jinja/filters.h"
#include "core/jinja/interpreter.h"
#include "core/jinja/operators.h"
#include "core/jinja/tests.h"

namespace llmrt::jinja {
namespace {

Value lazy(std::vector<Value> items) {
  return Value::list(std::move(items), ListKind::kGenerator);
}

Value ignore_case(const Value& value, bool case_sensitive, Meter& meter) {
  return !case_sensitive && value.as_text() ? Value(lower(*value.as_text(), meter)) : value;
}

// Looks up "a.b.0" in an item, part by part.
class AttributePath {
 public:
  AttributePath(const Value& attribute, Meter& meter) {
    if (const Text* text = attribute.as_text()) {
      meter.charge_characters(text->size());
      for (Text& part : split_at(*text, ".", -1, meter)) {
        const bool is_index = !part.empty() && part.bytes().find_first_not_of("0123456789") == std::string_view::npos;
        parts_.push_back(is_index ? Value(parse(part.bytes())) : Value(std::move(part)));
      }
    } else if (!attribute.is_none()) {
      parts_.push_back(attribute);
    }
  }
  Value get(Interpreter& interpreter, Value item, const Value* otherwise = nullptr) const {
    for (const Value& part : parts_) {
      interpreter.meter().charge(1);
      item = get_item(interpreter, item, part);
      if (otherwise && item.is_undefined()) {
        item = *otherwise;
      }
    }
    return item;
  }

 private:
  static int64_t parse(std::string_view digits) {
    int64_t number = 0;
    for (const char c : digits) {
      number = std::min<int64_t>(number * 10 + (c - '0'), INT32_MAX);
    }
    return number;
  }
  std::vector<Value> parts_;
};

// Sorts stably by the keys, which are computed once.
std::vector<Value> sort_by(Interpreter& interpreter, std::vector<Value> items, const std::vector<Value>& keys,
                           bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    interpreter.meter().charge(1);
    return reverse ? compare(keys[b], keys[a], interpreter.meter()) < 0
                   : compare(keys[a], keys[b], interpreter.meter()) < 0;
  });
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const size_t i : order) {
    sorted.push_back(std::move(items[i]));
  }
  return sorted;
}

Value filter_list(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("list", arguments, {});
  return Value::list(iterate(input, interpreter.meter()));
}

Value filter_first(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("first", arguments, {});
  if (const List* list = input.as_list(); list && list->kind == ListKind::kGenerator) {
    return list->consumed < list->items.size() ? list->items[list->consumed++]
                                               : Value::undefined("no first item, sequence was empty");
  }
  if (const List* list = input.as_list(); list && !list->items.empty()) {
    return list->items.front();
  }
  const std::vector<Value> items = iterate(input, interpreter.meter());
  return items.empty() ? Value::undefined("no first item, sequence was empty") : items.front();
}

Value filter_last(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("last", arguments, {});
  if (input.as_list() && input.as_list()->kind == ListKind::kGenerator) {
    fail("'generator' object is not reversible");
  }
  if (const List* list = input.as_list(); list && !list->items.empty()) {
    return list->items.back();
  }
  const std::vector<Value> items = iterate(input, interpreter.meter());
  return items.empty() ? Value::undefined("no last item, sequence was empty") : items.back();
}

// One item, drawn anew in each rendering.
Value filter_random(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("random", arguments, {});
  const List* list = input.as_list();
  if (!input.as_text() && !(list && list->kind <= ListKind::kRange)) {
    require_defined(input);
    fail("random: expected a sequence, found {}", type_name(input));
  }
  if (input.as_text()) {
    interpreter.meter().charge_bytes(2 * input.as_text()->size());
  }
  const int64_t length = length_of(input);
  if (length == 0) {
    return Value::undefined("no random item, sequence was empty");
  }
  std::uniform_int_distribution<int64_t> any(0, length - 1);
  return get_item(interpreter, input, Value(any(interpreter.random())));
}

Value filter_join(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("join", arguments, {"d", "attribute"});
  const AttributePath path(given[1], interpreter.meter());
  const Text separator = given.has(0) ? to_text(given[0], interpreter.meter()) : Text();
  Text out;
  bool first = true;
  for (const Value& item : iterate(input, interpreter.meter())) {
    const Text part = to_text(path.get(interpreter, item), interpreter.meter());
    interpreter.meter().charge_growth(out.size(), separator.size() + part.size());
    if (!std::exchange(first, false)) {
      out.append(separator);
    }
    out.append(part);
  }
  return Value(std::move(out));
}

Value filter_reverse(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("reverse", arguments, {});
  std::vector<Value> items = iterate(input, interpreter.meter());
  std::ranges::reverse(items);
  if (!input.as_text()) {
    return lazy(std::move(items));
  }
  Text out;
  for (const Value& character : items) {
    out.append(*character.as_text());
  }
  return Value(std::move(out));
}

Value filter_items(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("items", arguments, {});
  if (!input.as_dict() && !input.is_undefined()) {
    fail("items: expected a mapping, found {}", type_name(input));
  }
  std::vector<Value> items;
  if (const Dict* dict = input.as_dict()) {
    interpreter.meter().charge(dict->items.size());
    for (const auto& [key, value] : dict->items) {
      items.push_back(Value::list({key, value}, ListKind::kTuple));
    }
  }
  return lazy(std::move(items));
}

Value filter_dictsort(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string_view by = given.has(1) ? given.text(1).bytes() : "key";
  if (!input.as_dict() || (by != "key" && by != "value")) {
    require_defined(input);
    fail("dictsort: expected a dict, and 'key' or 'value' to sort by");
  }
  std::vector<Value> items;
  std::vector<Value> keys;
  for (const auto& [key, value] : input.as_dict()->items) {
    interpreter.meter().charge(1);
    items.push_back(Value::list({key, value}, ListKind::kTuple));
    keys.push_back(ignore_case(by == "key" ? key : value, given.flag(0, false), interpreter.meter()));
  }
  return Value::list(sort_by(interpreter, std::move(items), keys, given.flag(2, false)));
}

Value filter_sort(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<AttributePath> paths;  // "age,name" sorts by several
  if (const Text* attribute = given[2].as_text()) {
    interpreter.meter().charge_bytes(attribute->size());
    for (Text& part : split_at(*attribute, ",", -1, interpreter.meter())) {
      paths.emplace_back(Value(std::move(part)), interpreter.meter());
    }
  } else {
    paths.emplace_back(given[2], interpreter.meter());
  }
  std::vector<Value> items = iterate(input, interpreter.meter());
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> key;
    interpreter.meter().charge(paths.size());
    for (const AttributePath& path : paths) {
      key.push_back(ignore_case(path.get(interpreter, item), given.flag(1, false), interpreter.meter()));
    }
    keys.push_back(Value::list(std::move(key)));
  }
  return Value::list(sort_by(interpreter, std::move(items), keys, given.flag(0, false)));
}

Value filter_unique(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("unique", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(given[1], interpreter.meter());
  std::unordered_multimap<size_t, Value> seen;  // by keyed hashes
  std::vector<Value> items;
  for (const Value& item : iterate(input, interpreter.meter())) {
    const Value key = ignore_case(path.get(interpreter, item), given.flag(0, false), interpreter.meter());
    const size_t hash = hash_of(key, interpreter.meter());
    const auto [begin, end] = seen.equal_range(hash);
    const bool repeated = std::any_of(begin, end, [&](const auto& entry) {
      interpreter.meter().charge(1);
      return equals(entry.second, key, interpreter.meter());
    });
    if (!repeated) {
      seen.emplace(hash, key);
      items.push_back(item);
    }
  }
  return lazy(std::move(items));
}

template <int direction>
Value filter_extreme(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given(direction < 0 ? "min" : "max", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(given[1], interpreter.meter());
  Value best = Value::undefined("no aggregated item, sequence was empty");
  std::optional<Value> best_key;
  for (const Value& item : iterate(input, interpreter.meter())) {
    Value key = ignore_case(path.get(interpreter, item), given.flag(0, false), interpreter.meter());
    if (!best_key || compare(key, *best_key, interpreter.meter()) * direction > 0) {
      best = item;
      best_key = std::move(key);
    }
  }
  return best;
}

Value filter_sum(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("sum", arguments, {"attribute", "start"});
  const AttributePath path(given[0], interpreter.meter());
  Value total = given.has(1) ? given[1] : Value(int64_t{0});
  if (total.as_text()) {
    fail("sum() can't sum strings");
  }
  for (const Value& item : iterate(input, interpreter.meter())) {
    total = apply(BinaryOperator::kAdd, total, path.get(interpreter, item), interpreter.meter());
  }
  return total;
}

Value filter_batch(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t width = given.integer(0, 1);
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (const Value& item : iterate(input, interpreter.meter())) {
    if (static_cast<int64_t>(batch.size()) == width) {
      batches.push_back(Value::list(std::exchange(batch, {})));
    }
    batch.push_back(item);
  }
  if (!batch.empty()) {
    const auto size = static_cast<int64_t>(batch.size());
    const auto missing = static_cast<size_t>(std::max(width, size) - size);
    if (!given[1].is_none()) {
      interpreter.meter().check_entries(batch.size() + missing);
      interpreter.meter().charge(missing);
      batch.insert(batch.end(), missing, given[1]);
    }
    batches.push_back(Value::list(std::move(batch)));
  }
  return lazy(std::move(batches));
}

Value filter_slice(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("slice", arguments, {"slices", "fill_with"}, 1);
  const int64_t num_slices = given.integer(0, 1);
  const std::vector<Value> items = iterate(input, interpreter.meter());
  if (num_slices == 0) {
    fail("division by zero");
  }
  std::vector<Value> slices;
  const auto length = static_cast<int64_t>(items.size());
  auto next = items.begin();
  for (int64_t i = 0; i < num_slices; ++i) {
    interpreter.meter().charge(1);
    const bool is_longer = i < length % num_slices;
    const auto end = next + length / num_slices + is_longer;
    std::vector<Value> slice(next, end);
    if (!given[1].is_none() && !is_longer) {
      slice.push_back(given[1]);
    }
    slices.push_back(Value::list(std::move(slice)));
    next = end;
  }
  return lazy(std::move(slices));
}

Value make_group(const Value& grouper, std::vector<Value> items) {
  std::shared_ptr<List> group = make_list({grouper, Value::list(std::move(items))}, ListKind::kTuple);
  group->is_group = true;
  return Value(ListPtr(std::move(group)));
}

Value filter_groupby(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(given[0], interpreter.meter());
  const Value* otherwise = given[1].is_none() ? nullptr : &given[1];
  const bool case_sensitive = given.flag(2, false);
  const auto key_of = [&](const Value& item) {
    return ignore_case(path.get(interpreter, item, otherwise), case_sensitive, interpreter.meter());
  };
  std::vector<Value> items = iterate(input, interpreter.meter());
  std::vector<Value> keys;
  for (const Value& item : items) {
    keys.push_back(key_of(item));
  }
  items = sort_by(interpreter, std::move(items), keys, false);
  std::vector<Value> groups;
  for (auto begin = items.begin(); begin != items.end();) {
    const Value key = key_of(*begin);
    const auto end = std::find_if(begin + 1, items.end(),
                                  [&](const Value& item) { return !equals(key_of(item), key, interpreter.meter()); });
    groups.push_back(make_group(path.get(interpreter, *begin, otherwise), {begin, end}));
    begin = end;
  }
  return Value::list(std::move(groups));
}

// The first positional argument, which names a filter, test or attribute, and is taken away.
Value take_first(std::string_view function, Arguments& arguments) {
  if (arguments.positional.empty()) {
    fail("{}: missing argument", function);
  }
  Value first = std::move(arguments.positional.front());
  arguments.positional.erase(arguments.positional.begin());
  return first;
}

std::string_view name_of(const Value& value) {
  if (!value.as_text()) {
    fail("expected the name of a filter or test, found {}", type_name(value));
  }
  return value.as_text()->bytes();
}

[[noreturn]] void fail_unknown(const char* what, const Text& name) {
  throw TemplateError{ErrorCode::kUnsupported, fmt::format("an unknown {}", what), {}, excerpt(name.bytes())};
}

Value filter_map(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  std::vector<Value> mapped;
  if (!is_true(input)) {
    return lazy({});  // also of what cannot be walked, such as none
  }
  if (arguments.positional.empty()) {
    const Parameters given("map", arguments, {"attribute", "default"}, 1);
    const AttributePath path(given[0], interpreter.meter());
    const Value* otherwise = given[1].is_none() ? nullptr : &given[1];
    for (const Value& item : iterate(input, interpreter.meter())) {
      mapped.push_back(path.get(interpreter, item, otherwise));
    }
    return lazy(std::move(mapped));
  }
  const Value name = take_first("map", arguments);
  const FilterCall::Function function = find_filter(name_of(name));
  if (!function) {
    fail_unknown("filter", *name.as_text());
  }
  for (const Value& item : iterate(input, interpreter.meter())) {
    interpreter.meter().charge(arguments.positional.size() + 2 * arguments.named.size());
    Arguments copy = arguments;
    mapped.push_back(function(interpreter, item, copy));
  }
  return lazy(std::move(mapped));
}

// select, reject, selectattr, rejectattr: the items that pass a test, itself or of an attribute.
template <bool keep, bool of_attribute>
Value filter_select(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  if (!is_true(input)) {
    return lazy({});
  }
  const AttributePath path(of_attribute ? take_first("selectattr", arguments) : Value(), interpreter.meter());
  TestCall::Function test = nullptr;
  if (!arguments.positional.empty()) {
    const Value name = take_first("select", arguments);
    test = find_test(name_of(name));
    if (!test) {
      fail_unknown("test", *name.as_text());
    }
  }
  std::vector<Value> kept;
  for (const Value& item : iterate(input, interpreter.meter())) {
    const Value tested = path.get(interpreter, item);
    interpreter.meter().charge(arguments.positional.size() + 2 * arguments.named.size());
    Arguments copy = arguments;
    if ((test ? test(interpreter, tested, copy) : is_true(tested)) == keep) {
      kept.push_back(item);
    }
  }
  return lazy(std::move(kept));
}

constexpr NamedFilter kSequenceFilters[] = {
    {"batch", filter_batch},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"groupby", filter_groupby},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"list", filter_list},
    {"map", filter_map},
    {"max", filter_extreme<1>},
    {"min", filter_extreme<-1>},
    {"random", filter_random},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<false, true>},
    {"reverse", filter_reverse},
    {"select", filter_select<true, false>},
    {"selectattr", filter_select<true, true>},
    {"slice", filter_slice},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
};

}  // namespace

std::span<const NamedFilter> sequence_filters() {
  return kSequenceFilters;
}

}  // namespace llmrt::jinja
