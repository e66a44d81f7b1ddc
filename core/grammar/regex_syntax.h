// Regular expressions as ECMA-262 writes them with the u flag, which is what JSON Schema asks for, as expressions of a
// pool. Lazy quantifiers describe the same texts as greedy ones. \d and \w are ASCII. Refused by name, with the offset:
// look-around, back-references, word boundaries, anchors inside repeated groups, properties other than general
// categories and scripts. Beyond the u flag, a backslash before punctuation always takes it as it is.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/status.h"
#include "core/grammar/regex_pool.h"

namespace llmrt {

struct RegexSyntax {
  // The expression is the whole text; else it may be found anywhere in it, as JSON Schema's `pattern`.
  bool anchored = false;
};

inline constexpr size_t kPatternBytesMax = 64u << 10;
inline constexpr uint32_t kPatternNestingMax = 64;
inline constexpr uint32_t kPatternRepetitionMax = 1024;        // of anything
inline constexpr uint32_t kCharacterRepetitionMax = 1u << 31;  // of one character

// kInvalidArgument where it is no regular expression, kUnsupportedSchema where it is one that is refused.
Result<RegexId> parse_regex(RegexPool* pool, std::string_view pattern, const RegexSyntax& options);

}  // namespace llmrt
