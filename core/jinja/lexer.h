// Template source to tokens, with Jinja's whitespace control as Hugging Face sets it: trim_blocks and lstrip_blocks on,
// one trailing newline dropped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/jinja/error.h"

namespace llmrt::jinja {

enum class TokenKind {
  kData,           // text between tags
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,  // its value, escapes resolved
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;  // data, name, string value, operator, or the digits of an integer
  int base = 10;     // of these
  double number = 0;
  Position at;
};

// Fails with kCorruptFile where the source breaks the syntax. The last token is kEnd.
std::vector<Token> tokenize(std::string_view source);

// Whitespace as Python's str.isspace and the regular expression \s have it.
bool is_space(char32_t code_point);

}  // namespace llmrt::jinja
