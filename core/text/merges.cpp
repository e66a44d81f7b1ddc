#include "core/text/merges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/keyed_hash.h"
#include "core/text/rank_queue.h"

namespace llmrt {
namespace {

constexpr uint32_t kNoRank = ~0u;
constexpr size_t kShortWord = 40;    // up to here scanning beats a heap
constexpr size_t kLongMerge = 4096;  // from here on a list for each rank beats a heap
// A table of 2^20 pairs has runs of up to about 80 slots by chance.
constexpr size_t kRunMax = 512;
constexpr int kKeysMax = 64;                  // hashing at random, the first one serves
constexpr uint32_t kPopsBetweenLooks = 4096;  // at the flag that cancels

struct Symbol {
  TokenId id;  // -1: merged into its left neighbour
  int32_t previous;
  int32_t next;
};
struct Candidate {
  int32_t position;
  TokenId left;
  TokenId right;
};

}  // namespace

MergeTable::MergeTable(size_t num_rules) {
  const size_t capacity = std::bit_ceil(2 * num_rules + 2);
  slots_.assign(capacity, Slot{kNoKey, {kNoRank, -1}});
  shift_ = 64 - std::countr_zero(capacity);
  draw_key();
}

void MergeTable::draw_key() {
  const auto word = [this] {
    std::array<char, sizeof(num_keys_drawn_)> bytes;
    std::memcpy(bytes.data(), &++num_keys_drawn_, bytes.size());
    return siphash({bytes.data(), bytes.size()}, process_hash_key());
  };
  key_ = word();
  multiplier_ = word() | 1;
}

size_t MergeTable::longest_run() const {
  size_t longest = 0;
  size_t run = 0;
  for (const Slot& slot : slots_) {
    run = slot.key == kNoKey ? 0 : run + 1;
    longest = std::max(longest, run);
  }
  return longest;
}

void MergeTable::settle() {
  for (int i = 1; i < kKeysMax && longest_run() > kRunMax; ++i) {
    draw_key();
    std::vector<Slot> old(slots_.size(), Slot{kNoKey, {kNoRank, -1}});
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != kNoKey) {
        slots_[slot_of(slot.key)] = slot;
      }
    }
  }
}

void MergeTable::set(TokenId left, TokenId right, Rule rule) {
  const uint64_t key = pair_key(left, right);
  slots_[slot_of(key)] = {key, rule};
  num_ranks_ = std::max(num_ranks_, rule.rank + 1);
}

void MergeTable::merge(std::vector<TokenId>& word, const EncodeLimit& limit) const {
  if (word.size() <= 1) {
    return;
  }
  if (word.size() <= kShortWord) {
    return merge_short(word);
  }
  if (word.size() < std::max<size_t>(kLongMerge, num_ranks_ / 64)) {
    HeapQueue<Candidate> queue;
    return merge_long(word, queue, limit);
  }
  RankQueue<Candidate> queue(num_ranks_);
  merge_long(word, queue, limit);
}

void MergeTable::merge_short(std::vector<TokenId>& word) const {
  Rule rules[kShortWord];  // of the pair that begins at each symbol
  const auto rule_at = [&](size_t i) {
    const Rule* rule = i + 1 < word.size() ? find(word[i], word[i + 1]) : nullptr;
    return rule ? *rule : Rule{kNoRank, -1};
  };
  for (size_t i = 0; i < word.size(); ++i) {
    rules[i] = rule_at(i);
  }
  while (true) {
    size_t best = 0;
    for (size_t i = 1; i < word.size(); ++i) {
      if (rules[i].rank < rules[best].rank) {
        best = i;
      }
    }
    if (rules[best].rank == kNoRank) {
      return;
    }
    word[best] = rules[best].merged;
    word.erase(word.begin() + best + 1);
    for (size_t i = best + 1; i < word.size(); ++i) {
      rules[i] = rules[i + 1];
    }
    rules[best] = rule_at(best);
    if (best > 0) {
      rules[best - 1] = rule_at(best - 1);
    }
  }
}

template <typename Queue>
void MergeTable::merge_long(std::vector<TokenId>& word, Queue& queue, const EncodeLimit& limit) const {
  const auto size = static_cast<int32_t>(word.size());
  std::vector<Symbol> symbols(word.size());
  for (int32_t i = 0; i < size; ++i) {
    symbols[i] = {word[i], i - 1, i + 1 < size ? i + 1 : -1};
  }
  const auto offer = [&](int32_t position) {
    const int32_t next = position >= 0 ? symbols[position].next : -1;
    if (next >= 0) {
      if (const Rule* rule = find(symbols[position].id, symbols[next].id)) {
        queue.push(rule->rank, {position, symbols[position].id, symbols[next].id});
      }
    }
  };
  for (int32_t i = 0; i < size; ++i) {
    offer(i);
  }
  uint32_t num_pops = 0;
  for (Candidate candidate; queue.pop(&candidate);) {
    if (++num_pops % kPopsBetweenLooks == 0 && limit.is_cancelled()) {
      break;
    }
    Symbol& left = symbols[candidate.position];
    if (left.id != candidate.left || left.next < 0 || symbols[left.next].id != candidate.right) {
      continue;  // one of the two has merged since
    }
    Symbol& right = symbols[left.next];
    left.id = find(candidate.left, candidate.right)->merged;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) {
      symbols[left.next].previous = candidate.position;
    }
    offer(left.previous);
    offer(candidate.position);
  }
  word.clear();
  for (int32_t i = 0; i >= 0; i = symbols[i].next) {
    word.push_back(symbols[i].id);
  }
}

}  // namespace llmrt
