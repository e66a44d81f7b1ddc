// Expressions as far as a token reaches: counters beyond it are taken for endless ones. What begins so, and what is
// whole within so many bytes, is the same. States that differ only there have the same mask: in a string of at most
// 1000 characters it is made once, not at each length. One thread.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "core/grammar/regex_pool.h"

namespace llmrt {

class RegexReach {
 public:
  explicit RegexReach(uint32_t bytes) : bytes_(bytes) {}

  // Texts of at most so many bytes begin a text of the answer, and are one, exactly where they do and are of `a`. Only
  // for positive expressions (RegexPool::is_positive): others are left as they are.
  RegexId within(RegexPool* pool, RegexId a);
  size_t held_bytes() const { return within_.size() * kEntryBytes; }

 private:
  static constexpr size_t kEntryBytes = 32;  // of the map, about

  RegexId rewritten(RegexPool* pool, RegexId a, const RegexPool::Form& form) const;

  uint32_t bytes_;
  std::unordered_map<RegexId, RegexId> within_;
};

}  // namespace llmrt
