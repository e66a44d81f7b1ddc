// The merge rules of byte-pair encoding, and the loop that applies them: always the best-ranked pair, the leftmost of
// equals, until none is left.
#pragma once

#include <cstdint>
#include <vector>

#include "core/text/encode_limit.h"
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
  // After the last set: makes sure that no pair is far from its slot, whatever pairs a file has chosen.
  void settle();
  // nullptr: the pair does not merge.
  const Rule* find(TokenId left, TokenId right) const {
    const Slot& slot = slots_[slot_of(pair_key(left, right))];
    return slot.key == kNoKey ? nullptr : &slot.rule;
  }

  // Merges within `word` in place; stops early, at any state, once `limit` is cancelled. Quadratic for short words,
  // n log n for long ones.
  void merge(std::vector<TokenId>& word, const EncodeLimit& limit = {}) const;

 private:
  struct Slot {
    uint64_t key;
    Rule rule;
  };
  static constexpr uint64_t kNoKey = ~0ull;

  static uint64_t pair_key(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    size_t slot = (key ^ key_) * multiplier_ >> shift_;
    while (slots_[slot].key != key && slots_[slot].key != kNoKey) {
      slot = (slot + 1) & mask;
    }
    return slot;
  }
  void draw_key();
  size_t longest_run() const;
  void merge_short(std::vector<TokenId>& word) const;
  template <typename Queue>
  void merge_long(std::vector<TokenId>& word, Queue& queue, const EncodeLimit& limit) const;

  // Open addressing, at most half full, by a hash with a secret key that is cheaper than SipHash, as find() is what
  // encoding spends its time on. Two multiplications with a secret factor would not hold against somebody who watches
  // the table, but the pairs are chosen before the key is drawn, and settle() sees the outcome: where the longest run
  // of slots in use is not short, another key is drawn. No search is longer than such a run.
  std::vector<Slot> slots_;
  int shift_;
  uint64_t key_ = 0, multiplier_ = 1;
  uint64_t num_keys_drawn_ = 0;
  uint32_t num_ranks_ = 0;
};

}  // namespace llmrt
