#include "core/jinja/arguments.h"

#include <algorithm>

#include "core/jinja/operators.h"

namespace llmrt::jinja {

Parameters::Parameters(std::string_view function, const Arguments& arguments,
                       std::initializer_list<std::string_view> names, size_t num_required)
    : function_(function), names_(names), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names.size()) {
    fail("{}: expected at most {} arguments, found {}", function, names.size(), arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    values_[i] = &arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::ranges::find(names_, name);
    if (found == names_.end()) {
      fail_about(name, "{}: unexpected keyword argument", function);
    }
    const Value*& slot = values_[static_cast<size_t>(found - names_.begin())];
    if (slot) {
      fail("{}: got two values for the argument '{}'", function, name);
    }
    slot = &value;
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (!values_[i]) {
      fail("{}: missing argument '{}'", function, names_[i]);
    }
  }
}

const Value& Parameters::operator[](size_t i) const {
  static const Value kNone;
  return values_[i] ? *values_[i] : kNone;
}

int64_t Parameters::integer(size_t i, int64_t otherwise) const {
  if (!has(i)) {
    return otherwise;
  }
  if (values_[i]->as_big()) {
    fail("{}: argument '{}': expected an integer of at most 64 bits, found a larger one", function_, names_[i]);
  }
  if (!values_[i]->is_integer()) {
    require_defined(*values_[i]);
    fail("{}: argument '{}': expected an integer, found {}", function_, names_[i], type_name(*values_[i]));
  }
  return values_[i]->integer();
}

bool Parameters::flag(size_t i, bool otherwise) const {
  return has(i) ? is_true(*values_[i]) : otherwise;
}

const Text& Parameters::text(size_t i) const {
  const Text* text = (*this)[i].as_text();
  if (!text) {
    require_defined((*this)[i]);
    fail("{}: argument '{}': expected a string, found {}", function_, names_[i], type_name((*this)[i]));
  }
  return *text;
}

}  // namespace llmrt::jinja
