// What schemas ask of the languages of strings, numbers and names: all their texts, how many there are, and whether a
// text that was begun can always become one that is new.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/grammar/regex_pool.h"

namespace llmrt {

// More texts than an answer has room for.
inline constexpr uint32_t kAmple = 1u << 20;

// All texts of a language of at most `max`; nothing where it has more, or longer ones than a literal has any use for.
std::optional<std::vector<std::string>> list_texts(RegexPool* pool, RegexId regex, size_t max);

// How many texts it has, up to `most`; fewer where that cannot be told in time.
uint32_t count_texts(RegexPool* pool, RegexId regex, uint32_t most);

// Whether every beginning of a text that is no whole text can go on in endlessly many ways. False where that cannot be
// told in time.
bool is_never_stuck(RegexPool* pool, RegexId regex);

}  // namespace llmrt
