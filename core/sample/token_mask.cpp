#include "core/sample/token_mask.h"

#include <algorithm>
#include <bit>

namespace llmrt {
namespace {

// The finaliser of splitmix64, over the words in turn.
uint64_t mixed(uint64_t digest, uint64_t word) {
  uint64_t x = digest * 0x9e3779b97f4a7c15ull + word + 0x632be59bd9b4e019ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace

TokenMask::TokenMask(std::vector<uint32_t> bits) : bits_(std::move(bits)) {
  for (uint32_t i = 0; i < bits_.size(); ++i) {
    if (bits_[i] == 0) continue;
    num_allowed_ += static_cast<uint32_t>(std::popcount(bits_[i]));
    digest_ = mixed(digest_, uint64_t{i} << 32 | bits_[i]);
  }
  if (num_allowed_ >= bits_.size() / 2) return;
  list_.reserve(num_allowed_);
  for (uint32_t i = 0; i < bits_.size(); ++i)
    for (uint32_t word = bits_[i]; word; word &= word - 1)
      list_.push_back(32 * i + static_cast<uint32_t>(std::countr_zero(word)));
  if (!list_.empty()) bits_ = std::vector<uint32_t>();  // gives its room back
}

bool TokenMask::allows(int32_t token) const {
  if (!list_.empty()) return token >= 0 && std::ranges::binary_search(list_, static_cast<uint32_t>(token));
  const auto word = static_cast<uint32_t>(token) / 32;
  return token >= 0 && word < bits_.size() && (bits_[word] >> (static_cast<uint32_t>(token) % 32) & 1u);
}

int32_t TokenMask::first() const {
  if (!list_.empty()) return static_cast<int32_t>(list_.front());
  for (uint32_t i = 0; i < bits_.size(); ++i)
    if (bits_[i] != 0) return static_cast<int32_t>(32 * i) + std::countr_zero(bits_[i]);
  return -1;
}

}  // namespace llmrt
