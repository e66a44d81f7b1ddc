// The work that one rendering may do. Everything that loops or copies pays here first, so a hostile template ends with
// an error instead of the process's time or memory.
#pragma once

#include <cstddef>

#include "core/text/jinja/error.h"

namespace llmrt::jinja {

inline constexpr size_t kStepsMax = 1'000'000;
inline constexpr size_t kTextBytesMax = 16 << 20;  // of the output, and of any string on the way
inline constexpr int kNestingMax = 64;             // of blocks, brackets, macro calls, lists and dicts
inline constexpr int kTreeDepthMax = 512;          // of an expression such as a + b + c + ...
inline constexpr size_t kBytesPerStep = 512;

class Meter {
 public:
  void charge(size_t steps) {
    if (steps > kStepsMax - steps_) {
      fail("limit of {} steps exceeded", kStepsMax);
    }
    steps_ += steps;
  }
  // Before `bytes` are copied, searched or compared.
  void charge_bytes(size_t bytes) { charge(bytes / kBytesPerStep); }
  // Before a string of `bytes` is made.
  void charge_text(size_t bytes) {
    if (bytes > kTextBytesMax) {
      fail("limit of {} bytes of text exceeded", kTextBytesMax);
    }
    charge_bytes(bytes);
  }

 private:
  size_t steps_ = 0;
};

}  // namespace llmrt::jinja
