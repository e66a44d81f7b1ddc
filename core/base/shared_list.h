// A list that its copies share: copying it costs a pointer, however long it is. Who changes one that others have gets
// one of its own first.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace llmrt {

template <typename T>
class SharedList {
 public:
  SharedList() = default;
  SharedList(std::initializer_list<T> items) : SharedList(std::vector<T>(items)) {}
  SharedList(std::vector<T> items) {  // NOLINT(google-explicit-constructor): a list is one
    if (!items.empty()) items_ = std::make_shared<std::vector<T>>(std::move(items));
  }

  bool empty() const { return size() == 0; }
  size_t size() const { return items_ ? items_->size() : 0; }
  const T* data() const { return items_ ? items_->data() : nullptr; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  const T& operator[](size_t i) const { return (*items_)[i]; }

  void push_back(T item) { own().push_back(std::move(item)); }
  template <typename... Args>
  void emplace_back(Args&&... args) {
    own().emplace_back(std::forward<Args>(args)...);
  }
  void assign(size_t count, const T& item) { items_ = std::make_shared<std::vector<T>>(count, item); }
  void clear() { items_ = nullptr; }

  // Without what its items themselves hold.
  size_t held_bytes() const { return items_ ? sizeof *items_ + items_->capacity() * sizeof(T) : 0; }
  bool shares_with(const SharedList& other) const { return items_ == other.items_; }

  friend bool operator==(const SharedList& a, const SharedList& b) { return a.items() == b.items(); }
  friend bool operator==(const SharedList& a, const std::vector<T>& b) { return a.items() == b; }

 private:
  const std::vector<T>& items() const {
    static const std::vector<T> kNone;
    return items_ ? *items_ : kNone;
  }
  // A use count of 1 stays 1 meanwhile: only a holder can make another one.
  std::vector<T>& own() {
    if (!items_ || items_.use_count() > 1) items_ = std::make_shared<std::vector<T>>(items());
    return *items_;
  }

  std::shared_ptr<std::vector<T>> items_;  // null: none
};

}  // namespace llmrt
