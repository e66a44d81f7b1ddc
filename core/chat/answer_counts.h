// What a parser of answers did that the format's own grammar would not need: tolerances used, and what failed. Adds up
// per format.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace llmrt {

enum class Oddity : uint8_t {
  kMissingClose,    // the answer ended, or went on, without the end marks of a call
  kMissingOpen,     // a call without the mark that opens it
  kExtraClose,      // an end mark where nothing was open
  kQuotedArgs,      // arguments as a string of JSON
  kWrapper,         // {"type": "function", "function": {...}}
  kRepeatedKey,     // of one call; the first counts
  kWrongType,       // a value that is none of its declared types became a string
  kBrokenArgs,      // delivered, but no JSON object
  kBrokenCall,      // no call: its text went to the content
  kUndeclaredName,  // delivered all the same
  kDroppedCall,     // one too many, or for a recipient that does not exist
  kDroppedText,     // text that repeats the call before it, or a message without a known recipient
  kBrokenHeader,
};
inline constexpr size_t kNumOddities = 13;
// Lower snake case.
std::string_view oddity_name(Oddity oddity);

struct AnswerCounts {
  std::array<uint32_t, kNumOddities> of = {};
  uint32_t operator[](Oddity oddity) const { return of[static_cast<size_t>(oddity)]; }
  void add(Oddity oddity) { ++of[static_cast<size_t>(oddity)]; }
};

}  // namespace llmrt
