// Blocks on their way from one engine to another of the same process: copies in the host's memory, by key. Engines
// whose blocks mean the same and lie alike have one `layout`; others never find them. What was used longest ago goes
// when room is needed, whether or not somebody waits for it: then it is computed again. Nothing that is found is
// trusted before its tokens are compared.
//
// Thread-safe. Outlives its ports.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/disk/block_store.h"
#include "core/metrics/exchange_stats.h"

namespace llmrt {

class BlockExchange {
 public:
  explicit BlockExchange(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // What an engine's tier below the host's is made of. `layout`: of its blocks (exchange_layout).
  std::unique_ptr<BlockStore> port(const Digest& layout);
  ExchangeStats stats() const;

 private:
  class Port;
  struct Content {  // never changes while others may see it
    uint32_t kv_group = 0;
    std::vector<int32_t> tokens;
    uint64_t root = 0;
    std::unique_ptr<std::byte[]> bytes;
    uint64_t num_bytes = 0;
  };
  struct Entry {
    std::shared_ptr<const Content> content;
    std::list<Digest>::iterator use;
  };
  struct FirstWord {  // a digest is its own hash
    size_t operator()(const Digest& digest) const;
  };

  bool contains(const Digest& key) const;
  void put(const Digest& key, const DiskBlock& block, BlockStore::Parts parts);
  bool get(const Digest& key, const DiskBlock& block, BlockStore::Parts parts);
  void erase(const Digest& key);
  void forget(uint64_t root);
  std::shared_ptr<const Content> remove(const Digest& key);  // locked

  const uint64_t bytes_max_;
  mutable std::mutex mutex_;  // of what follows
  std::unordered_map<Digest, Entry, FirstWord> entries_;
  std::list<Digest> uses_;  // the longest unused first
  ExchangeStats stats_;
};

}  // namespace llmrt
