// A text in place of each byte of a language.
#pragma once

#include <span>
#include <string>

#include "core/grammar/regex_pool.h"

namespace llmrt {

// The texts of `a` with texts[b] in place of each byte b. No text is empty or the beginning of another one, and a
// digit's text is the digit.
RegexId with_bytes_replaced(RegexPool* pool, RegexId a, std::span<const std::string, 256> texts);

}  // namespace llmrt
