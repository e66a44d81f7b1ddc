// Names that all fall into one bucket of an unordered_map under std::hash, as libstdc++ has it: what the maker of a
// file or a client would choose to make lookups walk one long list. (Elsewhere they are names like any other.)
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace llmrt {

// `count` different names of 8 printable characters; the map either grows name by name, or is `reserved` for all.
inline std::vector<std::string> colliding_names(size_t count, bool reserved) {
  std::unordered_set<size_t> example;
  if (reserved) example.reserve(count);
  for (size_t i = 0; i < count; ++i) example.insert(i);
  const uint64_t buckets = example.bucket_count();

  // MurmurHash64A of 8 bytes with libstdc++'s seed, undone step by step.
  constexpr uint64_t kMultiplier = 0xc6a4a7935bd1e995u;
  constexpr uint64_t kInverse = 0x5f7a0ea7e59b19bdu;
  static_assert(kMultiplier * kInverse == 1);
  constexpr uint64_t kStart = 0xc70f6907u ^ (8 * kMultiplier);
  const auto unshift = [](uint64_t value) { return value ^ value >> 47; };
  std::vector<std::string> names;
  for (uint64_t hash = buckets; names.size() < count; hash += buckets) {
    const uint64_t mixed = unshift(unshift(hash) * kInverse) * kInverse;
    const uint64_t word = unshift((mixed ^ kStart) * kInverse) * kInverse;
    char bytes[8];
    std::memcpy(bytes, &word, sizeof(bytes));
    if (std::all_of(bytes, bytes + 8, [](char c) { return c > 0x20 && c < 0x7f; })) names.emplace_back(bytes, 8);
  }
  return names;
}

// As many names of the same kind, at random; different, as eight characters say little twice.
inline std::vector<std::string> random_names(size_t count) {
  std::unordered_set<std::string> names;
  uint64_t state = 1;
  while (names.size() < count) {
    std::string name;
    for (int i = 0; i < 8; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      name += static_cast<char>('!' + (state >> 33) % 94);
    }
    names.insert(std::move(name));
  }
  return {names.begin(), names.end()};
}

}  // namespace llmrt
