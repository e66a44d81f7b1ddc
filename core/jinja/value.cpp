#include "core/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/keyed_hash.h"
#include "core/jinja/integers.h"
#include "core/jinja/loop.h"

namespace llmrt::jinja {
namespace {

constexpr size_t kIndexedFrom = 9;  // below, a dict is searched from the front

int checked_depth(int depth) {
  if (depth > kNestingMax) {
    fail("expected at most {} nested lists and dicts, found more", kNestingMax);
  }
  return depth;
}

// Exact between an integer and a double: the x86 long double holds every int64.
int compare_numbers(const Value& left, const Value& right) {
  if (left.as_big() || right.as_big()) {
    return compare_big(left, right);
  }
  const auto wide = [](const Value& value) -> long double {
    return value.as_double() ? static_cast<long double>(*value.as_double()) : static_cast<long double>(value.integer());
  };
  const long double a = wide(left);
  const long double b = wide(right);
  return a < b ? -1 : a > b ? 1 : 0;
}

// Types apart, so that a string does not hash as the number of the same bytes.
enum class HashKind : uint8_t { kInteger = 1, kBig, kDouble, kTuple, kObject };

template <typename T>
size_t hash_bytes(HashKind kind, const T& bytes) {
  char buffer[1 + sizeof(T)];
  buffer[0] = static_cast<char>(kind);
  std::memcpy(buffer + 1, &bytes, sizeof(T));
  return KeyedHash()(std::string_view(buffer, sizeof buffer));
}

bool is_nan(const Value& value) {
  return value.as_double() && std::isnan(*value.as_double());
}

}  // namespace

std::shared_ptr<List> make_list(std::vector<Value> items, ListKind kind) {
  if (const Meter* meter = Meter::current()) {
    meter->check_entries(items.size());
  }
  auto list = std::make_shared<List>();
  for (const Value& item : items) {
    list->depth = std::max(list->depth, item.depth() + 1);
  }
  checked_depth(list->depth);
  list->items = std::move(items);
  list->kind = kind;
  list->held.grow(sizeof(List) + list->items.capacity() * sizeof(Value));
  return list;
}

Value Value::list(std::vector<Value> items, ListKind kind) {
  return Value(ListPtr(make_list(std::move(items), kind)));
}

Value Value::dict(std::vector<std::pair<Value, Value>> items, Meter& meter) {
  meter.check_entries(items.size());
  auto dict = std::make_shared<Dict>();
  const bool indexed = items.size() >= kIndexedFrom;
  constexpr size_t kIndexBytes = 48;  // a node and its bucket
  dict->held.grow(sizeof(Dict) + items.size() * (sizeof(items[0]) + (indexed ? kIndexBytes : 0)));
  dict->items.reserve(items.size());
  if (indexed) {
    dict->index_by_hash.reserve(items.size());
  }
  for (auto& [key, value] : items) {
    const size_t hash = hash_of(key, meter);
    dict->depth = std::max({dict->depth, key.depth() + 1, value.depth() + 1});
    if (const Value* present = dict->find(key, hash, meter)) {
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

double Value::number() const {
  return as_double() ? *as_double() : as_big() ? to_double(*as_big()) : static_cast<double>(integer());
}

bool Value::same_as(const Value& other, Meter& meter) const {
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
    meter.charge_bytes(std::min(text->size(), other.as_text()->size()));
    return text->bytes() == other.as_text()->bytes();  // Python interns what a template can tell apart
  }
  return as_undefined() == other.as_undefined() && as_list() == other.as_list() && as_dict() == other.as_dict() &&
         as_namespace() == other.as_namespace() && as_callable() == other.as_callable() &&
         as_loop() == other.as_loop() && as_big() == other.as_big();
}

const Value* Dict::find(const Value& key, Meter& meter) const {
  return find(key, hash_of(key, meter), meter);
}

const Value* Dict::find(const Value& key, size_t hash, Meter& meter) const {
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
  const auto is_key = [&](const Value& present) {
    const Text* text = present.as_text();
    if (!text || text->size() != key.size()) {
      return false;
    }
    meter.charge_bytes(key.size());
    return text->bytes() == key;
  };
  if (index_by_hash.empty()) {
    for (const auto& [present, value] : items) {
      if (is_key(present)) {
        return &value;
      }
    }
    return nullptr;
  }
  for (auto [it, end] = index_by_hash.equal_range(hash_of(key, meter)); it != end; ++it) {
    meter.charge(1);
    if (is_key(items[it->second].first)) {
      return &items[it->second].second;
    }
  }
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  const auto found = attributes.find(name);
  if (found != attributes.end()) {
    found->second = std::move(value);
    return;
  }
  constexpr size_t kNodeBytes = 112;
  held.grow(kNodeBytes + name.size());
  attributes.emplace(std::string(name), std::move(value));
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
  if (value.as_int() || value.as_big()) {
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
  if (value.as_big()) {
    return true;
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
  return left.same_as(right, meter);
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
      throw TemplateError{ErrorCode::kInvalidArgument, undefined->message, {}, undefined->detail};
    }
  }
  fail("no order between {} and {}", type_name(left), type_name(right));
}

size_t hash_of(std::string_view text, Meter& meter) {
  meter.charge_bytes(text.size());
  return KeyedHash()(text);
}

size_t hash_of(const Value& value, Meter& meter) {
  // 1, 1.0 and true are one key, and so are 1e30 and the integer that it is.
  if (const double* number = value.as_double(); number && std::isfinite(*number) && std::floor(*number) == *number) {
    if (std::fabs(*number) < 9e18) {
      return hash_bytes(HashKind::kInteger, static_cast<int64_t>(*number));
    }
    return hash_of(whole_of(*number, meter), meter);
  }
  if (value.as_double()) {
    return hash_bytes(HashKind::kDouble, *value.as_double());
  }
  if (value.is_integer()) {
    return hash_bytes(HashKind::kInteger, value.integer());
  }
  if (const Big* big = value.as_big()) {
    const std::string bytes = bytes_of(*big);
    meter.charge_characters(bytes.size());
    return KeyedHash()(static_cast<char>(HashKind::kBig) + bytes);
  }
  if (const Text* text = value.as_text()) {
    return hash_of(text->bytes(), meter);
  }
  if (const List* list = value.as_list(); list && list->kind == ListKind::kTuple) {
    std::string hashes(1, static_cast<char>(HashKind::kTuple));
    for (const Value& item : list->items) {
      meter.charge(1);  // tuples that share their items are exponential to walk
      const size_t hash = hash_of(item, meter);
      hashes.append(reinterpret_cast<const char*>(&hash), sizeof hash);
    }
    return KeyedHash()(hashes);
  }
  if (value.as_list() || value.as_dict()) {
    fail("unhashable type: {}", type_name(value));
  }
  // Undefined values are all equal, and so are those of none; others are equal to themselves alone.
  const void* object = value.as_namespace()  ? static_cast<const void*>(value.as_namespace())
                       : value.as_callable() ? static_cast<const void*>(value.as_callable())
                                             : static_cast<const void*>(value.as_loop());
  return hash_bytes(HashKind::kObject, std::pair(object, static_cast<size_t>(value.is_none())));
}

}  // namespace llmrt::jinja
