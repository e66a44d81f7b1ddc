#include "core/jinja/loop.h"

#include <utility>

namespace llmrt::jinja {

const Value* Loop::peek() {
  while (ahead_begin_ == ahead_.size()) {
    if (next_ == items_.size()) {
      return nullptr;
    }
    const Value& item = items_[next_++];
    if (!filter_ || filter_(item)) {
      ahead_.assign(1, item);
      ahead_begin_ = 0;
    }
  }
  return &ahead_[ahead_begin_];
}

bool Loop::next() {
  const Value* item = peek();
  if (!item) {
    return false;
  }
  previous_ = std::exchange(current_, *item);
  ++ahead_begin_;
  ++index0_;
  return true;
}

int64_t Loop::length() {
  for (; next_ < items_.size(); ++next_) {
    if (!filter_ || filter_(items_[next_])) {
      ahead_.push_back(items_[next_]);
    }
  }
  return index0_ + 1 + static_cast<int64_t>(ahead_.size() - ahead_begin_);
}

std::optional<Value> Loop::attribute(std::string_view name) {
  if (name == "index") {
    return Value(index0_ + 1);
  }
  if (name == "index0") {
    return Value(index0_);
  }
  if (name == "first") {
    return Value(index0_ == 0);
  }
  if (name == "last") {
    return Value(peek() == nullptr);
  }
  if (name == "length") {
    return Value(length());
  }
  if (name == "revindex") {
    return Value(length() - index0_);
  }
  if (name == "revindex0") {
    return Value(length() - index0_ - 1);
  }
  if (name == "previtem") {
    return index0_ > 0 && previous_ ? *previous_ : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    const Value* item = peek();
    return item ? *item : Value::undefined("there is no next item");
  }
  if (name == "depth") {
    return Value(static_cast<int64_t>(depth_ + 1));
  }
  if (name == "depth0") {
    return Value(static_cast<int64_t>(depth_));
  }
  return std::nullopt;
}

Value Loop::recurse(const Value& items) const {
  if (!recurse_) {
    fail("the loop must have the 'recursive' marker to be called recursively");
  }
  return recurse_(items);
}

Value Loop::cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) {
    fail("no items for cycling given");
  }
  return arguments.positional[static_cast<size_t>(index0_) % arguments.positional.size()];
}

bool Loop::changed(const Arguments& arguments, Meter& meter) {
  if (closed_) {
    fail("changed() of a loop that is over");
  }
  Value now = Value::list(arguments.positional, ListKind::kTuple);
  if (last_changed_ && equals(*last_changed_, now, meter)) {
    return false;
  }
  last_changed_ = std::move(now);
  return true;
}

void Loop::close() {
  closed_ = true;
  filter_ = nullptr;
  recurse_ = nullptr;
  items_.clear();
  next_ = 0;
  ahead_.clear();
  ahead_begin_ = 0;
  last_changed_.reset();
}

}  // namespace llmrt::jinja
