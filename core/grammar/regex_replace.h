// A text in place of each byte of a language. One thread, that of the pool.
#pragma once

#include <array>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/grammar/regex_pool.h"

namespace llmrt {

class ByteReplacer {
 public:
  // No text is empty or the beginning of another one, and a digit's text is the digit. The pool and the texts outlive
  // it.
  ByteReplacer(RegexPool* pool, const std::array<std::string, 256>& texts) : pool_(*pool), texts_(texts) {}

  // The texts of `a` with texts[b] in place of each byte b. What was made is remembered.
  RegexId replace(RegexId a);

 private:
  struct Done {
    RegexId texts;
    bool is_complement;  // then `texts` has what is no image, too: beside an image in a conjunction it may
  };
  RegexId image(const ByteSet& set);
  RegexId all();
  RegexId of(RegexId id);
  RegexId rewritten(RegexId id, const RegexPool::Form& form);

  RegexPool& pool_;
  const std::array<std::string, 256>& texts_;
  RegexId all_ = RegexPool::kNothing;  // every image, when it is first asked for
  std::unordered_map<RegexId, Done> done_;
};

}  // namespace llmrt
