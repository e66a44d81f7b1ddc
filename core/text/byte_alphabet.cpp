#include "core/text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "core/base/utf8.h"

namespace llmrt {
namespace {

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int16_t, 0x144> bytes;  // by code point; -1: not of the alphabet

  Alphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;  // bytes without a printable Latin-1 character take the code points from here on
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      const char32_t code_point = printable ? static_cast<char32_t>(byte) : next++;
      append_utf8(characters[byte], code_point);
      bytes[code_point] = static_cast<int16_t>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

std::string_view byte_to_alphabet(unsigned char byte) {
  return alphabet().characters[byte];
}

std::optional<std::string> alphabet_to_bytes(std::string_view token) {
  const auto& bytes = alphabet().bytes;
  std::string out;
  for (size_t pos = 0; pos < token.size();) {
    const Utf8Step step = decode_utf8(token, pos);
    if (step.state != Utf8State::kValid || step.code_point >= bytes.size() || bytes[step.code_point] < 0) {
      return std::nullopt;
    }
    out.push_back(static_cast<char>(bytes[step.code_point]));
    pos += step.num_bytes;
  }
  return out;
}

}  // namespace llmrt
