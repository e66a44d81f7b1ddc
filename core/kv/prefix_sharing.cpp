// Who shares what: tables that begin with a match, blocks that go into the cache and out of it. The search is in
// prefix_match.cpp, what is said of states alone in state_sharing.cpp.
#include "core/kv/prefix_sharing.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"

namespace llmrt {
namespace {

// Two that are equal by chance are forgotten together.
uint64_t root_of(const Digest& identity, std::span<const int32_t> tokens) {
  const Digest key = chain_key(identity, tokens);
  uint64_t word;
  std::memcpy(&word, key.data(), sizeof word);
  return word | 1;
}

}  // namespace

PrefixSharing::PrefixSharing(CacheGroups* groups, Tiers* tiers, PrefixCacheKind kind, const PrefixListeners* listeners)
    : groups_(*groups), tiers_(*tiers), listeners_(*listeners) {
  LLMRT_CHECK(kind != PrefixCacheKind::kOff || !tiers_.has_host(), "a host tier below a prefix cache");
  groups_.set_keeper(this);
  if (kind == PrefixCacheKind::kOff) return;
  const KvPoolSize& leading = groups_.shape(0);
  LLMRT_CHECK(leading.kind == CacheKind::kBlocks && leading.window == 0, "group 0 has blocks of all positions");
  cache_ = make_prefix_cache(kind, leading);
  roots_.resize(leading.num_blocks);
  is_forgotten_.resize(leading.num_blocks);
  ends_prompt_.resize(leading.num_blocks);
  for (uint32_t g = 1; g < groups_.size(); ++g) {
    contents_.emplace_back(groups_, g);
    checkpoints_.emplace_back(groups_.is_state(g) ? groups_.shape(g).num_blocks : 0);
  }
  if (!tiers_.has_host()) return;
  keys_.resize(leading.num_blocks);
  worth_storing_.resize(leading.num_blocks);
  may_last_.resize(leading.num_blocks);
  if (!tiers_.has_disk()) return;
  for (uint32_t g = 0; g < groups_.size(); ++g) save_steps_.emplace_back(groups_.shape(g).num_blocks);
}

void PrefixSharing::keep_keys() {
  LLMRT_CHECK(cache_->size() == 0, "a listener is there before the first block is");
  keys_.resize(groups_.shape(0).num_blocks);
}

// ---- into tables ---------------------------------------------------------------------------------------------------

void PrefixSharing::share(std::span<BlockTable> tables, const PrefixMatch& match) {
  BlockTable& table = tables[0];
  LLMRT_CHECK(table.blocks.empty(), "a table begins with what it shares");
  for (const BlockId block : match.blocks) groups_.pool(0).retain(block);
  table.blocks.assign(match.blocks.begin(), match.blocks.end());
  if (cache_) table.num_cached = static_cast<uint32_t>(match.blocks.size());
  for (uint32_t g = 1; g <= match.others.size(); ++g) {
    if (groups_.is_state(g)) learn_from(g, match);
    take_over(g, tables[g], match);
  }
}

// All that is taken over is held before a block is allocated, which may push others out.
void PrefixSharing::take_over(uint32_t group, BlockTable& table, const PrefixMatch& match) {
  const GroupMatch& other = match.others[group - 1];
  BlockPool& pool = groups_.pool(group);
  for (const GroupMatch::Part& part : other.parts) {
    if (part.on_host)
      tiers_.hold(group, part.block);
    else
      pool.retain(part.block);
  }
  table.blocks.assign(other.first_entry, kNoBlock);
  table.first = table.num_sent = other.first_entry;
  table.num_tokens = match.num_tokens(groups_.shape(0).block_tokens);
  for (const GroupMatch::Part& part : other.parts) {
    const uint32_t entry = static_cast<uint32_t>(table.blocks.size());
    if (part.on_host) {
      const BlockId target = groups_.allocate(group);
      table.blocks.push_back(target);
      tiers_.load(group, part.block, target);
      if (groups_.is_state(group)) continue;
      const uint32_t node_idx = contents(group).node_idx_of(entry);  // of a node on the host: see keep
      if (node_idx < match.blocks.size()) attach(group, match.blocks[node_idx], contents(group).part_of(entry), target);
    } else if (part.is_checkpoint) {
      begin_from(group, table, part.block, match.path_end != PathEnd::kWhole);
    } else if (part.copy_tokens > 0) {
      take_copy(group, table, part);
    } else {
      table.blocks.push_back(part.block);
    }
  }
}

// The block is held for us.
void PrefixSharing::take_copy(uint32_t group, BlockTable& table, const GroupMatch::Part& part) {
  const BlockId target = groups_.allocate(group);
  table.blocks.push_back(target);
  tiers_.copy(group, part.block, target, part.copy_tokens);
  groups_.pool(group).release(part.block);
}

void PrefixSharing::load(std::span<BlockTable> tables, const PrefixMatch& match) {
  // From the end: the beginning of a text is what is used last, and lost last.
  for (size_t i = match.host_blocks.size(); i-- > 0;) tiers_.hold(0, match.host_blocks[i]);
  for (const BlockId source : match.host_blocks) {
    const BlockId target = groups_.allocate(0);
    tables[0].blocks.push_back(target);
    tiers_.load(0, source, target);
  }
}

// ---- into the cache ------------------------------------------------------------------------------------------------

void PrefixSharing::keep(std::span<BlockTable> tables, const Digest& identity, std::span<const int32_t> tokens,
                         bool may_last) {
  if (!cache_) return;
  BlockPool& pool = groups_.pool(0);
  BlockTable& table = tables[0];
  const uint32_t block_tokens = groups_.shape(0).block_tokens;
  const uint32_t num_full = static_cast<uint32_t>(tokens.size() / block_tokens);
  for (uint32_t& i = table.num_cached; i < num_full; ++i) {
    const BlockId own = table.blocks[i];
    const BlockId parent = i == 0 ? kNoBlock : table.blocks[i - 1];
    const BlockId kept = cache_->insert(identity, parent, tokens.subspan(size_t{i} * block_tokens, block_tokens), own);
    if (kept == own) {
      pool.set_keeps_content(own, true);
      roots_[own] = parent == kNoBlock ? root_of(identity, cache_->tokens(own)) : roots_[parent];
      is_forgotten_[own] = parent != kNoBlock && is_forgotten_[parent];
      if (!keys_.empty()) {
        const Digest& before = parent == kNoBlock ? identity : keys_[parent];
        keys_[own] = chain_key(before, cache_->tokens(own));
        if (!is_forgotten_[own]) listeners_.kept({keys_[own], before, parent == kNoBlock, cache_->tokens(own)});
      }
      if (tiers_.has_host()) {
        may_last_[own] = may_last;
        note_save(0, own);
      }
    } else {
      pool.retain(kept);
      pool.release(own);
      table.blocks[i] = kept;
      table.num_sent = std::min(table.num_sent, i);
    }
    keep_parts(tables, i);
  }
  attach_waiting(tables);
}

void PrefixSharing::keep_parts(std::span<BlockTable> tables, uint32_t node_idx) {
  const BlockId node = tables[0].blocks[node_idx];
  for (uint32_t g = 1; g < groups_.size(); ++g) {
    if (groups_.is_state(g)) continue;
    BlockTable& table = tables[g];
    for (uint32_t part = 0; part < contents(g).parts_node(); ++part) {
      const uint32_t entry = contents(g).entry_of(node_idx, part);
      if (entry == GroupContents::kNoEntry || entry < table.first || entry >= table.blocks.size()) continue;
      const BlockId own = table.blocks[entry], there = contents(g).at(node, part);
      if (own == there) continue;
      if (there == kNoBlock) {
        attach(g, node, part, own);
        continue;
      }
      groups_.pool(g).retain(there);
      groups_.pool(g).release(own);
      table.blocks[entry] = there;
      table.num_sent = std::min(table.num_sent, entry);
    }
  }
}

void PrefixSharing::attach(uint32_t group, BlockId node, uint32_t part, BlockId block) {
  contents_[group - 1].attach(node, part, block);
  groups_.pool(group).set_keeps_content(block, true);
  note_save(group, block);
}

void PrefixSharing::detach(uint32_t group, BlockId block) {
  if (groups_.is_state(group)) checkpoints_[group - 1].remove(block);
  contents_[group - 1].detach(block);
  groups_.pool(group).set_keeps_content(block, false);
  if (tiers_.has_disk()) save_steps_[group][block] = 0;
}

// ---- out of tables and out of the cache ----------------------------------------------------------------------------

void PrefixSharing::release(std::span<BlockTable> tables, bool forget) {
  for (uint32_t g = groups_.size(); g-- > 1;) {
    if (groups_.is_state(g)) release_states(g, tables, forget);
    groups_.release(g, tables[g]);
  }
  std::vector<BlockId>& blocks = tables[0].blocks;
  for (; !blocks.empty(); blocks.pop_back()) release(blocks.back(), forget);
  groups_.release(0, tables[0]);
}

void PrefixSharing::release(BlockId block, bool forget) {
  BlockPool& pool = groups_.pool(0);
  if (pool.references(block) == 1 && pool.keeps_content(block) && (forget || is_forgotten_[block]) &&
      !cache_->has_children(block)) {
    if (tiers_.has_host() && !is_forgotten_[block]) {
      tiers_.erase(0, keys_[block], cache_->tokens(block));
      for (uint32_t g = 1; g < groups_.size(); ++g)
        for (uint32_t part = 0; part < contents(g).parts_node(); ++part)
          tiers_.erase(g, part_key(keys_[block], g, part), cache_->tokens(block));
    }
    drop(block);
  }
  pool.release(block);
}

void PrefixSharing::drop(BlockId node) {
  for (uint32_t g = 1; g < groups_.size(); ++g)
    for (uint32_t part = 0; part < contents(g).parts_node(); ++part)
      if (const BlockId block = contents(g).at(node, part); block != kNoBlock) detach(g, block);
  for (Pending& pending : pending_)
    if (pending.node == node) pending.is_gone = true;
  tell_gone(node);
  cache_->erase(node);
  groups_.pool(0).set_keeps_content(node, false);
  is_forgotten_[node] = false;
  ends_prompt_[node] = false;
  if (tiers_.has_disk()) save_steps_[0][node] = 0;
}

// No match comes upon the node any more.
void PrefixSharing::tell_gone(BlockId node) const {
  if (!listeners_.is_empty() && !is_forgotten_[node]) listeners_.gone(PrefixTier::kDevice, keys_[node]);
}

void PrefixSharing::lose(uint32_t group, BlockId block) {
  if (group > 0) {
    if (groups_.is_state(group)) return evict_state(group);
    store_part(group, block);
    detach(group, block);
    return;
  }
  if (tiers_.has_host() && (worth_storing_[block] || is_to_save(0, block))) {
    store(0, block);
    for (uint32_t g = 1; g < groups_.size(); ++g)
      for (uint32_t part = 0; part < contents(g).parts_node(); ++part)
        if (const BlockId beside = contents(g).at(block, part); beside != kNoBlock) store_part(g, beside);
  }
  for (uint32_t g = 1; g < groups_.size(); ++g)
    if (const BlockId record = contents(g).at(block, 0); groups_.is_state(g) && record != kNoBlock)
      checkpoints_[g - 1].evict(record);
  drop(block);
}

// Of a block beside a node, which loses it.
void PrefixSharing::store_part(uint32_t group, BlockId block) {
  if (!tiers_.has_host()) return;
  const BlockId node = node_of(group, block);
  if ((worth_storing_[node] || is_to_save(group, block)) && !is_forgotten_[node]) store(group, block);
}

BlockId PrefixSharing::node_of(uint32_t group, BlockId block) const {
  return group == 0 ? block : contents(group).place(block).node;
}

Digest PrefixSharing::key_of(uint32_t group, BlockId block) const {
  const Digest& key = keys_[node_of(group, block)];
  return group == 0 ? key : part_key(key, group, contents(group).place(block).part);
}

void PrefixSharing::store(uint32_t group, BlockId block) {
  const Digest key = key_of(group, block);
  const BlockId node = node_of(group, block);
  tiers_.store(group, block, {key, cache_->tokens(node), roots_[node], may_last_[node]});
}

// ---- the disk ------------------------------------------------------------------------------------------------------

void PrefixSharing::note_save(uint32_t group, BlockId block) {
  if (!tiers_.has_disk() || !may_last_[node_of(group, block)]) return;
  save_steps_[group][block] = step_;
  saves_.push_back({group, block, step_});
  // Those that are gone are as many as the others at most.
  size_t num_blocks = 0;
  for (const std::vector<uint64_t>& steps : save_steps_) num_blocks += steps.size();
  if (saves_.size() > 2 * num_blocks + 64)
    std::erase_if(saves_, [this](const Save& save) { return save_steps_[save.group][save.block] != save.step; });
}

void PrefixSharing::save(uint32_t blocks_max, bool all) {
  if (saves_.empty()) return;
  uint32_t room = std::min(blocks_max, tiers_.write_room());
  while (room > 0 && !saves_.empty() && (all || saves_.front().step < step_)) {
    const Save save = saves_.front();
    saves_.pop_front();
    uint64_t& step = save_steps_[save.group][save.block];
    if (step != save.step) continue;
    step = 0;
    if (is_forgotten_[node_of(save.group, save.block)] || tiers_.is_on_disk(key_of(save.group, save.block))) continue;
    store(save.group, save.block);
    --room;
  }
}

void PrefixSharing::save_known(std::span<const BlockTable> tables) {
  if (!cache_ || !tiers_.has_disk()) return;
  for (uint32_t i = 0; i < tables[0].num_cached; ++i) {
    const BlockId node = tables[0].blocks[i];
    if (may_last_[node]) continue;
    may_last_[node] = true;
    note_save(0, node);
    for (uint32_t g = 1; g < groups_.size(); ++g)
      for (uint32_t part = 0; part < contents(g).parts_node(); ++part)
        if (const BlockId beside = contents(g).at(node, part); beside != kNoBlock) note_save(g, beside);
  }
}

std::optional<DiskBatch> PrefixSharing::read_from_disk(const Digest& identity, std::span<const int32_t> tokens) {
  if (!cache_ || !tiers_.has_disk()) return 0;
  Nodes nodes{.with_disk = true};
  const PrefixMatch match = find(identity, tokens, &nodes);
  const auto num_device = static_cast<uint32_t>(nodes.blocks.size());
  if (match.num_full() == 0) return 0;
  const uint64_t root = root_of(identity, node_tokens(nodes, 0));
  std::vector<DiskBlock> wanted;
  // What is there already is not to make room for the rest.
  const auto ask = [&](uint32_t group, BlockId block, uint32_t node_idx, const Digest& key) {
    if (block != Tiers::kOnDisk) return tiers_.use(group, block);
    const auto own = node_tokens(nodes, node_idx);
    wanted.push_back({group, kNoBlock, key, {own.begin(), own.end()}, root});
  };
  for (uint32_t i = 0; i < match.host_blocks.size(); ++i)
    ask(0, match.host_blocks[i], num_device + i, node_key(nodes, num_device + i));
  for (uint32_t g = 1; g <= match.others.size(); ++g) {
    const GroupMatch& other = match.others[g - 1];
    for (uint32_t i = 0; i < other.parts.size(); ++i) {
      if (!other.parts[i].on_host) continue;
      const uint32_t entry = other.first_entry + i;
      const bool is_state = groups_.is_state(g);
      const uint32_t node_idx = is_state ? match.num_full() - 1 : contents(g).node_idx_of(entry);
      const uint32_t part = is_state ? 0 : contents(g).part_of(entry);
      ask(g, other.parts[i].block, node_idx, part_key(node_key(nodes, node_idx), g, part));
    }
  }
  if (wanted.empty()) return 0;
  // More of a text than the host's pool holds: as much of its beginning.
  if (groups_.size() == 1) wanted.resize(std::min<size_t>(wanted.size(), tiers_.host(0)->num_blocks()));
  return tiers_.read(std::move(wanted));
}

uint64_t PrefixSharing::root(std::span<const BlockTable> tables) const {
  return tables.empty() || tables[0].num_cached == 0 ? 0 : roots_[tables[0].blocks[0]];
}

// Blocks that nobody holds stand in their pool's order children first.
void PrefixSharing::forget(uint64_t root) {
  if (!cache_ || root == 0) return;
  const BlockPool& pool = groups_.pool(0);
  for (BlockId block = pool.first_cached(), next; block != kNoBlock; block = next) {
    next = pool.next_cached(block);
    if (roots_[block] == root) drop(block);
  }
  for (BlockId block = 0; block < pool.num_blocks(); ++block) {
    if (!pool.keeps_content(block) || roots_[block] != root || is_forgotten_[block]) continue;
    tell_gone(block);
    cache_->hide(block);
    is_forgotten_[block] = true;
  }
  tiers_.forget(root);
}

void PrefixSharing::set_worth_storing(std::span<const BlockTable> tables, bool worth) {
  if (!tiers_.has_host()) return;
  for (const BlockId block : tables[0].blocks) worth_storing_[block] = worth;
}

}  // namespace llmrt
