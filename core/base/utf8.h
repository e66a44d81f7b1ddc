// UTF-8 by hand: one decoder for the tokenizers, the stream assembler and the template engine. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace llmrt {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

enum class Utf8State { kValid, kInvalid, kIncomplete };

// One step of decoding. kInvalid and kIncomplete cover the maximal subpart (Unicode 3.9, the practice of Python's
// and Rust's lossy decoders): one U+FFFD stands for `num_bytes` bytes. kIncomplete: the text ended inside a sequence
// that further bytes could still complete.
struct Utf8Step {
  char32_t code_point;
  size_t num_bytes;  // at least 1
  Utf8State state;
};

// Decodes the sequence at `pos`, which must be inside `text`.
Utf8Step decode_utf8(std::string_view text, size_t pos);

bool is_ascii(std::string_view text);
bool is_valid_utf8(std::string_view text);
void append_utf8(std::string& out, char32_t code_point);
// `text` with U+FFFD in place of every maximal invalid subpart.
std::string replace_invalid_utf8(std::string_view text);

}  // namespace llmrt
