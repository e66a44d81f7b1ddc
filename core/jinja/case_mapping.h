// Full case mapping of single characters, as Python's str.upper, lower and title have it.
#pragma once

#include <string>

namespace llmrt::jinja {

void append_upper(std::string& out, char32_t code_point);
void append_title(std::string& out, char32_t code_point);
void append_lower(std::string& out, char32_t code_point);  // without the rule for a final sigma
bool is_upper_case(char32_t code_point);
bool is_lower_case(char32_t code_point);
bool is_title_case(char32_t code_point);  // letters such as U+01C5, between upper and lower
// Characters that the rule for a final sigma looks through.
bool is_case_ignorable(char32_t code_point);

}  // namespace llmrt::jinja
