// Token bytes to valid UTF-8, one stream at a time: bytes that may still become a character are held until they do.
// Not thread-safe; one per stream. Invalid sequences become U+FFFD (maximal subpart practice), at the latest at flush.
#pragma once

#include <string>
#include <string_view>

namespace llmrt {

class Utf8Assembler {
 public:
  // Appends `bytes`; returns the text that is now whole (possibly empty).
  std::string push(std::string_view bytes);
  // The end: what is held and never became a character is replaced by U+FFFD.
  std::string flush();
  size_t held_bytes() const { return held_.size(); }

 private:
  std::string held_;  // at most 3 bytes
};

// Characters of a text that comes in pieces, as Utf8Assembler shows it. One that is not whole yet counts.
class CharacterCount {
 public:
  void push(std::string_view bytes);
  size_t value() const { return num_whole_ + (utf8_.held_bytes() > 0 ? 1 : 0); }

 private:
  Utf8Assembler utf8_;
  size_t num_whole_ = 0;
};

}  // namespace llmrt
