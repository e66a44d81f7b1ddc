#include "core/text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "core/text/jinja/loop.h"

namespace llmrt::jinja {
namespace {

constexpr size_t kIndexedFrom = 9;  // below, a dict is searched from the front

int checked_depth(int depth) {
  if (depth > kNestingMax) {
    fail("limit of {} nested lists and dicts exceeded", kNestingMax);
  }
  return depth;
}

// Exact between an integer and a double: the x86 long double holds every int64.
int compare_numbers(const Value& left, const Value& right) {
  const auto wide = [](const Value& value) -> long double {
    return value.as_double() ? static_cast<long double>(*value.as_double()) : static_cast<long double>(value.integer());
  };
  const long double a = wide(left);
  const long double b = wide(right);
  return a < b ? -1 : a > b ? 1 : 0;
}

// splitmix64's finish. std::hash leaves integers as they are: multiples of a table's size would share one bucket.
size_t mix(uint64_t hash) {
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

bool is_nan(const Value& value) {
  return value.as_double() && std::isnan(*value.as_double());
}

}  // namespace

Value Value::list(std::vector<Value> items, ListKind kind) {
  auto list = std::make_shared<List>();
  for (const Value& item : items) {
    list->depth = std::max(list->depth, item.depth() + 1);
  }
  checked_depth(list->depth);
  list->items = std::move(items);
  list->kind = kind;
  return Value(ListPtr(std::move(list)));
}

Value Value::dict(std::vector<std::pair<Value, Value>> items, Meter& meter) {
  auto dict = std::make_shared<Dict>();
  const bool indexed = items.size() >= kIndexedFrom;
  for (auto& [key, value] : items) {
    const size_t hash = hash_of(key, meter);
    dict->depth = std::max({dict->depth, key.depth() + 1, value.depth() + 1});
    if (const Value* present = dict->find(key, meter)) {
      *const_cast<Value*>(present) = std::move(value);
      continue;
    }
    if (indexed) {
      dict->index_by_hash.emplace(hash, dict->items.size());
    }
    dict->items.emplace_back(std::move(key), std::move(value));
  }
  checked_depth(dict->depth);
  return Value(DictPtr(std::move(dict)));
}

int Value::depth() const {
  if (const List* list = as_list()) {
    return list->depth;
  }
  if (const Callable* callable = as_callable()) {
    return callable->depth;
  }
  if (const Loop* loop = as_loop()) {
    return loop->items_depth();
  }
  const Dict* dict = as_dict();
  return dict ? dict->depth : 0;
}

bool Value::same_as(const Value& other) const {
  if (variant_.index() != other.variant_.index()) {
    return false;
  }
  if (as_bool()) {
    return *as_bool() == *other.as_bool();
  }
  if (as_int()) {
    return *as_int() == *other.as_int();
  }
  if (as_double()) {
    return *as_double() == *other.as_double();
  }
  if (const Text* text = as_text()) {
    return text->bytes() == other.as_text()->bytes();  // Python interns what a template can tell apart
  }
  return as_undefined() == other.as_undefined() && as_list() == other.as_list() && as_dict() == other.as_dict() &&
         as_namespace() == other.as_namespace() && as_callable() == other.as_callable() && as_loop() == other.as_loop();
}

const Value* Dict::find(const Value& key, Meter& meter) const {
  const size_t hash = hash_of(key, meter);
  if (index_by_hash.empty()) {
    for (const auto& [present, value] : items) {
      if (equals(present, key, meter)) {
        return &value;
      }
    }
    return nullptr;
  }
  for (auto [it, end] = index_by_hash.equal_range(hash); it != end; ++it) {
    meter.charge(1);
    if (equals(items[it->second].first, key, meter)) {
      return &items[it->second].second;
    }
  }
  return nullptr;
}

const Value* Dict::find(std::string_view key, Meter& meter) const {
  if (index_by_hash.empty()) {
    for (const auto& [present, value] : items) {
      if (const Text* text = present.as_text(); text && text->bytes() == key) {
        return &value;
      }
    }
    return nullptr;
  }
  return find(Value(Text(std::string(key), true)), meter);
}

const char* type_name(const Value& value) {
  if (value.is_undefined()) {
    return "Undefined";
  }
  if (value.is_none()) {
    return "NoneType";
  }
  if (value.as_bool()) {
    return "bool";
  }
  if (value.as_int()) {
    return "int";
  }
  if (value.as_double()) {
    return "float";
  }
  if (value.as_text()) {
    return "str";
  }
  if (const List* list = value.as_list()) {
    switch (list->kind) {
      case ListKind::kList:
        return "list";
      case ListKind::kTuple:
        return "tuple";
      case ListKind::kRange:
        return "range";
      case ListKind::kView:
        return "dict view";
      case ListKind::kGenerator:
        return "generator";
    }
  }
  if (value.as_dict()) {
    return "dict";
  }
  if (value.as_namespace()) {
    return "Namespace";
  }
  return value.as_loop() ? "LoopContext" : "function";
}

bool is_true(const Value& value) {
  if (value.is_undefined() || value.is_none()) {
    return false;
  }
  if (value.is_number()) {
    return value.as_double() ? *value.as_double() != 0 : value.integer() != 0;
  }
  if (const Text* text = value.as_text()) {
    return !text->empty();
  }
  if (const List* list = value.as_list()) {
    return list->kind == ListKind::kGenerator || !list->items.empty();
  }
  const Dict* dict = value.as_dict();
  return !dict || !dict->items.empty();
}

bool equals(const Value& left, const Value& right, Meter& meter) {
  if (left.is_number() && right.is_number()) {
    return !is_nan(left) && !is_nan(right) && compare_numbers(left, right) == 0;
  }
  if (left.as_text() && right.as_text()) {
    meter.charge_bytes(std::min(left.as_text()->size(), right.as_text()->size()));
    return left.as_text()->bytes() == right.as_text()->bytes();
  }
  if (left.is_undefined() || left.is_none()) {
    return left.is_undefined() == right.is_undefined() && left.is_none() == right.is_none();
  }
  if (const List* a = left.as_list(), *b = right.as_list(); a && b) {
    if (a->kind != b->kind || a->kind == ListKind::kGenerator || a->items.size() != b->items.size()) {
      return a == b;
    }
    meter.charge(a->items.size());
    return std::equal(a->items.begin(), a->items.end(), b->items.begin(),
                      [&](const Value& x, const Value& y) { return equals(x, y, meter); });
  }
  if (const Dict* a = left.as_dict(), *b = right.as_dict(); a && b) {
    meter.charge(a->items.size());
    return a->items.size() == b->items.size() && std::all_of(a->items.begin(), a->items.end(), [&](const auto& item) {
             const Value* other = b->find(item.first, meter);
             return other && equals(item.second, *other, meter);
           });
  }
  return left.same_as(right);
}

int compare(const Value& left, const Value& right, Meter& meter) {
  if (left.is_number() && right.is_number()) {
    return compare_numbers(left, right);
  }
  if (left.as_text() && right.as_text()) {
    meter.charge_bytes(std::min(left.as_text()->size(), right.as_text()->size()));
    return left.as_text()->bytes().compare(right.as_text()->bytes());  // UTF-8 sorts as its code points do
  }
  const List* a = left.as_list();
  const List* b = right.as_list();
  if (a && b && a->kind == b->kind && (a->kind == ListKind::kList || a->kind == ListKind::kTuple)) {
    const size_t common = std::min(a->items.size(), b->items.size());
    for (size_t i = 0; i < common; ++i) {
      meter.charge(1);
      if (!equals(a->items[i], b->items[i], meter)) {
        return compare(a->items[i], b->items[i], meter);
      }
    }
    return a->items.size() < b->items.size() ? -1 : a->items.size() > b->items.size() ? 1 : 0;
  }
  for (const Value* side : {&left, &right}) {
    if (const Undefined* undefined = side->as_undefined()) {
      fail("{}", undefined->message);
    }
  }
  fail("no order between {} and {}", type_name(left), type_name(right));
}

size_t hash_of(const Value& value, Meter& meter) {
  if (value.as_double() &&
      !(std::floor(*value.as_double()) == *value.as_double() && std::fabs(*value.as_double()) < 9e18)) {
    return std::hash<double>()(*value.as_double());
  }
  if (value.is_number()) {  // 1, 1.0 and true are one key
    return mix(static_cast<uint64_t>(value.as_double() ? static_cast<int64_t>(*value.as_double()) : value.integer()));
  }
  if (const Text* text = value.as_text()) {
    return std::hash<std::string_view>()(text->bytes());
  }
  if (const List* list = value.as_list(); list && list->kind == ListKind::kTuple) {
    size_t hash = 0x345678;
    for (const Value& item : list->items) {
      meter.charge(1);  // tuples that share their items are exponential to walk
      hash = hash * 1000003 ^ hash_of(item, meter);
    }
    return mix(hash);
  }
  if (value.as_list() || value.as_dict()) {
    fail("unhashable type: {}", type_name(value));
  }
  return std::hash<std::string_view>()(type_name(value));
}

}  // namespace llmrt::jinja
