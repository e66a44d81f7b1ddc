// Lists in headers as RFC 9110 writes them: elements between commas, parameters behind semicolons, quoted strings.
// Pure.
#pragma once

#include <string_view>

namespace llmrt::server {

// Cuts off what stands before the next separator that is not in quotes, and the separator; without blanks around it.
std::string_view cut_element(std::string_view* rest, char separator);
// Whatever the case.
bool same_word(std::string_view a, std::string_view b);
// The value of a parameter q, 0 to 1. A broken one is 0: as if the element were not there.
double parse_weight(std::string_view value);

}  // namespace llmrt::server
