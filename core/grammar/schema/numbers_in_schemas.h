// Integers and single numbers as sets by value, with the texts that may be written (numbers.h has the others).
#pragma once

#include <string_view>

#include "core/grammar/regex_pool.h"
#include "core/grammar/schema/shape.h"

namespace llmrt {

NumberSet integer_numbers(RegexPool* pool);
// One number, given as json_number_text writes it.
NumberSet one_number(RegexPool* pool, std::string_view decimal);

}  // namespace llmrt
