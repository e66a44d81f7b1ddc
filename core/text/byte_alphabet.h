// GPT-2's printable alphabet: each of the 256 bytes as one character, in which byte-level vocabularies are written.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace llmrt {

// The character (in UTF-8) that stands for `byte`.
std::string_view byte_to_alphabet(unsigned char byte);
// The bytes that `token` spells, or nullopt where a character is not of the alphabet.
std::optional<std::string> alphabet_to_bytes(std::string_view token);

}  // namespace llmrt
