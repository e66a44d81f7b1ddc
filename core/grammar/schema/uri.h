// References between schemas (RFC 3986, section 5). Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace llmrt {

// `reference` as seen from `base`; an empty base leaves it as it is. The fragment stays.
std::string resolve_uri(std::string_view base, std::string_view reference);

// What stands before and behind the first '#'.
struct SplitUri {
  std::string_view document, fragment;
};
SplitUri split_fragment(std::string_view uri);

// %xx decoded; what is no such escape stays.
std::string percent_decoded(std::string_view text);

}  // namespace llmrt
