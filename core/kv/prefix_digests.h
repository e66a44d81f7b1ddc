// Which blocks a prefix cache can serve, for threads that are not the cache's: the short keys of all blocks that it
// tells of, with the number of tiers that have them. As large as the pools, at most. Two keys that are equal by chance
// are taken for one: what is read here is an estimate.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "core/kv/prefix_listener.h"

namespace llmrt {

class PrefixDigests final : public PrefixListener {
 public:
  void kept(const PrefixBlock& block) override { add(block.key); }
  void stored(const Digest& key) override { add(key); }
  void gone(PrefixTier tier, const Digest& key) override;

  // Any thread. A beginning is there as far as the keys of its blocks are, from the first on.
  bool contains(const Digest& key) const;
  size_t size() const;

 private:
  struct OwnHash {  // a digest is its own hash
    size_t operator()(uint64_t word) const { return static_cast<size_t>(word); }
  };
  void add(const Digest& key);

  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, uint32_t, OwnHash> num_tiers_;
};

}  // namespace llmrt
