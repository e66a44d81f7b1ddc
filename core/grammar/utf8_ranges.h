// Ranges of code points as sequences of byte ranges in UTF-8. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace llmrt {

using Utf8Sequence = std::vector<std::pair<uint8_t, uint8_t>>;  // a range for each byte, both ends inside

// Of disjoint or overlapping ranges in any order; surrogates and what is beyond U+10FFFF are left out.
std::vector<Utf8Sequence> utf8_sequences(std::span<const std::pair<char32_t, char32_t>> ranges);
// The ranges in order, none touching the next.
std::vector<std::pair<char32_t, char32_t>> merge_ranges(std::span<const std::pair<char32_t, char32_t>> ranges);
// All other code points, without surrogates.
std::vector<std::pair<char32_t, char32_t>> other_ranges(std::span<const std::pair<char32_t, char32_t>> ranges);

}  // namespace llmrt
