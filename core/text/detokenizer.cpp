#include "core/text/detokenizer.h"

#include <algorithm>

#include "core/base/utf8.h"

namespace llmrt {

std::string Utf8Assembler::push(std::string_view bytes) {
  std::string joined;
  if (!held_.empty()) {
    joined = held_.append(bytes);
    held_.clear();
    bytes = joined;
  }
  if (is_ascii(bytes)) {
    return std::string(bytes);
  }
  std::string out;
  out.reserve(bytes.size());
  for (size_t pos = 0; pos < bytes.size();) {
    const Utf8Step step = decode_utf8(bytes, pos);
    if (step.state == Utf8State::kIncomplete) {
      held_.assign(bytes.substr(pos));
      break;
    }
    if (step.state == Utf8State::kValid) {
      out.append(bytes.substr(pos, step.num_bytes));
    } else {
      append_utf8(out, kReplacementCharacter);
    }
    pos += step.num_bytes;
  }
  return out;
}

std::string Utf8Assembler::flush() {
  std::string out;
  if (!held_.empty()) {
    append_utf8(out, kReplacementCharacter);  // what is held is one maximal subpart
    held_.clear();
  }
  return out;
}

void CharacterCount::push(std::string_view bytes) {
  const std::string whole = utf8_.push(bytes);
  num_whole_ += static_cast<size_t>(
      std::ranges::count_if(whole, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace llmrt
