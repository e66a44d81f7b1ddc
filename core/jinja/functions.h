// The functions that every template can call: range, dict, namespace, raise_exception, strftime_now.
#pragma once

#include <optional>
#include <string_view>

#include "core/jinja/value.h"

namespace llmrt::jinja {

// nullopt: none of that name. One of Jinja's that is not supported fails by its name when it is called.
std::optional<Value> find_function(std::string_view name);

}  // namespace llmrt::jinja
