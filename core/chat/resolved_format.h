// A chat format over a vocabulary: which of its texts are tokens there. An answer is read as units: bytes, and tokens
// of the format. Where the vocabulary has a token, text that spells it with other tokens is no mark.
//
// Immutable once made; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/chat/chat_format.h"

namespace llmrt {

using Unit = char32_t;  // a byte, or kFirstToken + index of a token
using Units = std::u32string;
inline constexpr Unit kFirstToken = 256;
inline bool is_byte(Unit unit) {
  return unit < kFirstToken;
}

// The special token that a text spells whole; -1: none.
using FindToken = std::function<int32_t(std::string_view)>;
// Control and user-defined tokens of a vocabulary. Lives as long as the tokenizer.
FindToken marker_tokens(const Tokenizer& tokenizer);

struct ResolvedFormat {
  struct Token {
    std::string text;
    int32_t id;
    bool is_stop = false;
    bool is_thought = false;  // part of a thought's mark
  };
  const ChatFormat* format = nullptr;
  std::vector<Token> tokens;
  std::unordered_map<int32_t, Unit> unit_of;  // by token id

  const Token& token(Unit unit) const { return tokens[unit - kFirstToken]; }
  bool is_stop(Unit unit) const { return !is_byte(unit) && token(unit).is_stop; }
  // A mark as it must be written: longest tokens first.
  Units units(std::string_view mark) const;
  // The mark holds a token: then it cannot stand in plain text.
  bool has_token(std::string_view mark) const;
  std::string text(Unit unit) const {
    return is_byte(unit) ? std::string(1, static_cast<char>(unit)) : token(unit).text;
  }
  std::string text(const Units& units) const;
};

ResolvedFormat resolve_format(const ChatFormat& format, const FindToken& find_token);

}  // namespace llmrt
