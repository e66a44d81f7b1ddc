#include "core/kv/audit.h"

namespace llmrt {
namespace {

// Tables of a group against its pool.
struct GroupAudit {
  const CacheGroups& groups;
  const PrefixSharing& sharing;
  uint32_t group;
  std::span<const TableHolder> sequences;
  std::vector<uint32_t> references = std::vector<uint32_t>(groups.pool(group).num_blocks());

  // Entry i of a table may be one of others' too.
  bool may_be_shared(const TableHolder& holder, uint32_t i) const {
    const BlockTable& table = holder.tables[group];
    if (groups.is_state(group)) return false;
    if (!sharing.has_cache()) return i < holder.num_tokens / groups.shape(group).block_tokens;
    return group == 0 ? i < table.num_cached : sharing.contents(group).contains(table.blocks[i]);
  }

  Status check_window(const TableHolder& holder) const {
    const BlockTable& table = holder.tables[group];
    const uint32_t first = groups.first_entry(group, holder.num_tokens);
    if (table.first > first)
      return broken_books("group {}: a table begins at entry {}, expected at most {}", group, table.first, first);
    for (uint32_t i = 0; i < table.blocks.size(); ++i)
      if ((table.blocks[i] == kNoBlock) != (i < table.first))
        return broken_books("group {}: entry {} of a table that begins at {}", group, i, table.first);
    return {};
  }

  // What a sequence holds beside its own record.
  Status count_records(const TableHolder& holder) {
    const BlockTable& table = holder.tables[group];
    if (table.source != kNoBlock) ++references[table.source];
    if (table.waiting.record == kNoBlock) return {};
    ++references[table.waiting.record];
    const uint32_t known = holder.tables[0].num_cached * groups.shape(0).block_tokens;
    if (table.waiting.position > known && table.waiting.position <= holder.num_tokens &&
        table.waiting.position % groups.place_tokens() == 0)
      return {};
    return broken_books("group {}: a checkpoint behind {} tokens waits to be known, {} are, {} are computed", group,
                        table.waiting.position, known, holder.num_tokens);
  }

  Status check() {
    for (const TableHolder& holder : sequences) {
      const BlockTable& table = holder.tables[group];
      if (Status status = check_window(holder); !status) return status;
      if (groups.is_state(group) && table.blocks.size() != (holder.tables[0].blocks.empty() ? 0 : 1))
        return broken_books("group {}: a sequence has {} states", group, table.blocks.size());
      for (uint32_t i = table.first; i < table.blocks.size(); ++i) ++references[table.blocks[i]];
      if (Status status = count_records(holder); !status) return status;
    }
    if (Status status = groups.pool(group).check_books(references); !status) return status;
    for (const TableHolder& holder : sequences) {
      const BlockTable& table = holder.tables[group];
      for (uint32_t i = table.first; i < table.blocks.size(); ++i) {
        if (references[table.blocks[i]] == 1 || may_be_shared(holder, i)) continue;
        return broken_books("block {}: it is in {} tables and {}", table.blocks[i], references[table.blocks[i]],
                            groups.is_state(group) ? "a state"
                            : sharing.has_cache()  ? "not in the prefix cache"
                                                   : "not full");
      }
    }
    return {};
  }
};

Status check_cache(const CacheGroups& groups, const PrefixSharing& sharing, std::span<const TableHolder> sequences) {
  const BlockPool& pool = groups.pool(0);
  const PrefixCache& cache = *sharing.cache();
  uint32_t num_kept = 0;
  for (BlockId block = 0; block < pool.num_blocks(); ++block) {
    num_kept += pool.keeps_content(block);
    if (sharing.is_forgotten(block) && (!cache.contains(block) || pool.references(block) == 0))
      return broken_books("block {}: forgotten, expected in the cache and held, found {} references", block,
                          pool.references(block));
    if (pool.keeps_content(block) == cache.contains(block)) continue;
    return broken_books("block {}: the prefix cache {} it, the pool does not agree", block,
                        cache.contains(block) ? "has" : "lacks");
  }
  if (num_kept != cache.size())
    return broken_books("prefix cache: expected {} blocks, found {}", num_kept, cache.size());
  for (const TableHolder& holder : sequences) {
    const BlockTable& table = holder.tables[0];
    for (size_t i = 0; i < table.blocks.size(); ++i) {
      if (cache.contains(table.blocks[i]) == (i < table.num_cached)) continue;
      return broken_books("block {}: entry {} of a table whose first {} are cached", table.blocks[i], i,
                          table.num_cached);
    }
    for (uint32_t i = 1; i < table.num_cached; ++i) {
      if (sharing.is_forgotten(table.blocks[i]) == sharing.is_forgotten(table.blocks[0])) continue;
      return broken_books("block {}: entry {} of a table, expected forgotten as its first one", table.blocks[i], i);
    }
  }
  return cache.check();
}

Status check_contents(const CacheGroups& groups, const PrefixSharing& sharing, uint32_t group) {
  const GroupContents& contents = sharing.contents(group);
  if (Status status = contents.check(groups.pool(group)); !status) return status;
  if (groups.is_state(group))
    if (Status status = sharing.checkpoints(group).check(contents); !status) return status;
  for (BlockId node = 0; node < groups.pool(0).num_blocks(); ++node)
    for (uint32_t part = 0; part < contents.parts_node(); ++part)
      if (contents.at(node, part) != kNoBlock && !sharing.cache()->contains(node))
        return broken_books("group {}: block {} stands beside block {}, which is not in the prefix cache", group,
                            contents.at(node, part), node);
  return {};
}

}  // namespace

Status audit(const CacheGroups& groups, const PrefixSharing& sharing, const Tiers& tiers,
             std::span<const TableHolder> sequences) {
  for (uint32_t g = 0; g < groups.size(); ++g)
    if (Status status = GroupAudit{groups, sharing, g, sequences}.check(); !status) return status;
  if (Status status = tiers.check(); !status) return status;
  if (!sharing.has_cache()) return {};
  if (Status status = check_cache(groups, sharing, sequences); !status) return status;
  for (uint32_t g = 1; g < groups.size(); ++g)
    if (Status status = check_contents(groups, sharing, g); !status) return status;
  return {};
}

}  // namespace llmrt
