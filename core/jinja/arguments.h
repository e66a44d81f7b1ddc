// Binds the arguments of a call to a function's parameters.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "core/jinja/value.h"

namespace llmrt::jinja {

class Parameters {
 public:
  // Fails for too many arguments, for an unknown or doubled name, and where one of the first `num_required` is missing.
  Parameters(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names,
             size_t num_required = 0);

  bool has(size_t i) const { return values_[i] != nullptr; }
  // none where it was not given.
  const Value& operator[](size_t i) const;

  // Arguments of the expected type, or a failure; `otherwise` where it was not given.
  int64_t integer(size_t i, int64_t otherwise) const;
  bool flag(size_t i, bool otherwise) const;  // any value's truth
  const Text& text(size_t i) const;           // must have been given

 private:
  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

}  // namespace llmrt::jinja
