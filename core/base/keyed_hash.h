// The hash of every container whose keys come from outside (clients, model files): SipHash-1-3 under a key drawn once a
// process, so that nobody can choose keys that collide. Source: Aumasson, Bernstein, "SipHash: a fast short-input PRF",
// 2012; one compression and three finalisation rounds, as Rust's and Python's tables have it. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace llmrt {

using HashKey = std::array<uint64_t, 2>;

// `c` rounds for each 8 bytes and `d` at the end. The published vectors are those of 2 and 4.
uint64_t siphash(std::string_view bytes, const HashKey& key, int c = 1, int d = 3);
// Drawn at the first call from the system's source of randomness; the same for the rest of the process.
const HashKey& process_hash_key();

struct KeyedHash {
  using is_transparent = void;
  size_t operator()(std::string_view bytes) const { return siphash(bytes, process_hash_key()); }
};

template <typename Value>
using KeyedMap = std::unordered_map<std::string, Value, KeyedHash, std::equal_to<>>;
// Keys that live elsewhere.
template <typename Value>
using KeyedViewMap = std::unordered_map<std::string_view, Value, KeyedHash, std::equal_to<>>;
using KeyedSet = std::unordered_set<std::string, KeyedHash, std::equal_to<>>;
using KeyedViewSet = std::unordered_set<std::string_view, KeyedHash, std::equal_to<>>;

}  // namespace llmrt
