// Python's string formatting: '%s' % x, '{}'.format(x) and padding. What is filled in keeps its origin.
#pragma once

#include "core/jinja/value.h"

namespace llmrt::jinja {

// `values`: a tuple, a dict for %(name)s, or a single value.
Text percent_format(const Text& format, const Value& values, Meter& meter);
Text brace_format(Interpreter& interpreter, const Text& format, const Arguments& arguments);

// `align`: '<', '>' or '^'. `fill` must be one character.
Text pad(const Text& text, int64_t width, const Text& fill, char align, Meter& meter);

}  // namespace llmrt::jinja
