// Names for answers and requests. They are shown to clients, so they come from a key of their own: whoever collects
// them learns nothing of other ids, nor of the numbers that seeds are made from. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace llmrt::server {

// `begin` and 32 hexadecimal digits; a new one at each call.
std::string make_id_of(std::string_view begin);
// The same with "PREFIX-" before them.
std::string make_id(std::string_view prefix);
// That many letters and digits, at most 20; a new one at each call.
std::string make_bare_id(size_t length);

}  // namespace llmrt::server
