// The formats of JSON Schema as regular expressions over a string's characters. Sources: RFC 3339 (dates, durations; a
// leap second only in UTC), RFC 5321 (email), RFC 1123 (hostname, without punycode labels), RFC 2673 and 4291 (ip), RFC
// 9562 (uuid), RFC 3986 (uri), RFC 6570 (uri-template), RFC 6901 and the draft of relative JSON pointers, ECMA-262
// (regex: groups nested to a depth of 3, without look-around, back-references, named groups and properties).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/grammar/regex_pool.h"

namespace llmrt {

// What a draft since 4 says of a format's name.
enum class FormatKind : uint8_t {
  kUnknown,      // nothing
  kNotEnforced,  // something that is not written here
  kPartial,      // the expression leaves out some texts: it stands for no complement
  kWhole,
};
FormatKind format_kind(std::string_view name);
// Nothing for a name that is not enforced.
std::optional<RegexId> format_regex(RegexPool* pool, std::string_view name);
std::span<const std::string_view> format_names();

}  // namespace llmrt
