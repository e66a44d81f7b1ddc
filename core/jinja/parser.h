// Tokens to tree: the grammar of Jinja 3.1 with the extensions that Hugging Face turns on (break and continue,
// generation blocks). What is not supported fails by its name.
#pragma once

#include <string_view>

#include "core/jinja/ast.h"

namespace llmrt::jinja {

// Throws TemplateError.
Template parse(std::string_view source);

}  // namespace llmrt::jinja
