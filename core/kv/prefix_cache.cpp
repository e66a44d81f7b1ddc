#include "core/kv/prefix_cache.h"

#include "core/kv/hashed_prefix_cache.h"
#include "core/kv/radix_prefix_cache.h"

namespace llmrt {

std::unique_ptr<PrefixCache> make_prefix_cache(PrefixCacheKind kind, const KvPoolSize& size) {
  if (kind == PrefixCacheKind::kRadix) return std::make_unique<RadixPrefixCache>(size);
  if (kind == PrefixCacheKind::kHashed) return std::make_unique<HashedPrefixCache>(size);
  return nullptr;
}

}  // namespace llmrt
