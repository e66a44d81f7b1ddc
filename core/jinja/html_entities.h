// Character references of HTML 5 to the characters that they stand for, as Python's html.unescape reads them.
#pragma once

#include "core/jinja/text.h"

namespace llmrt::jinja {

// What a reference becomes has the origin of the reference's first byte.
Text unescape_html(const Text& text, Meter& meter);

}  // namespace llmrt::jinja
