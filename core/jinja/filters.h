// Jinja's filters, the functions behind '|'.
#pragma once

#include <span>
#include <string_view>

#include "core/jinja/ast.h"

namespace llmrt::jinja {

// nullptr: none of that name.
FilterCall::Function find_filter(std::string_view name);

struct NamedFilter {
  std::string_view name;
  FilterCall::Function function;
};
std::span<const NamedFilter> text_filters();      // text_filters.cpp: what makes text
std::span<const NamedFilter> layout_filters();    // layout_filters.cpp: what breaks and strips text
std::span<const NamedFilter> sequence_filters();  // sequence_filters.cpp: what walks over items
std::span<const NamedFilter> value_filters();     // filters.cpp: numbers and the rest

}  // namespace llmrt::jinja
