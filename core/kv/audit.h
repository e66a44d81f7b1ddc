// Whether the books of all groups balance with the tables of the running sequences.
#pragma once

#include <span>

#include "core/kv/prefix_sharing.h"

namespace llmrt {

// The tables of a sequence, and how many tokens they hold.
struct TableHolder {
  std::span<const BlockTable> tables;
  uint32_t num_tokens;
};

// BlockPool::check_books of every pool; no block that is still written is in two tables; a window's tables hold what
// the next token may read and nothing before it; a state is its sequence's own. And the cache's: what it knows is what
// the pool keeps, tables begin with it, only that (or what stands beside it) is shared, and what cannot be trusted is
// held. Between steps, while no move waits for a plan.
Status audit(const CacheGroups& groups, const PrefixSharing& sharing, const Tiers& tiers,
             std::span<const TableHolder> sequences);

}  // namespace llmrt
