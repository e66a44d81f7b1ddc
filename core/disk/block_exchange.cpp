#include "core/disk/block_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace llmrt {

size_t BlockExchange::FirstWord::operator()(const Digest& digest) const {
  size_t word;
  std::memcpy(&word, digest.data(), sizeof word);
  return word;
}

// The exchange under keys of the port's layout.
class BlockExchange::Port final : public BlockStore {
 public:
  Port(BlockExchange* exchange, const Digest& layout) : exchange_(*exchange), layout_(layout) {}

  bool contains(const Digest& key) const override { return exchange_.contains(own(key)); }
  void put(const DiskBlock& block, Parts parts) override { exchange_.put(own(block.key), block, parts); }
  bool get(const DiskBlock& block, Parts parts) override { return exchange_.get(own(block.key), block, parts); }
  void erase(const Digest& key) override { exchange_.erase(own(key)); }
  void forget(uint64_t root) override { exchange_.forget(root); }
  DiskStats stats() const override { return {}; }

 private:
  // Keys and layouts are evenly spread: so is their sum.
  Digest own(Digest key) const {
    for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<Digest::value_type>(key[i] ^ layout_[i]);
    return key;
  }

  BlockExchange& exchange_;
  const Digest layout_;
};

std::unique_ptr<BlockStore> BlockExchange::port(const Digest& layout) {
  return std::make_unique<Port>(this, layout);
}

bool BlockExchange::contains(const Digest& key) const {
  std::lock_guard lock(mutex_);
  return entries_.contains(key);
}

std::shared_ptr<const BlockExchange::Content> BlockExchange::remove(const Digest& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  std::shared_ptr<const Content> content = std::move(found->second.content);
  uses_.erase(found->second.use);
  entries_.erase(found);
  stats_.bytes_used -= content->num_bytes;
  return content;
}

// Copies run without the lock: those of several engines side by side.
void BlockExchange::put(const Digest& key, const DiskBlock& block, BlockStore::Parts parts) {
  auto content = std::make_shared<Content>();
  content->kv_group = block.kv_group;
  content->tokens = block.tokens;
  content->root = block.root;
  for (const std::span<std::byte>& part : parts) content->num_bytes += part.size();
  std::vector<std::shared_ptr<const Content>> gone;
  {
    std::lock_guard lock(mutex_);
    if (entries_.contains(key) || content->num_bytes > bytes_max_) return;
    while (!uses_.empty() && stats_.bytes_used + content->num_bytes > bytes_max_) {
      gone.push_back(remove(uses_.front()));
      ++stats_.num_evicted;
    }
    stats_.bytes_used += content->num_bytes;  // reserved
  }
  content->bytes = std::make_unique_for_overwrite<std::byte[]>(content->num_bytes);
  std::byte* to = content->bytes.get();
  for (const std::span<std::byte>& part : parts) {
    std::memcpy(to, part.data(), part.size());
    to += part.size();
  }
  std::lock_guard lock(mutex_);
  if (entries_.contains(key)) {  // from another engine, meanwhile
    stats_.bytes_used -= content->num_bytes;
    return;
  }
  uses_.push_back(key);
  entries_.emplace(key, Entry{std::move(content), std::prev(uses_.end())});
  ++stats_.num_put;
}

bool BlockExchange::get(const Digest& key, const DiskBlock& block, BlockStore::Parts parts) {
  std::shared_ptr<const Content> content;
  {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found != entries_.end()) {
      content = found->second.content;
      uses_.splice(uses_.end(), uses_, found->second.use);
    }
    uint64_t num_bytes = 0;
    for (const std::span<std::byte>& part : parts) num_bytes += part.size();
    if (!content || content->kv_group != block.kv_group || content->tokens != block.tokens ||
        content->num_bytes != num_bytes) {
      ++stats_.num_missed;
      return false;
    }
    ++stats_.num_got;
  }
  const std::byte* from = content->bytes.get();
  for (const std::span<std::byte>& part : parts) {
    std::memcpy(part.data(), from, part.size());
    from += part.size();
  }
  return true;
}

void BlockExchange::erase(const Digest& key) {
  std::shared_ptr<const Content> gone;
  std::lock_guard lock(mutex_);
  gone = remove(key);
}

void BlockExchange::forget(uint64_t root) {
  std::vector<std::shared_ptr<const Content>> gone;
  std::lock_guard lock(mutex_);
  std::vector<Digest> keys;
  for (const auto& [key, entry] : entries_)
    if (entry.content->root == root) keys.push_back(key);
  for (const Digest& key : keys) gone.push_back(remove(key));
}

ExchangeStats BlockExchange::stats() const {
  std::lock_guard lock(mutex_);
  ExchangeStats stats = stats_;
  stats.blocks = entries_.size();
  stats.bytes_max = bytes_max_;
  return stats;
}

}  // namespace llmrt
