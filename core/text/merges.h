// The merge rules of byte-pair encoding, and the loop that applies them: always the best-ranked pair, the leftmost of
// equals, until none is left.
#pragma once

#include <cstdint>
#include <vector>

#include "core/text/tokenizer.h"

namespace llmrt {

class MergeTable {
 public:
  struct Rule {
    uint32_t rank;
    TokenId merged;
  };

  explicit MergeTable(size_t num_rules = 0);
  // A pair given twice keeps the later rule.
  void set(TokenId left, TokenId right, Rule rule);
  // nullptr: the pair does not merge.
  const Rule* find(TokenId left, TokenId right) const;

  // Merges within `word` in place. Quadratic for short words, n log n for long ones.
  void merge(std::vector<TokenId>& word) const;

 private:
  struct Slot {
    uint64_t key;
    Rule rule;
  };
  size_t slot_of(uint64_t key) const;
  void merge_short(std::vector<TokenId>& word) const;
  void merge_long(std::vector<TokenId>& word) const;

  std::vector<Slot> slots_;  // open addressing, at most half full
  int shift_;
};

}  // namespace llmrt
