// Which names somebody may have meant. Pure; bounded in time whatever is given.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace llmrt {

// At most `count` of `names`, the nearest first: without regard to case those that begin like `name` or hold it, then
// those that differ by few letters. Empty when none is near.
std::vector<std::string> near_names(std::string_view name, const std::vector<std::string>& names, size_t count);

}  // namespace llmrt
