// The values that a template computes with: Python's, as far as Jinja needs them. Values are immutable and cheap to
// copy; only namespaces change.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "core/jinja/meter.h"
#include "core/jinja/text.h"

namespace llmrt::jinja {

class Interpreter;
class Value;
struct Arguments;

struct None {};
// Prints as nothing; most other uses raise `message`, with `detail` for the client alone.
struct Undefined {
  std::string message;
  std::string detail;
  Held held{kOverheadBytes + message.size() + detail.size()};

  static constexpr size_t kOverheadBytes = 128;
};
struct Big;  // integers.h: an integer beyond 64 bits
struct List;
struct Dict;
struct Namespace;
struct Callable;
class Loop;

using UndefinedPtr = std::shared_ptr<const Undefined>;
using BigPtr = std::shared_ptr<const Big>;
using TextPtr = std::shared_ptr<const Text>;
using ListPtr = std::shared_ptr<const List>;
using DictPtr = std::shared_ptr<const Dict>;
using CallablePtr = std::shared_ptr<const Callable>;
using LoopPtr = std::shared_ptr<Loop>;

// kView: what dict.items() and the like give. kGenerator: a lazy sequence of Python's, which can be walked only once.
enum class ListKind { kList, kTuple, kRange, kView, kGenerator };

class Value {
 public:
  // A namespace belongs to the interpreter: a pointer here, so that a namespace that holds itself leaks nothing.
  using Variant = std::variant<UndefinedPtr, None, bool, int64_t, double, TextPtr, ListPtr, DictPtr, Namespace*,
                               CallablePtr, LoopPtr, BigPtr>;

  Value() : variant_(None{}) {}
  Value(bool value) : variant_(value) {}
  Value(int64_t value) : variant_(value) {}
  Value(double value) : variant_(value) {}
  Value(Text text) : variant_(std::make_shared<const Text>(std::move(text))) {}
  Value(BigPtr big) : variant_(std::move(big)) {}
  Value(ListPtr list) : variant_(std::move(list)) {}
  Value(DictPtr dict) : variant_(std::move(dict)) {}
  Value(Namespace* space) : variant_(space) {}
  Value(CallablePtr callable) : variant_(std::move(callable)) {}
  Value(LoopPtr loop) : variant_(std::move(loop)) {}
  Value(const void*) = delete;  // no pointer becomes a bool

  static Value undefined(std::string message, std::string detail = "") {
    Value value;
    value.variant_ = std::make_shared<const Undefined>(Undefined{std::move(message), std::move(detail)});
    return value;
  }
  static Value list(std::vector<Value> items, ListKind kind = ListKind::kList);
  static Value dict(std::vector<std::pair<Value, Value>> items, Meter& meter);  // of equal keys the last value wins

  bool is_undefined() const { return std::holds_alternative<UndefinedPtr>(variant_); }
  bool is_none() const { return std::holds_alternative<None>(variant_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(variant_) || as_bool(); }  // of 64 bits; or a bool
  bool is_whole() const { return is_integer() || as_big(); }                                  // of any size
  bool is_number() const { return is_whole() || as_double(); }

  const bool* as_bool() const { return std::get_if<bool>(&variant_); }
  const int64_t* as_int() const { return std::get_if<int64_t>(&variant_); }
  const double* as_double() const { return std::get_if<double>(&variant_); }
  const Big* as_big() const { return pointer<BigPtr>(); }
  const Undefined* as_undefined() const { return pointer<UndefinedPtr>(); }
  const Text* as_text() const { return pointer<TextPtr>(); }
  const List* as_list() const { return pointer<ListPtr>(); }
  const Dict* as_dict() const { return pointer<DictPtr>(); }
  const Callable* as_callable() const { return pointer<CallablePtr>(); }
  Loop* as_loop() const { return pointer<LoopPtr>(); }
  Namespace* as_namespace() const {
    const auto* space = std::get_if<Namespace*>(&variant_);
    return space ? *space : nullptr;
  }
  // is_integer(): the value, with true as 1. is_number(): the value as a double, or fails for what is too large.
  int64_t integer() const { return as_bool() ? *as_bool() : *as_int(); }
  double number() const;

  // The same object, in the sense of Python's `is`.
  bool same_as(const Value& other, Meter& meter) const;
  int depth() const;  // of nested lists and dicts

 private:
  template <typename Pointer>
  typename Pointer::element_type* pointer() const {
    const auto* held = std::get_if<Pointer>(&variant_);
    return held ? held->get() : nullptr;
  }
  Variant variant_;
};

struct List {
  std::vector<Value> items;
  ListKind kind = ListKind::kList;
  int depth = 1;
  bool is_group = false;        // a tuple of the groupby filter, which also has names for its two items
  mutable size_t consumed = 0;  // kGenerator: items already walked over
  Held held;
};
std::shared_ptr<List> make_list(std::vector<Value> items, ListKind kind);

struct Dict {
  std::vector<std::pair<Value, Value>> items;             // in order of insertion
  std::unordered_multimap<size_t, size_t> index_by_hash;  // only where there are many items; the hashes are keyed
  int depth = 1;
  Held held;

  // nullptr where there is none; an unhashable key fails.
  const Value* find(const Value& key, Meter& meter) const;
  const Value* find(const Value& key, size_t hash, Meter& meter) const;
  const Value* find(std::string_view key, Meter& meter) const;
};

struct Namespace {
  std::map<std::string, Value, std::less<>> attributes;
  bool is_sealed = false;  // a template cannot set attributes: a cycler, self
  Held held;

  void set(std::string_view name, Value value);
};

// What a call passes, before it is bound to parameters.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Callable {
  std::string name;
  int depth = 0;  // of what it holds
  std::function<Value(Interpreter&, Arguments&)> call;
  Held held{kOverheadBytes};

  static constexpr size_t kOverheadBytes = 160;
};

const char* type_name(const Value& value);  // as Python calls it
bool is_true(const Value& value);
bool equals(const Value& left, const Value& right, Meter& meter);
// Below, equal, above zero; fails for values without an order between them.
int compare(const Value& left, const Value& right, Meter& meter);
// Under the process's key, so that nobody can choose values that collide; fails for what Python cannot hash.
size_t hash_of(const Value& value, Meter& meter);
size_t hash_of(std::string_view text, Meter& meter);  // as that of a string value

}  // namespace llmrt::jinja
