// The stop strings of a request with the automaton that finds them. Copies share both; the automaton is made when it is
// first asked for.
#pragma once

#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/request/string_automaton.h"

namespace llmrt {

class StopStrings {
 public:
  StopStrings() = default;
  StopStrings(std::initializer_list<std::string> strings) : StopStrings(std::vector<std::string>(strings)) {}
  StopStrings(std::vector<std::string> strings) {  // NOLINT(google-explicit-constructor): a list is one
    if (!strings.empty()) texts_ = std::make_shared<const Texts>(std::move(strings));
  }

  const std::vector<std::string>& list() const {
    static const std::vector<std::string> kNone;
    return texts_ ? texts_->strings : kNone;
  }
  bool empty() const { return texts_ == nullptr; }
  size_t size() const { return list().size(); }
  auto begin() const { return list().begin(); }
  auto end() const { return list().end(); }
  const std::string& operator[](size_t i) const { return list()[i]; }

  template <typename... Args>
  void emplace_back(Args&&... args) {
    std::vector<std::string> strings = list();
    strings.emplace_back(std::forward<Args>(args)...);
    *this = StopStrings(std::move(strings));
  }
  void push_back(std::string string) { emplace_back(std::move(string)); }
  void assign(size_t count, const std::string& string) { *this = StopStrings(std::vector(count, string)); }
  void clear() { texts_ = nullptr; }

  // Null without strings. None of them is empty. Any thread.
  std::shared_ptr<const StringAutomaton> automaton() const {
    if (!texts_) return nullptr;
    std::call_once(texts_->is_made, [this] { texts_->automaton.emplace(texts_->strings); });
    return {texts_, &*texts_->automaton};
  }

  // The automaton counts even before it is made.
  size_t held_bytes() const;

  friend bool operator==(const StopStrings& a, const StopStrings& b) { return a.list() == b.list(); }
  friend bool operator==(const StopStrings& a, const std::vector<std::string>& b) { return a.list() == b; }

 private:
  struct Texts {
    explicit Texts(std::vector<std::string> from) : strings(std::move(from)) {}
    const std::vector<std::string> strings;
    mutable std::once_flag is_made;
    mutable std::optional<StringAutomaton> automaton;
  };
  std::shared_ptr<const Texts> texts_;  // null: none
};

}  // namespace llmrt
