// The `loop` variable of a for loop, and its walk over the items. The loop's own filter runs lazily, one item ahead at
// most, as Jinja does: its condition may look at what the body has changed.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "core/jinja/value.h"

namespace llmrt::jinja {

class Loop {
 public:
  using Filter = std::function<bool(const Value&)>;
  using Recurse = std::function<Value(const Value&)>;
  // `filter` may be empty; `recurse` renders the body for inner items, and is empty for a loop that is not recursive.
  Loop(std::vector<Value> items, Filter filter, Recurse recurse, int depth)
      : items_(std::move(items)), filter_(std::move(filter)), recurse_(std::move(recurse)), depth_(depth) {
    for (const Value& item : items_) {
      items_depth_ = std::max(items_depth_, item.depth() + 1);
    }
    if (items_depth_ > kNestingMax) {
      fail("expected at most {} nested lists and dicts, found more", kNestingMax);
    }
  }

  // Moves on to the next item; false at the end.
  bool next();
  const Value& current() const { return *current_; }
  // An attribute such as loop.index; nullopt where there is none of that name.
  std::optional<Value> attribute(std::string_view name);
  Value recurse(const Value& items) const;
  Value cycle(const Arguments& arguments) const;
  // Fails once the loop is over: what it remembered from then on could be the loop itself, or a chain of any length.
  bool changed(const Arguments& arguments, Meter& meter);
  // The loop is over: what is left of the items is dropped, and so is what refers to the loop's surroundings.
  void close();
  int items_depth() const { return items_depth_; }  // as Value::depth

 private:
  const Value* peek();  // nullptr at the end
  int64_t length();

  std::vector<Value> items_;
  size_t next_ = 0;  // the first of items_ that the filter has not seen
  Filter filter_;
  Recurse recurse_;
  std::vector<Value> ahead_;  // passed the filter, in order
  size_t ahead_begin_ = 0;
  std::optional<Value> current_;
  std::optional<Value> previous_;
  std::optional<Value> last_changed_;
  bool closed_ = false;
  int64_t index0_ = -1;
  int depth_;  // of recursive loops
  int items_depth_ = 1;
  Held held_{160};  // its items belong to others, or are few
};

}  // namespace llmrt::jinja
