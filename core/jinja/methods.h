// The methods of strings, lists and dicts that a template may call. What changes a list or dict is not allowed, as in
// Hugging Face's sandbox.
#pragma once

#include <optional>
#include <string_view>

#include "core/jinja/value.h"

namespace llmrt::jinja {

using Method = Value (*)(Interpreter&, const Value& self, Arguments&);

// nullptr: no method of that name, or none that may be called.
Method find_method(const Value& object, std::string_view name);
// The method as a value; undefined where it is forbidden; nullopt where the type has none of that name. A method of
// Python's that is not supported fails by its name.
std::optional<Value> bind_method(const Value& object, std::string_view name);

}  // namespace llmrt::jinja
