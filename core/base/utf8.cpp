#include "core/base/utf8.h"

#include <cstdint>
#include <cstring>

namespace llmrt {

Utf8Step decode_utf8(std::string_view text, size_t pos) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[pos + i]); };
  const size_t available = text.size() - pos;
  const uint8_t lead = byte(0);
  if (lead < 0x80) {
    return {lead, 1, Utf8State::kValid};
  }
  size_t length = 0;
  // The second byte's range keeps out overlong forms, surrogates and values beyond U+10FFFF.
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  char32_t code_point = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
    code_point = lead & 0x1F;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    code_point = lead & 0x0F;
    low = lead == 0xE0 ? 0xA0 : 0x80;
    high = lead == 0xED ? 0x9F : 0xBF;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    code_point = lead & 0x07;
    low = lead == 0xF0 ? 0x90 : 0x80;
    high = lead == 0xF4 ? 0x8F : 0xBF;
  } else {
    return {kReplacementCharacter, 1, Utf8State::kInvalid};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i == available) {
      return {kReplacementCharacter, i, Utf8State::kIncomplete};
    }
    if (byte(i) < low || byte(i) > high) {
      return {kReplacementCharacter, i, Utf8State::kInvalid};
    }
    code_point = code_point << 6 | (byte(i) & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {code_point, length, Utf8State::kValid};
}

bool is_ascii(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if (word & 0x8080808080808080ull) {
      return false;
    }
  }
  for (; i < text.size(); ++i) {
    if (text[i] & 0x80) {
      return false;
    }
  }
  return true;
}

bool is_valid_utf8(std::string_view text) {
  if (is_ascii(text)) {
    return true;
  }
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = decode_utf8(text, pos);
    if (step.state != Utf8State::kValid) {
      return false;
    }
    pos += step.num_bytes;
  }
  return true;
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = decode_utf8(text, pos);
    if (step.state == Utf8State::kValid) {
      out.append(text.substr(pos, step.num_bytes));
    } else {
      append_utf8(out, kReplacementCharacter);
    }
    pos += step.num_bytes;
  }
  return out;
}

}  // namespace llmrt
