// Jinja's tests, the words behind `is`.
#pragma once

#include <string_view>

#include "core/jinja/ast.h"

namespace llmrt::jinja {

// nullptr: none of that name.
TestCall::Function find_test(std::string_view name);

}  // namespace llmrt::jinja
