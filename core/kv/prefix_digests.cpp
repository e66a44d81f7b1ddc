#include "core/kv/prefix_digests.h"

#include "core/base/check.h"

namespace llmrt {

void PrefixDigests::add(const Digest& key) {
  std::lock_guard lock(mutex_);
  ++num_tiers_[short_key(key)];
}

void PrefixDigests::gone(PrefixTier, const Digest& key) {
  std::lock_guard lock(mutex_);
  const auto it = num_tiers_.find(short_key(key));
  LLMRT_CHECK(it != num_tiers_.end(), "a block goes that was told before");
  if (--it->second == 0) num_tiers_.erase(it);
}

bool PrefixDigests::contains(const Digest& key) const {
  std::lock_guard lock(mutex_);
  return num_tiers_.contains(short_key(key));
}

size_t PrefixDigests::size() const {
  std::lock_guard lock(mutex_);
  return num_tiers_.size();
}

}  // namespace llmrt
