// Lists of words, each kept once and known by a number that counts from 0. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace llmrt {

class WordInterner {
 public:
  WordInterner() : table_(64, kNone) {}

  // The number of the list; a new one is the size() from before.
  uint32_t intern(std::span<const uint32_t> words) {
    if (2 * (size() + 1) > table_.size()) grow();
    for (size_t i = hash(words) & (table_.size() - 1);; i = (i + 1) & (table_.size() - 1)) {
      if (table_[i] == kNone) {
        table_[i] = size();
        words_.insert(words_.end(), words.begin(), words.end());
        ends_.push_back(words_.size());
        return table_[i];
      }
      if (std::ranges::equal((*this)[table_[i]], words)) return table_[i];
    }
  }
  // Until the next intern.
  std::span<const uint32_t> operator[](uint32_t id) const {
    const size_t begin = id == 0 ? 0 : ends_[id - 1];
    return std::span(words_).subspan(begin, ends_[id] - begin);
  }
  uint32_t size() const { return static_cast<uint32_t>(ends_.size()); }
  size_t held_bytes() const { return 4 * (words_.capacity() + table_.capacity()) + 8 * ends_.capacity(); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  static size_t hash(std::span<const uint32_t> words) {
    uint64_t h = 0x9e3779b97f4a7c15u ^ words.size();
    for (const uint32_t word : words) {
      h = (h ^ word) * 0xff51afd7ed558ccdu;
      h ^= h >> 32;
    }
    return h;
  }
  void grow() {
    table_.assign(2 * table_.size(), kNone);
    for (uint32_t id = 0; id < size(); ++id) {
      size_t i = hash((*this)[id]) & (table_.size() - 1);
      while (table_[i] != kNone) i = (i + 1) & (table_.size() - 1);
      table_[i] = id;
    }
  }

  std::vector<uint32_t> words_;
  std::vector<size_t> ends_;
  std::vector<uint32_t> table_;  // open addressing, a power of two
};

}  // namespace llmrt
