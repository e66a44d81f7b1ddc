#include "core/text/merges.h"

#include <bit>
#include <queue>

namespace llmrt {
namespace {

constexpr uint64_t kNoKey = ~0ull;
constexpr uint32_t kNoRank = ~0u;
constexpr size_t kShortWord = 40;  // up to here scanning beats a heap

uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(size_t num_rules) {
  const size_t capacity = std::bit_ceil(2 * num_rules + 2);
  slots_.assign(capacity, Slot{kNoKey, {kNoRank, -1}});
  shift_ = 64 - std::countr_zero(capacity);
}

size_t MergeTable::slot_of(uint64_t key) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = key * 0x9E3779B97F4A7C15ull >> shift_;
  while (slots_[slot].key != key && slots_[slot].key != kNoKey) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

void MergeTable::set(TokenId left, TokenId right, Rule rule) {
  const uint64_t key = pair_key(left, right);
  slots_[slot_of(key)] = {key, rule};
}

const MergeTable::Rule* MergeTable::find(TokenId left, TokenId right) const {
  const Slot& slot = slots_[slot_of(pair_key(left, right))];
  return slot.key == kNoKey ? nullptr : &slot.rule;
}

void MergeTable::merge(std::vector<TokenId>& word) const {
  if (word.size() <= 1) {
    return;
  }
  word.size() <= kShortWord ? merge_short(word) : merge_long(word);
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

void MergeTable::merge_long(std::vector<TokenId>& word) const {
  struct Symbol {
    TokenId id;  // -1: merged into its left neighbour
    int32_t previous;
    int32_t next;
  };
  struct Candidate {
    uint32_t rank;
    int32_t position;
    TokenId left;
    TokenId right;
    bool operator<(const Candidate& other) const {  // the queue gives the greatest first
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  const auto size = static_cast<int32_t>(word.size());
  std::vector<Symbol> symbols(word.size());
  std::vector<Candidate> initial;
  initial.reserve(word.size());
  for (int32_t i = 0; i < size; ++i) {
    symbols[i] = {word[i], i - 1, i + 1 < size ? i + 1 : -1};
    if (i + 1 < size) {
      if (const Rule* rule = find(word[i], word[i + 1])) {
        initial.push_back({rule->rank, i, word[i], word[i + 1]});
      }
    }
  }
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(initial));
  const auto offer = [&](int32_t position) {
    const int32_t next = position >= 0 ? symbols[position].next : -1;
    if (next >= 0) {
      if (const Rule* rule = find(symbols[position].id, symbols[next].id)) {
        queue.push({rule->rank, position, symbols[position].id, symbols[next].id});
      }
    }
  };
  while (!queue.empty()) {
    const Candidate candidate = queue.top();
    queue.pop();
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
