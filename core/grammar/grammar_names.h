// How grammar texts name single tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace llmrt {

struct GrammarNames {
  // The special token that a text such as <|im_end|> spells, or -1 (Tokenizer::find_special).
  std::function<int32_t(std::string_view)> find_special;
  uint32_t vocabulary_size = 0;
};

inline constexpr uint32_t kGrammarNestingMax = 128;      // of groups in a grammar's text
inline constexpr uint32_t kGrammarRepetitionMax = 1024;  // of a group; of one character any number
inline constexpr size_t kGrammarTextBytesMax = 256u << 10;

}  // namespace llmrt
