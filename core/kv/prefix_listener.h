// Who is told which beginnings of texts the prefix cache can serve, block by block: what comes into it, and what can be
// found no more. Blocks are those of group 0, the leading one, on the device and in the host tier; a model whose other
// groups lack what stands beside a block may be able to use less of a text.
//
// A block is named by its key: SHA-256, chained from the identity over the blocks before it (chain_key).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/sha256.h"

namespace llmrt {

enum class PrefixTier : uint8_t { kDevice, kHost };

struct PrefixBlock {
  const Digest& key;
  const Digest& before;  // the parent's key; of a text's first block the identity
  bool is_first;
  std::span<const int32_t> tokens;
};

// Called on the thread of the books, in order. On the device a block is told behind its parent, and goes before it. In
// one tier a key is told once until it is gone.
class PrefixListener {
 public:
  virtual ~PrefixListener() = default;
  // The block stands on the device: it is computed, or in a plan that computes it.
  virtual void kept(const PrefixBlock& block) = 0;
  // A copy of a block with this key stands in the host tier.
  virtual void stored(const Digest& key) = 0;
  virtual void gone(PrefixTier tier, const Digest& key) = 0;
};

class PrefixListeners {
 public:
  PrefixListeners() = default;
  PrefixListeners(const PrefixListeners&) = delete;

  void add(PrefixListener* listener) { listeners_.push_back(listener); }
  bool is_empty() const { return listeners_.empty(); }

  void kept(const PrefixBlock& block) const {
    for (PrefixListener* listener : listeners_) listener->kept(block);
  }
  void stored(const Digest& key) const {
    for (PrefixListener* listener : listeners_) listener->stored(key);
  }
  void gone(PrefixTier tier, const Digest& key) const {
    for (PrefixListener* listener : listeners_) listener->gone(tier, key);
  }

 private:
  std::vector<PrefixListener*> listeners_;
};

// The first 64 bits of a key, as a number: what outsiders know a block by.
inline uint64_t short_key(const Digest& key) {
  uint64_t word = 0;
  for (size_t i = 0; i < sizeof word; ++i) word = word << 8 | key[i];
  return word;
}

}  // namespace llmrt
